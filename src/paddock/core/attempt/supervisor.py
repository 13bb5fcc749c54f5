"""The supervisor of one node's processes in one attempt: SIGTERM, grace period, SIGKILL. No I/O.

ASK is the signal that told the job to end, as Ctrl-C's SIGINT; SIGTERM where none did.

    phase     event                       next      actions
    --------  --------------------------  --------  -------------------------------------------
    running   process ended well          running   ReportExit
    running   process failed              stopping  ReportExit, TERM to every group, SetTimer
    running   own server ended            running   RestartServer
    running   own server ended too often  stopping  ServerGivenUp, then as process failed
    running   last process ended          ended     ReportExit, KillDescendants, AttemptEnded
    running   Stop                        stopping  ASK to every group, SetTimer
    running   Stop, force                 killing   KILL to every group, SetTimer
    running   timer                       running   none
    stopping  process ended               stopping  ReportExit
    stopping  last trainer ended          stopping  ReportExit, TERM to own servers
    stopping  last process ended          ended     ReportExit, KillDescendants, AttemptEnded
    stopping  Stop, sooner end            stopping  SetTimer
    stopping  Stop                        stopping  none
    stopping  timer, ASK was not TERM     stopping  TERM to every group, once; SetTimer
    stopping  timer | Stop, force         killing   KILL to every group, SetTimer
    killing   process ended               killing   ReportExit
    killing   last process ended          ended     ReportExit, KillDescendants, AttemptEnded
    killing   timer | Stop, force         killing   KILL again, SetTimer (a process in D state)
    any       timer before its time       same      SetTimer again
    any       news of another attempt     same      none
    ended     anything                    ended     none

KillDescendants ends what processes left behind: at once after a good end or SIGKILL, else when its
grace is over too (grace_until): a trainer below a shell that SIGTERM has ended still saves.
"Own servers" are those that Paddock provides: their state is in their log, so that one that ends
unasked, even well (SIGTERM from elsewhere), is started again in place; and they get SIGTERM after
this node's trainers have ended, which may still want to save through them.
"""

from __future__ import annotations

from paddock.core.attempt.exits import NOT_STARTED
from paddock.core.rendezvous.messages import SetTimer, Stop, TimerFired
from paddock.core.value import replace, value
from paddock.errors import EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from paddock.core.attempt.exits import Exit
    from paddock.core.job import Servers

    Phase = Literal["running", "stopping", "killing", "ended"]
    Key = tuple[str, int]

SIGTERM = 15
SIGKILL = 9
KILL_AGAIN_SECONDS = 1.0
# After this part of the grace SIGTERM follows another signal. Late, since most ranks that have not
# ended by then are saving; what handles SIGTERM alone had that at once (local/lingering.py).
SIGTERM_SHARE = 0.75


@value
class AttemptEnded:
    """All processes of the attempt are gone. exits: in the order they were seen."""

    attempt: int
    exits: tuple[Exit, ...]


@value
class ReportExit:
    """Tell the coordinator that a process ended."""

    exit: Exit


@value
class RestartServer:
    """Start the server that ended so again in place; it is the restart number count of its window.

    exit: not reported, since it is no failure of the job.
    """

    exit: Exit
    count: int


@value
class ServerGivenUp:
    """The server that ended so is not started again: its restarts are used up."""

    exit: Exit


@value
class SignalGroup:
    """Send a signal to a process's whole group, even if the process itself is gone."""

    key: tuple[str, int]
    signal: int


@value
class KillDescendants:
    """End every process that descends from this attempt."""


if TYPE_CHECKING:
    Action = (
        AttemptEnded
        | ReportExit
        | RestartServer
        | ServerGivenUp
        | SignalGroup
        | SetTimer
        | KillDescendants
    )
    Event = Exit | Stop | TimerFired


