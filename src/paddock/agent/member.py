"""A member: this node's part in a job, whichever node leads it.

Takes the coordinator's orders, has this node's processes started and stopped (local/node.py),
reports back, and tells the people at this node what happens.
"""

from __future__ import annotations

from paddock.core.attempt.exits import Exit, add_or_amend
from paddock.core.attempt.policy import Verdict
from paddock.core.plan import make_plan
from paddock.core.rendezvous import messages
from paddock.core.value import replace
from paddock.errors import EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, PaddockError
from paddock.jobfile.flags import config_fingerprint
from paddock.local.report.text import count, servers_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.local.loop import Loop
    from paddock.local.node import NodeRunner
    from paddock.local.report.reporter import Reporter

    class MemberEvents(Protocol):
        """The events of a member, for its launcher."""

        def starting(self, plan: Plan, node_rank: int) -> None:
            """The processes of an attempt start next."""

        def on_verdict(self, verdict: Verdict, uid: str, is_own: bool) -> None:
            """The job's verdict, or this node's own when it gives up."""

        def over(self, exit_code: int) -> None:
            """This node has ended its part."""

    class FollowerEvents(Protocol):
        """The events of a member that decide where it joins next (leadership.py)."""

        def idle(self) -> None:
            """Nothing of this node runs any more, and it has no link."""

        def handle(self, event: messages.HandOver) -> None:
            """Another node leads from now on."""


