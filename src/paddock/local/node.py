"""One node's share of a job: starts its processes, watches them, carries out the supervisor.

Processes are started with posix_spawn (vfork-cheap), each in its own process group, and watched
through pidfds: the kernel wakes the loop, nothing is polled. An ended process stays unreaped
until its attempt is over, so that its process group id cannot be reused under us.
"""

from __future__ import annotations

import os
from time import monotonic, monotonic_ns

from paddock.contracts.environment import common_env, proc_env, shared_env
from paddock.core.exits import Exit
from paddock.core.supervisor import (
    SIGKILL,
    Ended,
    NotAgain,
    Report,
    SetTimer,
    SignalGroup,
    StartAgain,
    StopOrdered,
    Supervisor,
    Sweep,
    TimerFired,
)
from paddock.local.ending import Endings
from paddock.local.limits import usable_cores
from paddock.local.logs import LogDir
from paddock.local.loop import READ, Loop
from paddock.local.spawn import Child, open_pidfd, spawn, spawn_failure, stopped_before_start
from paddock.local.streams import Streams
from paddock.local.sweep import sweep_on
from paddock.local.text import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from paddock.contracts.environment import SharedEnv
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.core.supervisor import Action, Event
    from paddock.local.output import Output, Stream
    from paddock.local.warm.kept import Kept
    from paddock.local.warm.server import WarmServer

    Opened = list[tuple[Proc, tuple[Stream, tuple[int, int]]]]

DRAIN_SECONDS = 5.0
SLOW_SECONDS = 5.0  # of a restart, until the first line of any rank


