"""The state machine of a node's warm server: import modules, fork ranks. Decides only; no I/O.

    phase    event                            next     actions
    -------  -------------------------------  -------  ----------------------------------------
    off      RanksWanted, probed before       loading  Serve, Load, CheckAfter
    off      RanksWanted                      probing  Probe, CheckAfter
    barred   RanksWanted                      barred   Cold
    ready    RanksWanted, nothing new         forking  Fork, CheckAfter
    ready    RanksWanted early, nothing new   ready    Give
    ready    RanksWanted, more names          loading  Load, CheckAfter
    ready    RanksWanted, not by this server  loading  Kill, Serve, Load, CheckAfter
    probing  Greeted                          loading  Kill, Serve, Load, CheckAfter
    loading  Loaded                           forking  Fork, CheckAfter
    loading  Loaded, wanted early             ready    Give
    loading  Loaded, spoiled                  loading  Kill, Serve, Load with fewer, CheckAfter
    loading  Died | Stuck at a name           loading  Kill, Serve, Load without it, CheckAfter
    forking  Forked                           ready    Give
    busy     Died | Stuck | ForkFailed        barred   Kill, Cold
    ready    Died                             off      Kill
    any      Cancelled                        off      Kill
    any      not awaited                      same     none

"Not by this server": it has another environment, or has imported what is not among the names.
"Wanted early": no rank is, yet. "Busy": probing, loading (at no name, or too often), forking.
"Spoiled": an import has left what must not be forked (a thread, an open file), or read what
differs between ranks, or failed half way. After ROUNDS_MAX such rounds, or one that was stuck, this
launcher loads only what came before the first of them: a prefix of what was clean is clean.
"Barred": it starts cold from here on.
"""

from __future__ import annotations

from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Literal

    Phase = Literal["off", "probing", "loading", "ready", "forking", "barred"]

ROUNDS_MAX = 8
# Limits without progress: of an interpreter that starts, of an import (a library of 2 GB over a
# network takes a minute), and of forks.
PROBE_SECONDS = 20.0
STUCK_SECONDS = 120.0
FORK_SECONDS = 30.0


@value
class RanksWanted:
    """Ranks are to be forked. names: modules to import first. is_other: not by this server.

    is_early: they are to be imported only, for ranks that may come.
    """

    names: tuple[str, ...]
    is_other: bool = False
    is_early: bool = False


@value
class Greeted:
    """The probe has found the server's code in the user's interpreter."""


@value
class Loaded:
    """The imports are done. spoiled: (name, reason) of those that must be left out.

    failed: names that cannot be imported here; the script does without them, too.
    """

    spoiled: tuple[tuple[str, str], ...] = ()
    failed: tuple[str, ...] = ()


@value
class Forked:
    """The ranks run, as this process's children."""


@value
class ForkFailed:
    """The server cannot be started, or no rank was forked, or none that is ours."""

    why: str


@value
class Died:
    """The server, or the probe, has ended. at: the name that it was importing, "" for none."""

    how: str
    at: str = ""


@value
class Stuck:
    """The server showed no progress for as long as CheckAfter set."""

    at: str = ""


@value
class Cancelled:
    """The launcher does not want the ranks any more."""


@value
class Probe:
    """Start the user's interpreter to see whether it loads the server's code."""


@value
class Serve:
    """Start the warm server."""


@value
class Load:
    """Have the server import these modules."""

    names: tuple[str, ...]


@value
class Fork:
    """Have the server fork the ranks."""


@value
class Give:
    """The ranks are forked: go on."""


@value
class Cold:
    """Start the ranks without a warm server. why: one line for people."""

    why: str


@value
class Kill:
    """End the server or probe, and what it has started."""


@value
class CheckAfter:
    """Check after this many seconds whether the server made progress."""

    seconds: float


if TYPE_CHECKING:
    Event = RanksWanted | Greeted | Loaded | Forked | ForkFailed | Died | Stuck | Cancelled
    Action = Probe | Serve | Load | Fork | Give | Cold | Kill | CheckAfter