class Supervisor:
    """The state of one attempt on one node; owned by one thread.

    servers: the kind of the job's servers; None for a job without.
    """

    def __init__(
        self,
        attempt: int,
        keys: Sequence[Key],
        *,
        grace_seconds: float,
        servers: Servers | None = None,
    ) -> None:
        self.attempt = attempt
        self.keys = tuple(keys)
        self.servers = servers
        is_provided = servers is not None and servers.is_provided
        self._own_servers = {k for k in self.keys if k[0] == "ps" and is_provided}
        self._restarted_at: dict[Key, list[float]] = {}  # monotonic seconds, of the window
        self.grace_seconds = grace_seconds
        self.phase: Phase = "running"
        self.reason = ""
        self.exits: list[Exit] = []
        self.grace_until = 0.0  # of what ended processes have left; 0.0: it is killed at once
        self.first_signal = SIGTERM  # of the stop
        self.terminate_at = 0.0  # when SIGTERM follows another; 0.0: it does not, or was sent
        self._kill_at = 0.0
        self._alive = set(self.keys)
        self._signalled: dict[Key, float] = {}  # when first, monotonic seconds

    @property
    def alive(self) -> frozenset[Key]:
        return frozenset(self._alive)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event, return what to do, in order. now: monotonic seconds."""
        if self.phase == "ended":
            return []
        if event.__class__ is TimerFired:
            return self._on_timer(now)
        if event.attempt != self.attempt:  # type: ignore[union-attr]  # TimerFired went above
            return []  # rule 1: older news is dropped
        if isinstance(event, Stop):
            return self._on_stop(event, now)
        assert not isinstance(event, TimerFired)
        return self._on_exit(event, now)

    def _on_exit(self, event: Exit, now: float) -> list[Action]:
        key = (event.role, event.rank)
        if key not in self._alive:
            return []
        again = self._on_server_ended(event, key, now)
        if isinstance(again, RestartServer):
            return [again]
        self._alive.discard(key)
        signalled_at = self._signalled.get(key)
        if signalled_at is not None:
            after_ns = max(0, event.at_ns - int(signalled_at * 1e9))
            event = replace(event, by_us=True, after_signal_ns=after_ns)
        self.exits.append(event)
        actions: list[Action] = [*([] if again is None else [again]), ReportExit(event)]
        if not self._alive:
            if self.phase == "stopping":
                self.grace_until = self._kill_at
            elif self.phase == "running" and event.failed:
                self.grace_until = now + self.grace_seconds
            return actions + self._end()  # * -> ended
        if event.failed and self.phase == "running":
            actions += self._stop(f"{event.name} {event.how}", self.grace_seconds, now)
        elif self.phase == "stopping":
            actions += self._stop_own_servers(now)
        return actions

    def _on_server_ended(
        self, event: Exit, key: Key, now: float
    ) -> RestartServer | ServerGivenUp | None:
        """Decide whether an own server that ended is restarted or given up; else None."""
        is_ours = key in self._own_servers and self.phase == "running"
        if not is_ours or self.servers is None or not self.servers.max_restarts:
            return None
        if event.cause in NOT_STARTED or event.code == EXIT_USAGE:
            return None  # it has not run, or would say the same again
        if event.ok and self.servers.ends_itself:
            return None  # its trainers have closed their clients
        since = now - self.servers.window_seconds
        recent = [at for at in self._restarted_at.get(key, ()) if at > since]
        if len(recent) >= self.servers.max_restarts:
            return ServerGivenUp(event)
        self._restarted_at[key] = [*recent, now]
        return RestartServer(event, len(recent) + 1)

    def _on_stop(self, event: Stop, now: float) -> list[Action]:
        if event.force:
            self.reason = self.reason or event.reason
            return self._kill(now)  # running | stopping -> killing
        grace = self.grace_seconds if event.grace_seconds is None else event.grace_seconds
        if self.phase == "running":
            return self._stop(event.reason, grace, now, event.signal)
        if self.phase == "stopping" and now + grace < self._kill_at:
            # A lease that runs out leaves less time than the user's grace does.
            self._kill_at = now + grace
            if self.terminate_at:
                self.terminate_at = min(self.terminate_at, now + grace * SIGTERM_SHARE)
            return [self._next_timer()]
        return []

    def _on_timer(self, now: float) -> list[Action]:
        if self.phase in ("stopping", "killing"):
            if now >= self._kill_at:
                return self._kill(now)  # stopping -> killing
            if self.phase == "stopping" and 0.0 < self.terminate_at <= now:
                self.terminate_at = 0.0
                return [*self._ask_trainers(SIGTERM, now), self._next_timer()]
            return [self._next_timer()]  # it was set for an earlier moment
        return []

    def _stop(
        self, reason: str, grace_seconds: float, now: float, signal: int = SIGTERM
    ) -> list[Action]:
        self.phase = "stopping"  # running -> stopping
        self.reason = reason
        self.first_signal = signal
        actions = self._ask_trainers(signal, now)
        actions += self._stop_own_servers(now)
        self._kill_at = now + grace_seconds
        if signal != SIGTERM:
            self.terminate_at = now + grace_seconds * SIGTERM_SHARE
        actions.append(self._next_timer())
        return actions

    def _next_timer(self) -> SetTimer:
        is_asked_twice = self.phase == "stopping" and self.terminate_at
        return SetTimer(self.terminate_at if is_asked_twice else self._kill_at)

    def _ask_trainers(self, signal: int, now: float) -> list[Action]:
        return self._signal([k for k in self.keys if k not in self._own_servers], signal, now)

    def is_own_server(self, key: Key) -> bool:
        """True of a server that Paddock provides."""
        return key in self._own_servers

    @property
    def has_signalled(self) -> bool:
        """True once processes were signalled."""
        return bool(self._signalled)

    @property
    def kill_at(self) -> float:
        """When SIGKILL follows, monotonic seconds; 0.0 while nothing was told to stop."""
        return self._kill_at

    def _stop_own_servers(self, now: float) -> list[Action]:
        """Send SIGTERM to the own servers once none but they are left on this node."""
        first = not any(key in self._signalled for key in self._own_servers)
        if not first or not self._alive <= self._own_servers:
            return []
        return self._signal([k for k in self.keys if k in self._own_servers], SIGTERM, now)

    def _signal(self, keys: list[Key], signal: int, now: float) -> list[Action]:
        alive = [key for key in keys if key in self._alive]
        self._signalled = dict.fromkeys(alive, now) | self._signalled
        return [SignalGroup(key, signal) for key in keys]

    def _kill(self, now: float) -> list[Action]:
        self.phase = "killing"
        self._signalled = dict.fromkeys(self._alive, now) | self._signalled
        actions: list[Action] = [SignalGroup(key, SIGKILL) for key in self.keys]
        self._kill_at = now + KILL_AGAIN_SECONDS
        actions.append(SetTimer(self._kill_at))
        return actions

    def _end(self) -> list[Action]:
        self.phase = "ended"
        return [KillDescendants(), AttemptEnded(self.attempt, tuple(self.exits))]
