"""NodeRunner: this node's part of a job. Its devices, ports, hook, logs and processes.

A member (agent/member.py) orders it about; the pure Supervisor (core/attempt/supervisor.py) decides
which process is signalled when. tests/sim has the same interface with simulated processes.

Processes are started with posix_spawn (vfork-cheap), each in its own process group, and watched
through pidfds: the kernel wakes the loop, nothing is polled. An ended process stays unreaped
until its attempt is over, so that its process group id cannot be reused under us.
"""

from __future__ import annotations

import os
from time import monotonic

from paddock.contracts.environment import REPORT_FD, proc_env, shared_env
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.supervisor import (
    SIGKILL,
    SIGTERM,
    AttemptEnded,
    KillDescendants,
    ReportExit,
    RestartServer,
    ServerGivenUp,
    SignalGroup,
    Supervisor,
)
from paddock.core.hosts import SERVICES, host_of, with_ports
from paddock.core.rendezvous.messages import SetTimer, Stop, TimerFired
from paddock.core.value import replace, value
from paddock.local.facts.devices import find_devices
from paddock.local.facts.ports import hold_ports
from paddock.local.guardian import reap_orphans, sweep_on
from paddock.local.loop import READ, Loop
from paddock.local.output.logs import LAUNCHER_LOG, LogDir
from paddock.local.report.text import count
from paddock.local.runs.entry import json_text
from paddock.local.spawn import (
    ChildProcess,
    Hook,
    Streams,
    allow_files,
    end_of,
    has_stdin,
    spawn,
    spawn_failure,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from paddock.contracts.environment import SharedEnv
    from paddock.core.attempt.supervisor import Action, Event
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.local.ending import Endings
    from paddock.local.facts.ports import HeldPorts
    from paddock.local.lingering import Lingering
    from paddock.local.output.streams import OutputThread, ProcessStream
    from paddock.local.warm.process import DaemonLoop
    from paddock.local.warm.server import WarmServer

    Opened = list[tuple[Proc, tuple[ProcessStream, tuple[int, ...]]]]

    class NodeEvents(Protocol):
        """The reports of a NodeRunner to its member, on the loop's thread."""

        def exited(self, exit_: Exit) -> None:
            """A process ended; times are of this host's monotonic clock."""

        def stopped(self, attempt: int) -> None:
            """All processes of the attempt, and what they left behind, are gone."""

        def starting(self, plan: Plan, node_rank: int) -> None:
            """The processes of an attempt start next."""

        def say(self, level: str, text: str) -> None:
            """Tell the people at this node."""


SIGCONT, SIGSTOP = 18, 19
DRAIN_SECONDS = 5.0
SLOW_SECONDS = 5.0  # of a restart, until the first line of any rank


@value
class LaunchContext:
    """Facts of one launcher that hold for all of its attempts.

    env: its environment variables. cores: that it may use. pod_name: its name among the launchers
    of the job. run_id, folder: of its record, see LogDir. kept: what the launch before has left
    (--warm keep).
    """

    env: Mapping[str, str]
    cores: int
    pod_name: str
    run_id: str = ""
    folder: str = ""
    kept: DaemonLoop | None = None

    @property
    def kept_pids(self) -> set[int]:
        """The warm process that the launch before has left, until somebody takes it."""
        warm = self.kept.warm if self.kept is not None else None
        return set() if warm is None else {warm.pid}


@value
class AttemptProcesses:
    """The processes of an attempt on this node. began_at: when they started, monotonic seconds."""

    number: int
    began_at: float
    is_stopping: bool
    processes: tuple[ChildProcess, ...]


class NodeRunner:
    """The processes of this node. Owned by the loop's thread. The member sets `events`."""

    events: NodeEvents
    _plan: Plan  # of the latest attempt, as are these
    _endings: Endings
    _shared: SharedEnv
    _streams: Streams

    def __init__(self, job: Job, context: LaunchContext, loop: Loop, output: OutputThread) -> None:
        """Look for devices, once. Raises UsageError."""
        self.job = job
        self.notes: tuple[str, ...] = ()  # about the latest start, for people
        self.warning = ""
        self.before_stop: Callable[[str, Callable[[], None]], None] | None = None
        self.allow_tracer: Callable[[], object] | None = None  # called in a rank before exec(2)
        self.server_restarts = 0  # how often servers were started again in place
        self.own_pids: set[int] = set()  # children of ours that are no part of the job
        self._context = context
        self._loop = loop
        self._output = output
        self.devices = find_devices(job, context.env)
        self._env = {**context.env, **dict(self.devices.env)}
        self._held: HeldPorts | None = None
        self._hook: Hook | None = None
        self._log_dir: LogDir | None = None
        self._unrecorded = ""  # until there is a place for it
        self._warm: WarmServer | None = None
        self._server_dirs: list[str] = []  # of this node's servers, over all attempts
        self._supervisor: Supervisor | None = None
        self._children: dict[tuple[str, int], ChildProcess] = {}
        self._lingering: Lingering | None = None  # what ended processes have left, in its grace
        self._waiting: Opened = []  # for the warm server
        self.ended: AttemptProcesses | None = None  # the latest attempt, once it has ended
        self._began_at = 0.0  # monotonic seconds, of this attempt; 0.0 until all have begun
        self._slow_note = ""
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """True while processes of this node may be alive."""
        return self._supervisor is not None

    @property
    def is_stopping(self) -> bool:
        """True once the running attempt was told to stop."""
        return self._supervisor is not None and self._supervisor.phase != "running"

    def pids(self) -> dict[str, int]:
        """The processes that run: "worker 3" -> pid."""
        alive = self._supervisor.alive if self._supervisor is not None else ()
        return {f"{c.key[0]} {c.key[1]}": c.pid for c in self._children.values() if c.key in alive}

    def processes(self) -> AttemptProcesses | None:
        """The processes of the running attempt, for another thread to look at; None without one."""
        supervisor, children = self._supervisor, tuple(self._children.values())
        if supervisor is None or not children or not self._began_at:
            return None
        return AttemptProcesses(supervisor.attempt, self._began_at, self.is_stopping, children)

    @property
    def has_unread_reports(self) -> bool:
        """True if ranks of the latest attempt have reported something that nobody has read."""
        ended = self.ended.processes if self.ended is not None else ()
        return any(child.reports is not None and child.reports.is_waiting for child in ended)

    # ------------------------------------------------------- facts and the hook

    def gather(self, address: str) -> Host:
        """This node's facts, with ports held for an attempt. Raises PaddockError."""
        self._release_ports()
        job = self.job
        host = host_of(
            job,
            self.devices,
            name=os.uname().nodename,
            address=address,
            node_rank=job.rendezvous.node_rank or 0,
        )
        allow_files(host.nprocs, job.nnodes_max if job.nnodes_max > 1 else 0)
        self._held = hold_ports((*host.ports, *(0,) * len(SERVICES)), job.port_range)
        return with_ports(host, self._held.ports)

    def _release_ports(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def prepare(self, then: Callable[[int], None]) -> None:
        """Run the user's hook, if there is one; then(its exit code), unless it is cancelled."""
        if not self.job.pre_hook:
            then(0)
            return

        def ended(code: int) -> None:
            self._hook = None
            then(code)

        self.cancel_hook()
        self._hook = Hook(self.job.pre_hook, self._env, self._loop, ended)

    def cancel_hook(self) -> None:
        """End the hook and what it started."""
        if self._hook is not None:
            self._hook.cancel()
            self._hook = None

    # --------------------------------------------------------------------- logs

    @property
    def logs(self) -> str:
        """The directory of the logs, "" before there are any."""
        return self._log_dir.path if self._log_dir is not None else ""

    @property
    def directory(self) -> str:
        """The directory of this run alone, "" before there is one."""
        return self._log_dir.directory if self._log_dir is not None else ""

    def shown_logs(self) -> str:
        """The directory shown to people, in which the logs of the latest run are linked."""
        return self._log_dir.shown if self._log_dir is not None else ""

    def record(self, text: str) -> None:
        """Append the launcher's own lines to LAUNCHER_LOG, once there are logs."""
        self._unrecorded += text
        if self._log_dir is not None and self._unrecorded:
            self._output.do(self._log_dir.appender(LAUNCHER_LOG, self._unrecorded))
            self._unrecorded = ""

    # -------------------------------------------------------------------- start

    def start(self, plan: Plan, node_rank: int) -> None:
        """Start this node's processes of an attempt. Raises PaddockError.

        Every log is open before the first process starts: a job starts whole or not at all.
        """
        assert self._supervisor is None, "one attempt at a time"
        self._plan = plan
        log_dir = self._log_dir or self._open_log_dir()
        self.events.starting(plan, node_rank)
        procs = plan.on_node(node_rank)
        self._make_environment(node_rank, log_dir)
        self._supervisor = Supervisor(
            plan.attempt,
            [(p.role, p.rank) for p in procs],
            grace_seconds=self.job.grace_seconds,
            servers=self.job.servers,
        )
        self._streams = Streams(self.job, log_dir, plan, procs, self._shared)
        opened = [(proc, self._streams.open(proc)) for proc in procs]
        workers = [(proc, ends) for proc, (_, ends) in opened if proc.role == "worker"]
        if self._warm is not None and workers:
            self._waiting = opened  # servers wait, too: they may run the same script
            self._warm.fork_workers(
                self._shared,
                [(proc, self._env_of(proc), ends) for proc, ends in workers],
                f"{log_dir.run_dir}/imports-{plan.attempt}",
                before=self._unbind_ports,
                then=lambda pids: self._spawn_all(opened, pids),
            )
        else:
            self._spawn_all(opened, {})
        self._output.do(log_dir.link)

    def _open_log_dir(self) -> LogDir:
        """Open the directory of the logs and make the warm server, once."""
        context, command = self._context, self.job.command
        self._log_dir = log_dir = LogDir(
            self.job, self._plan.uid, context.pod_name, context.run_id, context.folder
        )
        self.warning = log_dir.note
        self.record("")
        if self.job.warm != "off" and command.kind == "program":
            self.events.say("WARNING", f"not warm: {command.program} is not run by Python")
        elif self.job.warm != "off":
            from paddock.local.warm.server import WarmServer

            self._warm = WarmServer(
                self._loop,
                command,
                self._env,
                self.events.say,
                is_submitted=bool(self.job.record),
                kept=context.kept,
            )
        return log_dir

    def _make_environment(self, node_rank: int, log_dir: LogDir) -> None:
        """Make the attempt's shared variables, and the servers' directories."""
        plan = self._plan
        self._shared = shared = shared_env(
            self._env,
            self.job,
            plan,
            node_rank=node_rank,
            cores=self._context.cores,
            log_dir=log_dir.path,
            run_dir=log_dir.run_dir,
            pod_name=self._context.pod_name,
            takes_reports=os.sysconf("SC_OPEN_MAX") > REPORT_FD,
        )
        self.notes = shared.notes
        if shared.server_dir:
            log_dir.make_private(shared.server_dir)
            if shared.is_scratch:
                ranks = [p.rank for p in plan.on_node(node_rank) if p.role == "ps"]
                self._server_dirs += [f"{shared.server_dir}/server-{rank}" for rank in ranks]

    def _spawn_all(self, opened: Opened, forked: Mapping[Proc, int]) -> None:
        """Start and watch all processes; forked: pids of those that run already."""
        assert self._log_dir is not None
        was_forking, self._waiting = bool(self._waiting), []
        began_at = monotonic()
        self._unbind_ports()
        failures = [self._spawn(proc, *streams, forked.get(proc, 0)) for proc, streams in opened]
        self.ended = None
        self._began_at = began_at  # from here on processes() has all of them
        self._output.add([stream for _, (stream, _) in opened])
        for child in self._children.values():
            self._watch(child)
        from paddock.local.ending import Endings  # before one fails, and after they began

        self._endings = Endings(self.events, self._loop, self._output)
        self._log_dir.write_endpoints(self._plan)
        for failure in failures:
            if failure is not None:
                self._feed(failure)
        if self._is_paused:
            self._signal_all(SIGSTOP)
        if was_forking:
            self.reap()  # what could not be told from ranks until now

    def _unbind_ports(self) -> None:
        """Release the bound ports, so that the processes can bind them."""
        if self._held is not None:
            self._held.unbind()

    def _spawn(
        self, proc: Proc, stream: ProcessStream, ends: tuple[int, ...], pid: int = 0
    ) -> Exit | None:
        """Start a process; returns its Exit if that failed. Closes the ends that it has.

        pid: of a process that runs already, else 0.
        """
        argv = self.job.command_of(proc.role, proc.rank).argv()
        allow = self.allow_tracer if proc.role == "worker" else None
        try:
            pid = pid or spawn(argv, self._spawn_env(proc), has_stdin(proc), ends, allow)
        except OSError as error:
            return spawn_failure(proc, self._plan.attempt, error, argv[0], stream.path)
        finally:
            for write_fd in set(ends):
                os.close(write_fd)
        reports = self._streams.reports.get(stream.key)
        self._children[stream.key] = ChildProcess(proc, pid, stream, reports)
        return None

    def reap(self) -> None:
        """Reap the orphans of ranks that have ended: zombies count against the limit of processes.

        What ended as a rank or the hook keeps its pid until we have looked at it; so may each
        child while the warm server forks ranks, whose pids we do not know yet.
        """
        if self._waiting:
            return
        reap_orphans(self._pids_of_ours())

    def _pids_of_ours(self) -> set[int]:
        """The children that we have started and still ask about, ended or not."""
        pids = {child.pid for child in self._children.values()}
        pids |= self.own_pids | self._context.kept_pids
        if self._warm is not None:
            pids |= self._warm.keep
        if self._hook is not None:
            pids.add(self._hook.pid)
        return pids

    def _spawn_env(self, proc: Proc) -> dict[str, str]:
        """The variables of a process that is not forked."""
        env = self._env_of(proc)
        if self.job.debug_ranks and proc.role == "worker":
            from paddock.local.warm.process import HOOK

            env["PYTHONPATH"] = os.pathsep.join(filter(None, (HOOK, env.get("PYTHONPATH"))))
        return env

    def _env_of(self, proc: Proc) -> dict[str, str]:
        assert self._log_dir is not None
        env, backup = proc_env(self._shared, proc)
        if backup is not None:
            path, content = backup
            self._log_dir.write_private(os.path.basename(path), json_text(content))
        return env

    def _watch(self, child: ChildProcess) -> None:
        self._loop.watch(child.pidfd, READ, lambda _events: self._on_ended(child))

    def _cancel_fork(self) -> None:
        """Cancel an attempt that was stopped while the warm server imported: no process has run."""
        assert self._warm is not None
        waiting, self._waiting = self._waiting, []
        self._warm.cancel()
        for _, (_, ends) in waiting:
            for write_fd in set(ends):
                os.close(write_fd)
        self._output.add([stream for _, (stream, _) in waiting])
        for proc, (stream, _) in waiting:
            end = end_of(proc, self._plan.attempt, stream.path, signal=SIGTERM, cause="signal")
            self._feed(end)

    # ----------------------------------------------------------------- events

    def stop(self, order: Stop) -> None:
        """Stop the running attempt: SIGTERM, perhaps after before_stop(); grace period; SIGKILL.

        The signal of the order comes before SIGTERM.
        """
        if self.job.rank_commands:  # `paddock debug`: pdb takes SIGINT for itself
            order = replace(order, signal=SIGTERM)
        if self._supervisor is not None:
            self._feed(replace(order, attempt=self._supervisor.attempt))
            if self._lingering is not None:
                grace = 0.0 if order.force else order.grace_seconds
                if grace is not None:
                    self._lingering.shorten(monotonic() + grace)
            if self._waiting:
                self._cancel_fork()

    def last_notes(self) -> list[str]:
        """Notes for people, to be asked for when the job is over and nothing of it runs here.

        The servers' state stays also after success: it may be the only copy of what was learned.
        """
        assert not self.is_running
        notes = [self._slow_note] if self._slow_note else []
        log_dir = self._log_dir
        left = log_dir.remove_empty(self._server_dirs) if log_dir is not None else []
        if left:
            more = f", of earlier attempts in {len(left) - 1} beside it" if len(left) > 1 else ""
            text = f"the servers' state is kept in {left[-1]}{more}"
            notes.append(f"{text}; delete it when it is not needed")
        return notes

    def close(self) -> None:
        """End the warm server; give back ports, locks and files."""
        self._release_ports()
        if self._warm is not None:
            self._warm.close()
        if self._log_dir is not None:
            self._log_dir.close()

    def forward(self, number: int) -> None:
        """Send a signal to every process itself (not its group), as mpirun does with SIGUSR1."""
        for child in self._children.values():
            if self._supervisor is not None and child.key in self._supervisor.alive:
                os.kill(child.pid, number)

    def pause(self, *, is_paused: bool) -> None:
        """Let all that runs here stand still (Ctrl-Z), also what starts from now on, or go on."""
        self._is_paused = is_paused
        self._signal_all(SIGSTOP if is_paused else SIGCONT)

    def _signal_all(self, number: int) -> None:
        """Send a signal to the processes' groups, and to what has a group of its own below them."""
        from paddock.local.lingering import descendants, terminate

        groups = {child.pid for child in self._children.values()}
        for key in self._children:
            self._signal_group(SignalGroup(key, number))
        terminate(descendants(self._pids_of_ours() - groups), groups, number)

    def _on_ended(self, child: ChildProcess) -> None:
        self._loop.unwatch(child.pidfd)
        # WNOWAIT: the zombie keeps its pid, and with it the group id, until the attempt is over.
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        assert found is not None
        is_signal = found.si_code != os.CLD_EXITED
        end = end_of(
            child.proc,
            self._plan.attempt,
            child.stream.path,
            code=0 if is_signal else found.si_status,
            signal=found.si_status if is_signal else 0,
            cause="signal" if is_signal else "exit",
            pid=child.pid,
        )
        self._feed(end)

    def _feed(self, event: Event) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        was_running = supervisor.phase == "running"
        actions = supervisor.handle(event, monotonic())
        is_stop = was_running and supervisor.phase == "stopping"
        is_failure = (isinstance(event, Stop) and event.takes_stacks) or (
            isinstance(event, Exit) and event.pid
        )
        before_stop = self.before_stop if is_stop and is_failure else None
        if before_stop is None:
            self._do_all(actions)
            return
        # The processes of a failed attempt are signalled once their stacks were taken.
        signals = [a for a in actions if isinstance(a, SignalGroup)]
        held = [(action, self._children.get(action.key)) for action in signals]
        self._do_all([action for action in actions if action not in signals])

        def go() -> None:
            self._do_all([a for a, child in held if self._children.get(a.key) is child])

        before_stop(supervisor.reason, go)

    def _on_timer(self) -> None:
        self._feed(TimerFired())

    def _do_all(self, actions: list[Action]) -> None:
        is_asked = any(isinstance(a, SignalGroup) and a.signal != SIGKILL for a in actions)
        if is_asked and self._is_paused:
            self._signal_all(SIGCONT)  # what stands still cannot save
        if is_asked:
            actions = self._ask(actions)
        for number, action in enumerate(actions):
            if isinstance(action, KillDescendants):
                self._leave(actions[number + 1 :])
                return
            self._do(action)

    def _ask(self, actions: list[Action]) -> list[Action]:
        """Ask also what has a process group of its own to end; returns what is to be done now.

        Own servers wait for all that trainers have left: it may still save through them.
        """
        supervisor = self._supervisor
        assert supervisor is not None
        later = [
            a for a in actions if isinstance(a, SignalGroup) and supervisor.is_own_server(a.key)
        ]
        trainers = [a for a in actions if isinstance(a, SignalGroup) and a not in later]
        if trainers and self._ask_trainers(trainers[0].signal):
            actions = [a for a in actions if a not in trainers]
        if not later or not self._left_behind():
            return actions

        def signal_servers() -> None:
            if supervisor.phase == "stopping":
                for action in later:
                    self._signal_group(action)

        self._linger(supervisor.kill_at, signal_servers)
        return [a for a in actions if a not in later]

    def _ask_trainers(self, number: int) -> bool:
        """Signal what ranks have started in process groups of their own.

        Where another signal came before SIGTERM, or a filter reads what ranks print, all that
        descends from ranks, and return True.
        """
        from paddock.local.lingering import ask, descendants, find_filters, terminate

        supervisor = self._supervisor
        assert supervisor is not None
        groups = {child.pid for child in self._children.values()}
        servers = {c.pid for c in self._children.values() if supervisor.is_own_server(c.key)}
        family = descendants(self._pids_of_ours() - groups | servers)
        filters = find_filters(family, supervisor.first_signal)
        if supervisor.first_signal == SIGTERM and not filters:
            terminate(family, groups)
            return False
        ask(family, number, supervisor.first_signal, filters)
        return True

    def _left_behind(self) -> list[int]:
        """The living processes whose parents, below our own processes, have ended."""
        from paddock.local.lingering import living_children

        return living_children(self._pids_of_ours())

    def _linger(self, until: float, then: Callable[[], None]) -> None:
        """Wait for the end of all that is left behind, not longer than that; then go on."""
        from paddock.local.lingering import Lingering

        if self._lingering is not None:
            self._lingering.cancel()
        self._lingering = Lingering(self._loop, self._left_behind, until, then)

    def _leave(self, then: list[Action]) -> None:
        """End what the processes, which all have ended, left behind: after its grace."""
        supervisor = self._supervisor
        assert supervisor is not None
        has_signalled = supervisor.has_signalled

        def sweep() -> None:
            self._lingering = None
            self._sweep(then)

        def ask_again() -> None:
            self._ask_trainers(SIGTERM)

        if not supervisor.grace_until or not self._left_behind():
            if self._lingering is not None:
                self._lingering.cancel()
            sweep()
            return
        if not has_signalled:  # the last process failed, so nothing was signalled
            for key in supervisor.keys:
                self._signal_group(SignalGroup(key, SIGTERM))
            self._ask_trainers(SIGTERM)
        if supervisor.terminate_at:
            self._loop.at("node", supervisor.terminate_at, ask_again)
        self._linger(supervisor.grace_until, sweep)

    def _do(self, action: Action) -> None:
        if isinstance(action, SignalGroup):
            self._signal_group(action)
        elif isinstance(action, SetTimer):
            self._loop.at("node", action.at, self._on_timer)
        elif isinstance(action, ReportExit):
            child = self._children.get((action.exit.role, action.exit.rank))
            if child is None:  # it has not run
                self.events.exited(action.exit)
            else:
                self._endings.report(action.exit, child.stream)
        elif isinstance(action, RestartServer):
            self._restart_server(action.exit, action.count)
        elif isinstance(action, ServerGivenUp):
            why = f"not restarted: {self._budget_text()} are used up"
            self.events.say("WARNING", f"{self._end_text(action.exit)}; {why}")
        elif isinstance(action, AttemptEnded):
            self._end(action.attempt)

    def _signal_group(self, action: SignalGroup) -> None:
        child = self._children.get(action.key)
        if child is None:
            return
        try:
            os.killpg(child.pid, action.signal)
        except ProcessLookupError:
            return  # the group is empty
        except PermissionError:
            self.events.say("WARNING", f"may not signal {child.proc.name} (pid {child.pid})")

    def _restart_server(self, exit_: Exit, number: int) -> None:
        """Restart a server that Paddock provides in place: same ports, same data, same log."""
        old = self._children[(exit_.role, exit_.rank)]
        # What it left in its group may hold its port and its data.
        self._signal_group(SignalGroup(old.key, SIGKILL))
        del self._children[old.key]
        os.close(old.pidfd)
        os.waitpid(old.pid, 0)
        self._output.drain([old.stream])
        self.server_restarts += 1
        text = f"restarted in place, {number} of {self._budget_text()}"
        self.events.say("WARNING", f"{self._end_text(exit_)}; {text}; the ranks go on")
        stream, ends = self._streams.open(old.proc, self.server_restarts)
        failure = self._spawn(old.proc, stream, ends)
        self._output.add([stream])
        if failure is not None:
            self._feed(failure)
        else:
            self._watch(self._children[old.key])

    def _end_text(self, exit_: Exit) -> str:
        exit_ = self._endings.with_oom(exit_)
        log = f" (log: {exit_.log})" if exit_.code else ""
        return f"{exit_.name} on {exit_.host} (pid {exit_.pid}) {exit_.how}{log}"

    def _budget_text(self) -> str:
        servers = self.job.servers
        times = count(servers.max_restarts, "restart")
        return f"{times} in {servers.window_seconds / 60:g} minutes (--server-restarts)"

    # -------------------------------------------------------------------- end

    def _sweep(self, then: list[Action]) -> None:
        """Reap the processes of the attempt and kill whatever they left behind, then go on."""
        for child in self._children.values():
            if child.pidfd >= 0:
                os.close(child.pidfd)

        def done(killed: int) -> None:
            if killed and self._children:  # else they are of a warm server that forks no more
                what = count(killed, "process", "processes")
                self.events.say("INFO", f"ended {what} the job had left behind")
            self._do_all(then)

        keep = self._warm.keep if self._warm else frozenset()
        sweep_on(self._loop, done, keep, self.own_pids)

    def _note_slow_start(self, attempt: int) -> None:
        """Note that --warm would have saved time: ranks were silent for long in a restart.

        A first start gains little by it, and is no reason to speak.
        """
        if attempt == 0 or self.job.warm != "off" or self.job.command.kind == "program":
            return
        ranks = [c for c in self._children.values() if c.proc.role == "worker"]
        first = min((c.stream.first_at for c in ranks if c.stream.first_at), default=0.0)
        seconds = first - self._began_at
        if seconds >= SLOW_SECONDS:
            self._slow_note = (
                f"attempt {attempt} printed nothing for its first {seconds:.0f} s; if its ranks "
                "were importing modules, --warm on makes restarts faster"
            )

    def _end(self, attempt: int) -> None:
        streams = [c.stream for c in self._children.values()]
        self.ended = self.processes()
        self._note_slow_start(attempt)
        self._began_at = 0.0
        self._children.clear()
        self._streams.reports.clear()
        self._loop.at("node", None, self._on_timer)
        is_done = False

        def done() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._loop.at("drain", None, done)
                self._supervisor = None
                self.events.stopped(attempt)

        # Reports posted before are read first: the output thread works in order.
        self._loop.at("drain", monotonic() + DRAIN_SECONDS, done)
        self._output.drain(streams, lambda: self._loop.post(done))
