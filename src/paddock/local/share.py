"""This node's share of a job: devices, ports, hook, logs and processes, behind one name.

What a member (member.py) orders; tests/sim has the same with made-up processes.
"""

from __future__ import annotations

import os

from paddock.core.hosts import SERVICES, host_of, with_ports
from paddock.local.devices import find_devices
from paddock.local.hook import Hook
from paddock.local.limits import allow_files
from paddock.local.logs import LAUNCHER_LOG, LogDir
from paddock.local.node import Node
from paddock.local.ports import hold_ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.core.exits import Exit
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.local.loop import Loop
    from paddock.local.output import Output
    from paddock.local.ports import HeldPorts
    from paddock.local.warm.kept import Kept


class Share:
    """Owned by the loop's thread.

    on_exit(exit), on_stopped(attempt), on_note(level, text): as of local/node.py; on_ready(plan,
    node rank): the processes of an attempt are started next. The member sets them.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        output: Output,
        env: Mapping[str, str],
        pod_name: str,
        kept: Kept | None = None,
        run_id: str = "",
        spare: str = "",
    ) -> None:
        """Looks for devices, once. run_id, spare: as of LogDir. Raises UsageError."""
        self.on_exit: Callable[[Exit], None] = lambda _exit: None
        self.on_stopped: Callable[[int], None] = lambda _attempt: None
        self.on_ready: Callable[[Plan, int], None] = lambda _plan, _node_rank: None
        self.on_note: Callable[[str, str], None] = lambda _level, _text: None
        self.notes: tuple[str, ...] = ()  # about the latest start, for people
        self.warning = ""
        self._job = job
        self._loop = loop
        self._output = output
        self._devices = find_devices(job, env)
        self._env = {**env, **dict(self._devices.env)}
        self._pod_name = pod_name
        self._run_id, self._spare = run_id, spare
        self._node: Node | None = None
        self._log_dir: LogDir | None = None
        self._held: HeldPorts | None = None
        self._hook: Hook | None = None
        self._kept = kept
        self.own_pids: set[int] = set()  # children of ours that are no part of the job
        self._unrecorded = ""  # until there is a place for it

    @property
    def is_running(self) -> bool:
        """True while processes of this node may be alive."""
        return self._node is not None and self._node.is_running

    @property
    def is_stopping(self) -> bool:
        """True once they were told to end."""
        return self._node is not None and self._node.is_stopping

    def gather(self, address: str) -> Host:
        """This node's facts, with ports held for an attempt. Raises PaddockError."""
        self.release_ports()
        job = self._job
        host = host_of(
            job,
            self._devices,
            name=os.uname().nodename,
            address=address,
            node_rank=job.rendezvous.node_rank or 0,
        )
        allow_files(host.nprocs, job.nnodes_max if job.nnodes_max > 1 else 0)
        self._held = hold_ports((*host.ports, *(0,) * len(SERVICES)), job.port_range)
        return with_ports(host, self._held.ports)

    def release_ports(self) -> None:
        """Give back the ports held for an attempt."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def prepare(self, then: Callable[[int], None]) -> None:
        """Run the user's hook, if there is one; then(its exit code), unless it is cancelled."""
        if not self._job.pre_hook:
            then(0)
            return

        def ended(code: int) -> None:
            self._hook = None
            then(code)

        self.cancel_hook()
        self._hook = Hook(self._job.pre_hook, self._env, self._loop, ended)

    def cancel_hook(self) -> None:
        """End the hook and what it started."""
        if self._hook is not None:
            self._hook.cancel()
            self._hook = None

    def start(self, plan: Plan, node_rank: int) -> None:
        """Start this node's processes of an attempt. Raises PaddockError."""
        node = self._node or self._make_node(plan.uid)
        log_dir = node.log_dir
        self.on_ready(plan, node_rank)
        held = self._held
        node.start(plan, node_rank, held.unbind if held is not None else lambda: None)
        self._output.do(log_dir.link)
        self.notes = node.notes

    def _make_node(self, uid: str) -> Node:
        self._log_dir = LogDir(self._job, uid, self._pod_name, self._run_id, self._spare)
        self.warning = self._log_dir.note
        self.record("")
        self._node = Node(
            self._job,
            self._loop,
            self._output,
            env=self._env,
            pod_name=self._pod_name,
            log_dir=self._log_dir,
            on_exit=lambda exit_: self.on_exit(exit_),
            on_stopped=lambda attempt: self.on_stopped(attempt),
            on_note=lambda level, text: self.on_note(level, text),
            kept=self._kept,
            own_pids=self.own_pids,
        )
        return self._node

    @property
    def logs(self) -> str:
        """Where the logs are, "" before there are any."""
        return self._log_dir.path if self._log_dir is not None else ""

    @property
    def directory(self) -> str:
        """Of this run alone, "" before there is one."""
        return self._log_dir.directory if self._log_dir is not None else ""

    @property
    def shown_logs(self) -> str:
        """Where people look for the logs: those of the latest run are linked there."""
        return self._log_dir.shown if self._log_dir is not None else ""

    def record(self, text: str) -> None:
        """Keep what the launcher says in LAUNCHER_LOG, once there are logs."""
        self._unrecorded += text
        if self._log_dir is not None and self._unrecorded:
            self._output.do(self._log_dir.appender(LAUNCHER_LOG, self._unrecorded))
            self._unrecorded = ""

    def stop(self, reason: str, *, hurry: bool, grace_seconds: float | None) -> None:
        """SIGTERM, grace, SIGKILL; hurry: SIGKILL at once."""
        if self._node is not None:
            self._node.stop(reason, hurry=hurry, grace_seconds=grace_seconds)

    def forward(self, number: int) -> None:
        """Pass a signal that means nothing to a launcher on to the processes."""
        if self._node is not None:
            self._node.forward(number)

    def pids(self) -> dict[str, int]:
        """The processes that run: "worker 3" -> pid."""
        return self._node.pids() if self._node is not None else {}

    @property
    def server_restarts(self) -> int:
        """How often servers were started again in place."""
        return self._node.server_restarts if self._node is not None else 0

    def last_notes(self) -> list[str]:
        """What people should know when the job is over."""
        return self._node.last_notes() if self._node is not None else []

    def close(self) -> None:
        """Give back ports, locks and files."""
        self.release_ports()
        if self._node is not None:
            self._node.close()
        if self._log_dir is not None:
            self._log_dir.close()