class Node:
    """The processes of this node. Owned by the loop's thread.

    on_exit(exit): a process ended; times on this host's monotonic clock.
    on_stopped(attempt): all processes of the attempt, and what they left behind, are gone.
    on_note(level, text): something the people at this node should know.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        output: Output,
        *,
        env: Mapping[str, str],
        pod_name: str,
        log_dir: LogDir,
        on_exit: Callable[[Exit], None],
        on_stopped: Callable[[int], None],
        on_note: Callable[[str, str], None],
        kept: Kept | None = None,
        own_pids: Set[int] = frozenset(),
    ) -> None:
        """kept: what the launch before has left (--warm keep). own_pids: not to be swept."""
        self._own_pids = own_pids
        self.job = job
        self.log_dir = log_dir
        self.pod_name = pod_name
        self.notes: tuple[str, ...] = ()
        self._loop = loop
        self._output = output
        self._env = env
        self._endings = Endings(loop, output, on_exit)
        self._on_stopped = on_stopped
        self._on_note = on_note
        self.server_restarts = 0
        self._state: list[str] = []  # directories of this node's servers, over all attempts
        self._supervisor: Supervisor | None = None
        self._children: dict[tuple[str, int], Child] = {}
        self._plan: Plan | None = None
        self._shared: SharedEnv | None = None
        self._streams: Streams | None = None
        self._warm = self._make_warm(kept) if job.warm != "off" else None
        self._waiting: Opened = []  # for the warm server
        self._began_at = 0.0  # monotonic seconds, of this attempt
        self._slow_note = ""

    @property
    def is_running(self) -> bool:
        """True while an attempt's processes may be alive."""
        return self._supervisor is not None

    @property
    def is_stopping(self) -> bool:
        """True once the running attempt was told to stop."""
        return self._supervisor is not None and self._supervisor.phase != "running"

    # ------------------------------------------------------------------ start

    def pids(self) -> dict[str, int]:
        """The processes that run: "worker 3" -> pid."""
        alive = self._supervisor.alive if self._supervisor is not None else ()
        return {f"{c.key[0]} {c.key[1]}": c.pid for c in self._children.values() if c.key in alive}

    def start(self, plan: Plan, node_rank: int, unbind: Callable[[], None]) -> None:
        """Start this node's processes of an attempt. unbind: lets them have their ports."""
        assert self._supervisor is None, "one attempt at a time"
        procs = plan.on_node(node_rank)
        shared = shared_env(
            self._env,
            self.job,
            plan,
            node_rank=node_rank,
            cores=usable_cores(),
            log_dir=self.log_dir.path,
            run_dir=self.log_dir.run_dir,
            pod_name=self.pod_name,
        )
        self.notes = shared.notes
        self._plan, self._shared = plan, shared
        if shared.server_dir:
            self.log_dir.make_private(shared.server_dir)
            if shared.is_scratch:
                ranks = [p.rank for p in procs if p.role == "ps"]
                self._state += [f"{shared.server_dir}/server-{rank}" for rank in ranks]
        keys = [(p.role, p.rank) for p in procs]
        self._supervisor = Supervisor(
            plan.attempt, keys, grace_seconds=self.job.grace_seconds, servers=self.job.servers
        )
        self._streams = Streams(self.job, self.log_dir, plan, procs, shared.error_files)
        # Every log is open before the first process starts: a job starts whole or not at all.
        opened = [(proc, self._streams.open(proc)) for proc in procs]
        if self._warm is None:
            self._begin(opened, {}, unbind)
        else:
            self._fork(opened, unbind)

    def _begin(
        self, opened: Opened, forked: Mapping[Proc, int], unbind: Callable[[], None]
    ) -> None:
        """Start all; forked: pids of those that run already."""
        assert self._plan is not None
        self._began_at = monotonic()
        unbind()
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        tried = [
            self._start_one(proc, null, *streams, forked.get(proc, 0)) for proc, streams in opened
        ]
        os.close(null)
        self._output.add([stream for _, (stream, _) in opened])
        for child in self._children.values():
            self._watch(child)
        self._endings.begin()
        self.log_dir.write_endpoints(self._plan)
        for failure in tried:
            if failure is not None:
                self._feed(failure)

    def _start_one(
        self, proc: Proc, null: int, stream: Stream, ends: tuple[int, int], pid: int = 0
    ) -> Exit | None:
        """Start a process; why that failed, or None. Closes the write ends of its output.

        pid: of one that runs already.
        """
        assert self._plan is not None and self._shared is not None
        argv = self.job.command_of(proc.role).argv()
        try:
            pid = pid or spawn(argv, self._env_of(proc), 0 if _has_stdin(proc) else null, *ends)
        except OSError as error:
            return spawn_failure(proc, self._plan.attempt, error, argv[0], stream.path)
        finally:
            for write_fd in set(ends):
                os.close(write_fd)
        self._children[(proc.role, proc.rank)] = Child(proc, pid, open_pidfd(pid), stream)
        return None

    def _env_of(self, proc: Proc) -> dict[str, str]:
        assert self._shared is not None
        env = proc_env(self._shared, proc)
        if env.backup is not None:
            self._write_backup(*env.backup)
        return env.env

    # ------------------------------------------------------------- warm start

    def _make_warm(self, kept: Kept | None) -> WarmServer | None:
        if self.job.command.kind == "program":
            self._on_note("WARNING", f"not warm: {self.job.command.program} is not run by Python")
            return None
        from paddock.local.warm.server import WarmServer

        return WarmServer(
            self._loop,
            self.job.command,
            self._env,
            self._on_note,
            is_submitted=bool(self.job.record),
            kept=kept,
        )

    def _fork(self, opened: Opened, unbind: Callable[[], None]) -> None:
        """Have the warm server fork the workers; start the others with them.

        Servers may run the same script, and set other variables there before its imports.
        """
        assert self._warm is not None and self._shared is not None and self._plan is not None
        from paddock.local.warm.server import Order

        orders: list[Order] = []
        mine = [each for each in opened if each[0].role == "worker"]
        if not mine:
            self._begin(opened, {}, unbind)
            return
        for proc, (_, ends) in mine:
            learn = "" if orders else f"{self.log_dir.run_dir}/imports-{self._plan.attempt}"
            orders.append(Order(self._env_of(proc), _has_stdin(proc), *ends, learn))
        common, differing = common_env(self._shared, [order.env for order in orders])

        def forked(pids: Sequence[int] | None) -> None:
            self._waiting = []
            found = {} if pids is None else dict(zip((proc for proc, _ in mine), pids, strict=True))
            self._begin(opened, found, unbind)

        is_first = _has_stdin(mine[0][0]) and self._plan.mode == "collective"
        ports = self._plan.service_ports if is_first else ()
        self._waiting = opened
        self._warm.fork(common, differing, orders, ports=ports, before=unbind, then=forked)

    def _never_began(self) -> None:
        """Stopped while the warm server was importing: nothing of the attempt has run."""
        assert self._warm is not None and self._plan is not None
        waiting, self._waiting = self._waiting, []
        self._warm.cancel()
        for _, (_, ends) in waiting:
            for write_fd in set(ends):
                os.close(write_fd)
        self._output.add([stream for _, (stream, _) in waiting])
        for proc, (stream, _) in waiting:
            self._feed(stopped_before_start(proc, self._plan.attempt, stream.path))

    def _write_backup(self, path: str, content: dict[str, str]) -> None:
        import json

        self.log_dir.write_private(os.path.basename(path), json.dumps(content))

    def _watch(self, child: Child) -> None:
        self._loop.watch(child.pidfd, READ, lambda _events: self._on_ended(child))

    # ----------------------------------------------------------------- events

    def stop(self, reason: str, *, hurry: bool = False, grace_seconds: float | None = None) -> None:
        """Stop the running attempt: SIGTERM, grace, SIGKILL. hurry: SIGKILL at once."""
        if self._supervisor is not None:
            order = StopOrdered(self._supervisor.attempt, reason, hurry, grace_seconds)
            self._feed(order)
            if self._waiting:
                self._never_began()

    def last_notes(self) -> list[str]:
        """What people should know. To be called when the job is over and nothing of it runs here.

        The servers' state stays also after success: it may be the only copy of what was learned.
        """
        assert not self.is_running
        notes = [self._slow_note] if self._slow_note else []
        left = self.log_dir.remove_empty(self._state)
        if left:
            more = f", of earlier attempts in {len(left) - 1} beside it" if len(left) > 1 else ""
            text = f"the servers' state is kept in {left[-1]}{more}"
            notes.append(f"{text}; delete it when it is not needed")
        return notes

    def close(self) -> None:
        """End what outlives an attempt. To be called when the job is over."""
        if self._warm is not None:
            self._warm.close()

    def forward(self, number: int) -> None:
        """Send a signal to every process itself (not its group), as mpirun does with SIGUSR1."""
        for child in self._children.values():
            if self._supervisor is not None and child.key in self._supervisor.alive:
                os.kill(child.pid, number)

    def _on_ended(self, child: Child) -> None:
        at_ns = monotonic_ns()
        self._loop.unwatch(child.pidfd)
        # WNOWAIT: the zombie keeps its pid, and with it the group id, until the attempt is over.
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        assert found is not None and self._supervisor is not None
        is_signal = found.si_code != os.CLD_EXITED
        exit_ = Exit(
            role=child.proc.role,
            rank=child.proc.rank,
            node_rank=child.proc.node_rank,
            host=child.proc.host,
            attempt=self._supervisor.attempt,
            at_ns=at_ns,
            code=0 if is_signal else found.si_status,
            signal=found.si_status if is_signal else 0,
            cause="signal" if is_signal else "exit",
            pid=child.pid,
            log=child.stream.path,
        )
        self._feed(exit_)

    def _feed(self, event: Event) -> None:
        if self._supervisor is not None:
            self._do_all(self._supervisor.handle(event, monotonic()))

    def _do_all(self, actions: list[Action]) -> None:
        for number, action in enumerate(actions):
            if isinstance(action, Sweep):
                self._sweep(actions[number + 1 :])
                return
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, SignalGroup):
            self._signal_group(action)
        elif isinstance(action, SetTimer):
            self._loop.at("node", action.at, lambda: self._feed(TimerFired()))
        elif isinstance(action, Report):
            child = self._children.get((action.exit.role, action.exit.rank))
            self._endings.report(action.exit, None if child is None else child.stream)
        elif isinstance(action, StartAgain):
            self._start_again(action.exit, action.count)
        elif isinstance(action, NotAgain):
            why = f"not restarted: {self._budget_text()} are used up"
            self._on_note("WARNING", f"{self._end_text(action.exit)}; {why}")
        elif isinstance(action, Ended):
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
            self._on_note("WARNING", f"may not signal {child.proc.name} (pid {child.pid})")

    def _start_again(self, exit_: Exit, number: int) -> None:
        """Start a server that Paddock provides once more: same place, same data, same log."""
        assert self._plan is not None and self._streams is not None
        old = self._children[(exit_.role, exit_.rank)]
        # What it left in its group may hold its port and its data.
        self._signal_group(SignalGroup(old.key, SIGKILL))
        del self._children[old.key]
        os.close(old.pidfd)
        os.waitpid(old.pid, 0)
        self._output.drain([old.stream], lambda: None)
        self.server_restarts += 1
        text = f"restarted in place, {number} of {self._budget_text()}"
        self._on_note("WARNING", f"{self._end_text(exit_)}; {text}; the ranks go on")
        stream, ends = self._streams.open(old.proc, self.server_restarts)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        failure = self._start_one(old.proc, null, stream, ends)
        os.close(null)
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
        return f"{times} in {servers.window_seconds / 60:g} minutes (--server_restarts)"

    # -------------------------------------------------------------------- end

    def _sweep(self, then: list[Action]) -> None:
        """Reap the processes of the attempt and kill whatever they left behind, then go on."""
        for child in self._children.values():
            if child.pidfd >= 0:
                os.close(child.pidfd)

        def done(killed: int) -> None:
            if killed and self._children:  # else they are of a warm server that forks no more
                what = count(killed, "process", "processes")
                self._on_note("INFO", f"ended {what} the job had left behind")
            self._do_all(then)

        keep = self._warm.keep if self._warm else frozenset()
        sweep_on(self._loop, done, keep, self._own_pids)

    def _note_slow_start(self, attempt: int) -> None:
        """Tell of --warm where it would have saved time: ranks were silent for long in a restart.

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
        self._note_slow_start(attempt)
        self._children.clear()
        self._loop.at("node", None, lambda: None)
        is_done = False

        def done() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._loop.at("drain", None, lambda: None)
                self._supervisor = None
                self._on_stopped(attempt)

        # Reports posted before are read first: the output thread works in order.
        self._loop.at("drain", monotonic() + DRAIN_SECONDS, done)
        self._output.drain(streams, lambda: self._loop.post(done))


def _has_stdin(proc: Proc) -> bool:
    return proc.role == "worker" and proc.rank == 0