class WarmStart:
    """The state of one warm start; owned by one thread. is_probed: the probe passed before.

    left_out: modules that are not imported -> why. failed: those that fail to import. Both are
    learned here, and kept for later runs.
    """

    def __init__(self, left_out: dict[str, str], failed: set[str], *, is_probed: bool) -> None:
        self.phase: Phase = "off"
        self.left_out = left_out
        self.failed = failed
        self.is_probed = is_probed
        self.why = ""  # barred
        self.loaded: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self.skipped: set[str] = set()  # modules skipped by this launcher only, as a precaution
        self._rounds = 0
        self._is_early = False

    def resume(self, loaded: tuple[str, ...], skipped: Iterable[str]) -> None:
        """Go on with the server of an earlier launch, which has imported these."""
        self.phase, self.loaded = "ready", loaded
        self.skipped.update(skipped)

    def handle(self, event: Event) -> list[Action]:
        if isinstance(event, RanksWanted):
            return self._on_wanted(event)
        if isinstance(event, Cancelled):
            return self._off()
        if isinstance(event, Greeted):
            self.is_probed = True
            return [Kill(), *self._serve()] if self.phase == "probing" else []
        if isinstance(event, Loaded):
            return self._on_loaded(event) if self.phase == "loading" else []
        if isinstance(event, Forked):
            if self.phase != "forking":
                return []
            self.phase = "ready"
            return [Give()]
        return self._on_trouble(event)

    def _on_wanted(self, event: RanksWanted) -> list[Action]:
        self._rounds = 0
        self._names = event.names
        self._is_early = event.is_early
        if self.phase == "barred":
            return [Cold(self.why)]
        if self.phase == "off":
            if self.is_probed:
                return self._serve()
            self.phase = "probing"
            return [Probe(), CheckAfter(PROBE_SECONDS)]
        assert self.phase == "ready", "one attempt at a time"
        allowed, loaded = set(self._allowed()), set(self.loaded)
        if event.is_other or loaded - allowed:
            return [Kill(), *self._serve()]
        return self._load() if allowed - loaded else self._fork()

    def _on_loaded(self, event: Loaded) -> list[Action]:
        self.failed.update(event.failed)
        if not event.spoiled:
            self.loaded = self._allowed()
            return self._fork()
        return self._without(dict(event.spoiled), self._rounds + 1)

    def _on_trouble(self, event: Died | Stuck | ForkFailed) -> list[Action]:
        if self.phase in ("off", "barred"):
            return []
        if self.phase == "ready":
            return self._off() if isinstance(event, Died) else []
        limits = {"probing": PROBE_SECONDS, "loading": STUCK_SECONDS, "forking": FORK_SECONDS}
        how = f"gave no sign of life for {limits[self.phase]:g} s"
        if isinstance(event, Died):
            how = event.how
        if isinstance(event, ForkFailed):
            self.why = event.why
        elif self.phase == "loading" and event.at and self._rounds < ROUNDS_MAX:
            rounds = self._rounds + 1 if isinstance(event, Died) else ROUNDS_MAX
            return self._without({event.at: f"the import {how}"}, rounds)
        elif self.phase == "probing":
            self.why = f"the interpreter does not look for sitecustomize (a wrapper? it {how})"
        else:
            self.why = f"the warm server {how}"
        self.phase = "barred"
        return [Kill(), Cold(self.why)]

    def _without(self, found: dict[str, str], rounds: int) -> list[Action]:
        """Start another round, in a server that has not imported these modules."""
        self._rounds = rounds
        at = [self.loaded.index(name) for name in found if name in self.loaded]
        if rounds >= ROUNDS_MAX or len(at) < len(found):
            self.skipped.update(self.loaded[min(at, default=0) :])
        self.left_out.update(found)
        return [Kill(), *self._serve()]

    def _serve(self) -> list[Action]:
        self.loaded = ()
        return [Serve(), *self._load()]

    def _load(self) -> list[Action]:
        self.phase = "loading"
        self.loaded = self._allowed()
        return [Load(self.loaded), CheckAfter(STUCK_SECONDS)]

    def _fork(self) -> list[Action]:
        if self._is_early:
            self.phase = "ready"
            return [Give()]
        self.phase = "forking"
        return [Fork(), CheckAfter(FORK_SECONDS)]

    def _off(self) -> list[Action]:
        if self.phase in ("off", "barred"):
            return []
        self.phase = "off"
        return [Kill()]

    def _allowed(self) -> tuple[str, ...]:
        """The names without those left out, and without what is below them."""
        return without(self._names, self.left_out.keys() | self.failed | self.skipped)


def without(names: Iterable[str], out: AbstractSet[str]) -> tuple[str, ...]:
    """The names that are not left out, nor below one that is."""
    return tuple(name for name in names if out.isdisjoint(_above(name)))


def _above(name: str) -> Iterable[str]:
    """The name and the packages it is in.

    >>> sorted(_above("a.b.c"))
    ['a', 'a.b', 'a.b.c']
    """
    words: Sequence[str] = name.split(".")
    return {".".join(words[: n + 1]) for n in range(len(words))}