class Member:
    """This node's part in a job. Owned by the loop's thread. Also takes its NodeRunner's events.

    follower: hears where to join next; None in a job of one node.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        node: NodeRunner,
        *,
        reporter: Reporter,
        pod_name: str,
        events: MemberEvents,
    ) -> None:
        self.job = job
        self.reporter = reporter
        self.follower: FollowerEvents | None = None
        self.address = ""
        self.attempt = -1  # the latest that was started here
        self.exit_code: int | None = None
        self.start: messages.Start | None = None  # the latest order to start, and when it came
        self.start_at = 0.0
        self.is_start_fresh = False  # it came over the link of now
        self.uid = ""  # of the run that this node takes part in; "" before it has joined one
        self.joined_at = 0.0  # that run, by the loop's clock
        self._loop = loop
        self._node = node
        self._pod_name = pod_name
        self._events = events
        self._send: Callable[[messages.Envelope], None] | None = None
        self._translate: Callable[[Exit], Exit] | None = None
        self._host: Host | None = None
        self.plan: Plan | None = None  # of the latest attempt that was started here
        self.node_rank = 0
        self._signals = 0
        self.stop_signal = 0  # the first one that told this node to end
        self.stopped_by = ""  # the command that told this launcher to end, if no signal did
        self._loss: messages.Loss = ""  # the thing that was lost, if that is the reason
        self._verdict: Verdict | None = None
        self._notes_reported = False
        self.exits: list[Exit] = []  # of this node's processes, in the latest attempt
        self.problem = ""  # why this node ended its part without a verdict of the job
        node.events = self

    # ---------------------------------------------------------------- the link

    def connect(
        self,
        uid: str,
        send: Callable[[messages.Envelope], None],
        address: str,
        *,
        listen_port: int = 0,
        translate: Callable[[Exit], Exit] | None = None,
    ) -> None:
        """Join that run over this link, with this node's facts; other nodes reach it at address.

        listen_port: the port on which this node could lead, 0 for none. Raises PaddockError.
        """
        if uid != self.uid:
            self.uid, self.attempt, self.start = uid, -1, None
            self.joined_at = self._loop.now()
        self.is_start_fresh = False
        self._send = send
        self._translate = translate
        self.address = address
        self._host = self._node.gather(address)
        before = self.start
        join = messages.Join(
            self._host,
            self.key,
            self.job.rendezvous.node_rank,
            config_fingerprint(self.job),
            listen_port,
            started=before.attempt if before else -1,
            coordinator_key=before.coordinator_key if before else "",
        )
        self.tell(join)
        if self.stop_signal:  # the one before may not have heard it
            self.tell(messages.Leave(self.stop_signal, self._signals > 1, self._loss))

    def clock_offset(self) -> float:
        """The seconds that the coordinator's monotonic clock is ahead of ours, as far as known."""
        if self._translate is None:
            return 0.0
        return self._translate(Exit("worker", 0, 0, "", 0, 0)).at_ns / 1e9

    @property
    def is_linked(self) -> bool:
        return self._send is not None

    def pids(self) -> dict[str, int]:
        """The running processes of this node: "worker 3" -> pid."""
        return self._node.pids()

    def exited(self, exit_: Exit) -> None:
        if self._translate is not None:
            exit_ = self._translate(exit_)
        if exit_.attempt != self.attempt:
            return  # its output was read when another attempt had begun
        add_or_amend(self.exits, exit_)
        self.tell(messages.Exited(exit_))

    @property
    def key(self) -> str:
        """The name of this launcher among the others."""
        host = self._host.name if self._host is not None else ""
        return f"{host}/{self._pod_name}"

    def disconnect(self) -> None:
        """Drop the link; reports are void until the next connect."""
        self._send = None
        self._node.cancel_hook()

    def tell(self, message: messages.ToCoordinator) -> None:
        """Send a message to the coordinator, if there is a link."""
        if self._send is not None:
            self._send(messages.Envelope(self.uid, self.attempt, message))

    def budget_left(self) -> messages.Budget | None:
        """The used budget of the job when this node last started, less the time since."""
        if self.start is None:
            return None
        budget = self.start.budget
        if budget.seconds_left is None:
            return budget
        gone = self._loop.now() - self.start_at
        return replace(budget, seconds_left=max(0.0, budget.seconds_left - gone))

    # -------------------------------------------------------------- the orders

    def receive(self, envelope: messages.Envelope) -> None:
        """Carry out an order; drop those of another run or an older attempt."""
        message = envelope.message
        is_old = envelope.attempt < self.attempt and not isinstance(message, messages.Reject)
        if envelope.uid != self.uid or is_old:
            return
        if isinstance(message, messages.Start):
            self._node.prepare(lambda code: self._begin(message, code))
        elif isinstance(message, messages.Committed):
            if self.start is not None and self.start.attempt == message.attempt:
                self.start = replace(self.start, before=())
        elif isinstance(message, messages.Stop):
            self._node.cancel_hook()
            if not self.is_running and self._host is not None:
                self.tell(messages.Stopped(message.attempt, self._host))
            self.halt(message)
        elif isinstance(message, messages.JobEnded):
            self._node.cancel_hook()
            self._events.on_verdict(message.verdict, self.uid, False)
            self._over(message.verdict)
        elif isinstance(message, messages.Reject):
            self.break_off(
                PaddockError(message.message, hint=message.hint, exit_code=message.exit_code)
            )
        elif isinstance(message, messages.HandOver):
            if self.follower is not None:
                self.follower.handle(message)
        elif isinstance(message, messages.Notice):
            self._note(message)

    def tell_if_in(self, attempt: int, message: messages.ToCoordinator) -> None:
        """Send a message about an attempt, unless it has passed."""
        if attempt == self.attempt:
            self.tell(message)

    def _note(self, note: messages.Notice) -> None:
        if note.culprit is None:
            self.say("WARNING" if note.is_warning else "INFO", note.text)
        else:
            self.reporter.failed(note.text, note.culprit)

    @property
    def is_running(self) -> bool:
        return self._node.is_running

    def halt(self, order: messages.Stop) -> None:
        """Stop what runs here, whatever its attempt is."""
        if self._node.is_running:
            if not self._node.is_stopping:
                self.say("INFO", f"stopping: {order.reason}")
            self._node.stop(order)

    def _begin(self, order: messages.Start, hook_code: int) -> None:
        if hook_code:
            self.say("WARNING", f"--elastic-pre-hook ended with {hook_code}; starting all the same")
        self.start, self.start_at, self.is_start_fresh = order, self._loop.now(), True
        self.attempt = order.attempt
        self.exits = []
        try:
            if self._host not in order.hosts:
                raise PaddockError("this node is not in the plan it was told to start")
            plan = make_plan(self.job, order.hosts, order.attempt, self.uid)
            self.node_rank = order.hosts.index(self._host)
            self._node.start(plan, self.node_rank)
        except PaddockError as error:
            self._fail(error)
            return
        self.plan = plan
        self._tell_started(plan)
        if plan.nnodes > 1 or order.before:
            from zlib import crc32

            from paddock.core.plan import plan_bytes

            self.tell(messages.Started(order.attempt, crc32(plan_bytes(plan))))

    def starting(self, plan: Plan, node_rank: int) -> None:
        if self._node.warning and not self._notes_reported:
            self.say("WARNING", self._node.warning)
        self._events.starting(plan, node_rank)
        self.reporter.starting(plan, node_rank)

    def _tell_started(self, plan: Plan) -> None:
        notes: tuple[str, ...] = ()
        if not self._notes_reported:
            self._notes_reported = True
            notes = self._node.notes
        is_elastic = self.job.is_elastic
        self.reporter.started(
            plan, self.node_rank, self._pod_name, is_elastic=is_elastic, notes=notes
        )
        if self.job.servers.is_provided and self.node_rank == 0:
            self.reporter.say_all([("INFO", line) for line in servers_lines(plan)])

    def _fail(self, error: PaddockError) -> None:
        self.problem = error.message
        self.reporter.problem(error)
        self.exit_code = error.exit_code
        self.tell(messages.CannotRun(error.message, error.exit_code))
        self.end(error.exit_code)

    def stopped(self, attempt: int) -> None:
        """Report that all processes of the attempt are gone."""
        if self._verdict is not None:
            self._over(self._verdict)
            return
        if self._send is None:
            if self.follower is not None:
                self.follower.idle()
            return
        try:
            self._host = self._node.gather(self.address)
        except PaddockError as error:
            self._fail(error)
            return
        self.tell(messages.Stopped(attempt, self._host))

    def _over(self, verdict: Verdict) -> None:
        self._verdict = verdict
        if self.exit_code is not None:
            return  # this node has told its own story already
        if self.is_running:
            self.halt(messages.Stop(self.attempt, verdict.reason))
            return
        if self._node.server_restarts:
            times = count(self._node.server_restarts, "time")
            self.say("INFO", f"servers on this node were restarted {times}")
        self.reporter.say_all([("INFO", note) for note in self._node.last_notes()])
        self.reporter.over(verdict, self.plan, self.stopped_by)
        self.end(verdict.exit_code)

    def break_off(self, error: PaddockError) -> None:
        """End this node's part where it runs nothing, and keep the reason."""
        self.problem = error.message
        self.reporter.problem(error)
        self.end(error.exit_code)

    def give_up(self, error: PaddockError) -> None:
        """End this node's part by its own decision (coordinator gone, ...)."""
        if self._verdict is None:
            self._verdict = Verdict("fail", error.exit_code, "")
            self._events.on_verdict(replace(self._verdict, reason=error.message), self.uid, True)
            self.say("ERROR", str(error))
        if not self.is_running:
            self._over(self._verdict)

    def end(self, exit_code: int) -> None:
        """End this node's part; the first exit code that is not 0 stays."""
        if self.exit_code is None or self.exit_code == 0:
            self.exit_code = exit_code
        self._events.over(self.exit_code)

    def forward(self, number: int) -> None:
        """Pass a signal that means nothing to a launcher on to the processes."""
        self._node.forward(number)

    def pause(self, *, is_paused: bool) -> str:
        """Let the processes of this node stand still, or go on; returns how many, for people."""
        self._node.pause(is_paused=is_paused)
        return count(len(self._node.pids()), "process", "processes")

    def stop(self, number: int, *, now: bool) -> None:
        """As on_signal, for `paddock stop`. now: every process here is killed at once."""
        if not self._signals:
            self.stopped_by = "`paddock stop`"
            self.on_signal(number, has_grace=not now)
        if now:
            self.on_signal(number)

    def on_signal(self, number: int, lost: messages.Loss = "", *, has_grace: bool = True) -> None:
        """Take a signal to end: the first asks the coordinator to stop, the second kills here.

        lost: what this launcher lost and cannot go on without; ignored after a signal.
        has_grace: False when the second time comes at once.
        """
        if lost and self._signals:
            return
        self._signals += 1
        self.stop_signal = self.stop_signal or number
        if self._signals == 1:
            self._loss = lost
            if lost:
                self.say("WARNING", f"this node {messages.LOSSES[lost]}: its part of the job ends")
            else:
                self.reporter.echo(f"Terminating with signal {number}")
            if self.is_running and has_grace:
                grace = f"{self.job.grace_seconds:g} s"
                again = "press Ctrl-C again" if number == 2 else "send the signal again"
                again = "`paddock stop --now`" if self.stopped_by else again
                self.say("INFO", f"waiting up to {grace} for ranks to save; {again} to kill")
        else:
            self.say("INFO", "killing all ranks now")
            self.halt(messages.Stop(self.attempt, "asked twice", force=True))
        if self._send is None:
            code = EXIT_OWN_FAULT if self._loss else EXIT_SIGNAL_BASE + number
            text = "stopped before the job began" if self.start is None else "stopped, on its own"
            if self._loss:
                text = f"this node {messages.LOSSES[self._loss]}"
            self.give_up(PaddockError(text, exit_code=code))
            self.halt(messages.Stop(self.attempt, "told to stop", signal=number))
        self.tell(messages.Leave(number, self._signals > 1, self._loss))

    # ------------------------------------------------------------------- lines

    def say(self, level: str, text: str) -> None:
        self.reporter.say(level, text)

    def close(self) -> None:
        self._node.close()
