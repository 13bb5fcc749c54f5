"""A member: this node's part in a job, whoever coordinates it.

Takes the coordinator's orders, starts and stops this node's processes, reports back, and tells
the people at this node what happens.
"""

from __future__ import annotations

from paddock.agent.coordinator import job_shape
from paddock.agent.messages import (
    AllStopped,
    Began,
    Begin,
    CannotRun,
    Facts,
    Halt,
    Leave,
    Over,
    ProcEnded,
    Said,
    Turned,
)
from paddock.core.plan import make_plan
from paddock.errors import PaddockError, problem_text
from paddock.local.logs import LogDir
from paddock.local.node import Node
from paddock.local.probe import find_devices, gather_host
from paddock.local.text import (
    count,
    detail_lines,
    job_line,
    launch_line,
    servers_lines,
    verdict_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.agent.messages import ToCoordinator, ToMember
    from paddock.core.exits import Exit
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.core.policy import Verdict
    from paddock.local.hook import Hook
    from paddock.local.loop import Loop
    from paddock.local.output import Output


class Member:
    """This node's part. Owned by the loop's thread.

    send: how to reach the coordinator. on_over(exit_code): this node has ended its part.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        output: Output,
        *,
        env: Mapping[str, str],
        pod_name: str,
        on_over: Callable[[int], None],
        level: int = 20,
    ) -> None:
        self.job = job
        self.address = ""
        self.plan: Plan | None = None
        self.exit_code: int | None = None
        self.resign: Callable[[], bool] | None = None
        self._loop = loop
        self._output = output
        self._devices = find_devices(job, env)
        self._env = {**env, **dict(self._devices.env)}
        self._pod_name = pod_name
        self._on_over = on_over
        self._level = level
        self._send: Callable[[ToCoordinator], None] | None = None
        self._translate: Callable[[Exit], Exit] = lambda exit_: exit_
        self._node: Node | None = None
        self._log_dir: LogDir | None = None
        self._host: Host | None = None
        self._held = None
        self._node_rank = 0
        self._signals = 0
        self._verdict: Verdict | None = None
        self._notes_said = False
        self._hook: Hook | None = None

    # ---------------------------------------------------------------- the link

    def connect(
        self,
        send: Callable[[ToCoordinator], None],
        address: str,
        *,
        translate: Callable[[Exit], Exit] | None = None,
    ) -> None:
        """Join over this link with this node's facts; the others reach it by ``address``."""
        self._send = send
        self._translate = translate or (lambda exit_: exit_)
        self.address = address
        host = self._gather()
        rendezvous = self.job.rendezvous
        key = f"{host.name}/{self._pod_name}"
        send(Facts(host, key, rendezvous.node_rank, job_shape(self.job)))

    def disconnect(self) -> None:
        """The link is gone; reports have nowhere to go until the next connect."""
        self._send = None
        self._cancel_hook()

    def tell(self, message: ToCoordinator) -> None:
        """Send if there is a link."""
        if self._send is not None:
            self._send(message)

    def _gather(self) -> Host:
        self.release_ports()
        node_rank = self.job.rendezvous.node_rank or 0
        self._host, self._held = gather_host(  # type: ignore[assignment]  # HeldPorts, from None
            self.job, self._devices, self.address, node_rank=node_rank
        )
        assert self._host is not None
        return self._host

    def release_ports(self) -> None:
        """Give back the ports held for an attempt."""
        if self._held is not None:
            self._held.release()  # type: ignore[unreachable]  # set in _gather
            self._held = None

    # -------------------------------------------------------------- the orders

    def receive(self, message: ToMember) -> None:
        """Carry out an order of the coordinator."""
        if isinstance(message, Begin):
            self._after_hook(message)
        elif isinstance(message, Halt):
            self._cancel_hook()
            if not self.is_running and self._host is not None:
                self.tell(AllStopped(message.attempt, self._host))
            self.halt(message.reason, hurry=message.hurry, grace_seconds=message.grace_seconds)
        elif isinstance(message, Over):
            self._cancel_hook()
            self._over(message.verdict)
        elif isinstance(message, Turned):
            self._turned(message)
        elif isinstance(message, Said):
            self._said(message)

    def _said(self, message: Said) -> None:
        if message.culprit is None:
            self.say("INFO", message.text)
        else:
            self.say_all([("WARNING", message.text), *detail_lines(message.culprit)])

    @property
    def is_running(self) -> bool:
        """True while processes of this node may be alive."""
        return self._node is not None and self._node.is_running

    def halt(self, reason: str, *, hurry: bool = False, grace_seconds: float | None = None) -> None:
        """Stop this node's processes."""
        if self._node is not None and self._node.is_running:
            if not self._node.is_stopping:
                attempt = self.plan.attempt if self.plan else 0
                self.say("INFO", f"stopping attempt {attempt}: {reason}")
            self._node.stop(reason, hurry=hurry, grace_seconds=grace_seconds)

    def _after_hook(self, order: Begin) -> None:
        """Run the user's hook first, if there is one; an order to stop ends it."""
        if not self.job.pre_hook:
            self._begin(order)
            return
        from paddock.local.hook import Hook

        def ended(code: int) -> None:
            self._hook = None
            if code:
                self.say("WARNING", f"--elastic_pre_hook ended with {code}; starting all the same")
            self._begin(order)

        self._cancel_hook()
        self._hook = Hook(self.job.pre_hook, self._env, self._loop, ended)

    def _cancel_hook(self) -> None:
        if self._hook is not None:
            self._hook.cancel()
            self._hook = None

    def _begin(self, order: Begin) -> None:
        try:
            plan = make_plan(self.job, order.hosts, order.attempt, order.uid)
            node = self._ready_node(order.uid)
        except PaddockError as error:
            self._fail(error)
            return
        self.plan = plan
        self._node_rank = order.node_rank
        if self._held is not None:
            self._held.unbind()  # type: ignore[unreachable]  # set in _gather
        replicas = len(plan.on_node(order.node_rank))
        try:
            node.start(plan, order.node_rank)
        except PaddockError as error:
            self._fail(error)
            return
        lines = [job_line(plan, self.job.is_elastic)]
        if not self._notes_said:
            self._notes_said = True
            if self._log_dir is not None and self._log_dir.note:
                self.say("WARNING", self._log_dir.note)
            lines += node.notes
        if self.job.servers.is_provided and order.node_rank == 0:
            lines += servers_lines(plan)
        lines.append(f"Run Pod: {self._pod_name}, replicas {replicas}, status ready")
        lines.append(f"Watching Pod: {self._pod_name}, replicas {replicas}, status running")
        self.say_all([("INFO", line) for line in lines])
        if plan.nnodes > 1:
            from zlib import crc32

            from paddock.core.plan import plan_bytes

            self.tell(Began(order.attempt, crc32(plan_bytes(plan))))

    def _fail(self, error: PaddockError) -> None:
        self._output.say(problem_text(error))
        self.exit_code = error.exit_code
        self.tell(CannotRun(error.message, error.exit_code))
        self.end(error.exit_code)

    def _ready_node(self, uid: str) -> Node:
        if self._node is None:
            self._log_dir = LogDir(self.job, uid, self._pod_name)
            self._node = Node(
                self.job,
                self._loop,
                self._output,
                env=self._env,
                pod_name=self._pod_name,
                log_dir=self._log_dir,
                on_exit=lambda exit_: self.tell(ProcEnded(self._translate(exit_))),
                on_stopped=self._on_stopped,
                on_note=lambda text: self.say("WARNING", text),
            )
        return self._node

    def _on_stopped(self, attempt: int) -> None:
        if self._verdict is not None:
            self._over(self._verdict)
            return
        if self._send is None:
            return
        try:
            host = self._gather()
        except PaddockError as error:
            self._fail(error)
            return
        self.tell(AllStopped(attempt, host))

    def _over(self, verdict: Verdict) -> None:
        self._verdict = verdict
        if self.exit_code is not None:
            return  # this node has told its own story already
        if self.is_running:
            self.halt(verdict.reason)
            return
        if self._node is not None and self._node.server_restarts:
            times = count(self._node.server_restarts, "time")
            self.say("INFO", f"servers of this node were started again in place {times}")
        self.say_all(verdict_lines(verdict, self.plan, self._node_rank))
        kept = self._node.tell_state() if self._node is not None else ""
        if kept:
            self.say("INFO", kept)
        self.end(verdict.exit_code)

    def _turned(self, message: Turned) -> None:
        self._output.say(
            problem_text(
                PaddockError(message.message, hint=message.hint, exit_code=message.exit_code)
            )
        )
        self.end(message.exit_code)

    def give_up(self, error: PaddockError) -> None:
        """End this node's part by its own decision (coordinator gone, ...)."""
        if self._verdict is None:
            from paddock.core.policy import Verdict

            self._verdict = Verdict("fail", error.exit_code, "")
            self.say("ERROR", str(error))
        if not self.is_running:
            self._over(self._verdict)

    def end(self, exit_code: int) -> None:
        """This node's part is over."""
        if self.exit_code is None or self.exit_code == 0:
            self.exit_code = exit_code
        self._on_over(self.exit_code)

    def forward(self, number: int) -> None:
        """Pass a signal that means nothing to a launcher on to the processes."""
        if self._node is not None:
            self._node.forward(number)

    def on_signal(self, number: int) -> None:
        """The launcher was told to end. The first time asks everyone, the second kills here."""
        self._signals += 1
        if self._signals == 1:
            self.say("INFO", f"Terminating with signal {number}")
            if self.is_running:
                grace = f"{self.job.grace_seconds:g} s"
                self.say("INFO", f"processes have {grace} to save (--grace); ask again to kill now")
            if self.resign is not None and self.resign():
                self.exit_code = 128 + number
                return
            self.tell(Leave(number, False))
        else:
            self.say("INFO", "asked again: killing every process now")
            self.halt("asked twice", hurry=True)
            self.tell(Leave(number, True))
        if self._send is None:
            self.give_up(PaddockError("stopped before the job began", exit_code=128 + number))

    # ------------------------------------------------------------------- words

    def say(self, level: str, text: str) -> None:
        """One LAUNCH line, if the log level lets it through."""
        self.say_all([(level, text)])

    def say_all(self, lines: list[tuple[str, str]]) -> None:
        """Several LAUNCH lines in one write."""
        numbers = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
        text = "".join(launch_line(lv, t) for lv, t in lines if numbers[lv] >= self._level)
        if text:
            self._output.say(text)

    def close(self) -> None:
        """Give back ports, locks and files."""
        self.release_ports()
        if self._log_dir is not None:
            self._log_dir.close()
