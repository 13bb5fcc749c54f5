"""The warm server of a node: started, fed and watched from the launcher's loop.

Rule: nothing here blocks. What the server prints while it imports is collected, and written into
every rank's output, as if each had imported by itself.
"""

from __future__ import annotations

import os
from time import monotonic

from paddock.contracts.environment import common_env
from paddock.core.attempt.warming import (
    Cancelled,
    CheckAfter,
    Cold,
    Died,
    Fork,
    Forked,
    ForkFailed,
    Give,
    Greeted,
    Kill,
    Load,
    Loaded,
    Probe,
    RanksWanted,
    Serve,
    Stuck,
    WarmStart,
)
from paddock.core.value import value
from paddock.local.guardian import children_of_self, sweep_on
from paddock.local.report.text import count
from paddock.local.spawn import has_stdin
from paddock.local.warm.process import WarmProcess
from paddock.local.warm.profile import interpreter, profile_of, stamp_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.contracts.environment import SharedEnv
    from paddock.core.attempt.warming import Action, Event
    from paddock.core.job import Entrypoint
    from paddock.core.plan import Proc
    from paddock.local.loop import Loop
    from paddock.local.warm.process import DaemonLoop, Lists

    Then = Callable[[Sequence[int] | None], None]

# They make the interpreter print or count from its first line on, which ranks do for themselves.
LOUD = ("PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE", "PYTHONTRACEMALLOC", "PYTHONDUMPREFS")
# What differs between two launches that are alike otherwise: of ours, and of the user's terminal.
PASSING = (
    "PADDOCK_JOB_UID", "PADDOCK_RUN_DIR", "PADDLE_LOG_DIR", "POD_NAME",
    "_", "OLDPWD", "SHLVL", "WINDOWID", "TMUX_PANE", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
    "SSH_AUTH_SOCK", "XDG_SESSION_ID", "DISPLAY", "XAUTHORITY",
)  # fmt: skip


@value
class ForkOrder:
    """The order to fork one rank. stdin: False for /dev/null, True for the launcher's own.

    outputs: descriptors of the launcher, as of spawn.OUTPUTS. learn: the file for its imports, ""
    for none.
    """

    env: Mapping[str, str]
    stdin: bool
    outputs: Sequence[int]
    learn: str = ""


class WarmServer:
    """The warm server. Owned by the loop's thread. on_note(level, text): a note for people."""

    def __init__(
        self,
        loop: Loop,
        command: Entrypoint,
        env: Mapping[str, str],
        on_note: Callable[[str, str], None],
        *,
        is_submitted: bool = False,
        kept: DaemonLoop | None = None,
    ) -> None:
        """kept: holds the warm state of the launch before, and then that of this one."""
        self._loop = loop
        self._command = command
        self._on_note = on_note
        self._interpreter = interpreter(command, env)
        self.profile = profile_of(command, env, os.getcwd(), is_submitted=is_submitted)
        self._machine: WarmStart | None = None
        self._process: WarmProcess | None = None
        self._seen = b""  # of its progress, when the timer was set
        self._seconds = 0.0
        self._env: Mapping[str, str] = {}
        self._differing: Sequence[str] = ()
        self._ports: list[bytes] = []
        self._orders: Sequence[ForkOrder] = ()
        self._before: Callable[[], None] | None = None
        self._then: Then | None = None
        self._told = ""
        self._learning: list[str] = []
        self._kept = kept
        self._is_stale = self._is_old = False
        self._prepared: Callable[[], None] | None = None

    @property
    def keep(self) -> frozenset[int]:
        """Processes that outlive an attempt."""
        return frozenset(() if self._process is None else (self._process.pid,))

    # ------------------------------------------------------------------ orders

    def fork_workers(
        self,
        shared: SharedEnv,
        workers: Sequence[tuple[Proc, Mapping[str, str], tuple[int, ...]]],
        learn: str,
        *,
        before: Callable[[], None],
        then: Callable[[Mapping[Proc, int]], None],
    ) -> None:
        """Fork a node's workers: each with its environment and the write ends of its output.

        learn: the file for the first one's imports. before: as of fork(). then(pids): none of them
        where the ranks have to be started without the warm server.
        """
        procs = [proc for proc, _, _ in workers]
        orders = [
            ForkOrder(env, has_stdin(proc), ends, "" if at else learn)
            for at, (proc, env, ends) in enumerate(workers)
        ]
        common, differing = common_env(shared, [order.env for order in orders])
        plan = shared.world.plan
        is_first = has_stdin(procs[0]) and plan.mode == "collective"
        self.fork(
            common,
            differing,
            orders,
            ports=plan.service_ports if is_first else (),
            before=before,
            then=lambda pids: then(dict(zip(procs, pids or (), strict=False))),
        )

    def fork(
        self,
        env: Mapping[str, str],
        differing: Sequence[str],
        orders: Sequence[ForkOrder],
        *,
        ports: Sequence[int],
        before: Callable[[], None],
        then: Then,
    ) -> None:
        """Fork ranks; then(their pids in that order), or then(None): start them without it.

        env: the variables that all ranks share; differing: names of those that differ, ever.
        ports: where the first rank may listen; the other ranks give it a head start.
        before(): called just before the ranks run.
        """
        if self._machine is None:
            self._begin()
        self._take_learned()
        passing = PASSING if self._kept is not None else ()
        self._env = {name: text for name, text in env.items() if name not in passing}
        self._differing = [*differing, *passing]
        self._ports = [b"%d" % port for port in ports]
        self._orders, self._before, self._then = orders, before, then
        self._learning = [order.learn for order in orders if order.learn]
        loud = [name for name in LOUD if env.get(name)]
        if loud:
            self._do(Cold(f"{loud[0]} is set"))
            return
        self._want()

    def prepare(self, then: Callable[[], None]) -> None:
        """Import the modules that the next launch will need, if it is like the last, which has
        left a warm process. then(): called when that is done, or cannot be.
        """
        assert self._kept is not None and self._kept.warm is not None
        self._env, self._differing = self._kept.warm.env, self._kept.warm.differing
        self._prepared = then
        self._begin()
        if self.profile.is_known:
            self._want(is_early=True)
        else:
            then()

    def _want(self, *, is_early: bool = False) -> None:
        is_other = self._is_stale or self._process is None or self._env != self._process.env
        self._is_stale = False
        self._feed(RanksWanted(tuple(self.profile.names), is_other, is_early))

    def _begin(self) -> None:
        self.profile.read(self._interpreter)
        changed = self.profile.check()
        note = self.profile.note or changed
        if note:
            self._on_note("WARNING", f"warm: {note}")
        machine = self._machine = WarmStart(
            self.profile.left_out, self.profile.failed, is_probed=self.profile.is_probed
        )
        if self._kept is not None and self._kept.warm is not None:
            left, self._kept.warm = self._kept.warm, None
            self._resume(machine, left)

    def _resume(self, machine: WarmStart, left: WarmProcess) -> None:
        """Resume the warm server that the launch before has left."""
        if left.is_dead:
            left.kill()
            return
        self._hear(left)
        machine.resume(tuple(left.loaded), left.skipped)
        self._is_stale = left.stamp != self._stamp_of(left)
        self._is_old = True

    def _leave(self) -> WarmProcess | None:
        """The warm process for the next launch; None when the server is not ready."""
        left, machine = self._process, self._machine
        if machine is None or left is None or machine.phase != "ready":
            return None
        left.differing = self._differing
        left.loaded, left.skipped = machine.loaded, sorted(machine.skipped)
        left.driver = self._process = None
        return left

    def _stamp_of(self, process: WarmProcess) -> str:
        """A stamp that changes with each module's file, and with installed packages."""
        return stamp_of(self._interpreter, [*self.profile.areas, *process.files])

    def cancel(self) -> None:
        """Cancel the fork."""
        self._then = None
        self._feed(Cancelled())

    def close(self) -> None:
        """End the warm server, unless it is kept, and write the import profile."""
        if self._machine is None:
            return
        self._take_learned()
        if self._kept is not None:
            self._kept.warm = self._leave()
        self._feed(Cancelled())
        self.profile.is_probed = self._machine.is_probed
        failure = self.profile.write(self._interpreter)
        if failure:
            self._on_note("WARNING", f"warm: {failure}")

    def _take_learned(self) -> None:
        """Add the imports that the learning rank has noted to the profile."""
        for path in self._learning:
            try:
                with open(path, encoding="utf-8", errors="surrogateescape") as f:
                    text = f.read()
                os.unlink(path)
            except OSError:
                continue
            assert self._machine is not None
            news = self.profile.add(text, was_warm=bool(self._machine.loaded))
            if news:
                self._on_note("WARNING", f"warm: {news}")
        self._learning = []

    # ---------------------------------------------------------------- machine

    def _feed(self, event: Event) -> None:
        if self._machine is not None:
            for action in self._machine.handle(event):
                self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Probe):
            self._start("probe", (self._command.python, "-u", "-c", ""))
        elif isinstance(action, Serve):
            self._start("serve", self._command.argv())
        elif isinstance(action, Load):
            self._load(action.names)
        elif isinstance(action, Fork):
            self._order_ranks()
        elif isinstance(action, CheckAfter):
            self._set_timer(action.seconds)
        elif isinstance(action, Kill):
            self._kill()
        elif isinstance(action, Cold):
            self._start_cold(action.why)
        elif isinstance(action, Give):
            self._loop.at("warm", None, self._look)
            self._tell_prepared()

    def _tell_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared()

    def _start_cold(self, why: str) -> None:
        self._loop.at("warm", None, self._look)
        if why != self._told:
            self._told = why
            self._on_note("WARNING", f"not warm: {why}; every process imports for itself")
        self._tell_prepared()
        then = self._then
        if then is not None:
            # What it may have forked is not of this attempt, and a limit of processes counts the
            # dead until they are reaped. The attempt may be stopped meanwhile.
            sweep_on(self._loop, lambda _killed: self._answer(then, None))

    def _answer(self, then: Then, pids: Sequence[int] | None) -> None:
        if then is self._then:
            self._then = None
            then(pids)

    def _fail_soon(self, why: str) -> None:
        """Post ForkFailed for later: the state machine is still giving its orders."""
        process = self._process
        self._loop.post(lambda: self._feed(ForkFailed(why)) if process is self._process else None)

    # ---------------------------------------------------------------- process

    def _hear(self, process: WarmProcess) -> None:
        self._process = process
        process.driver = self

    def _start(self, what: str, argv: tuple[str, ...]) -> None:
        process = WarmProcess(self._loop, self._command)
        try:
            process.start(what, argv, self._env, has_stdin=self._kept is None)
            self._hear(process)
        except OSError as error:
            self._fail_soon(f"{argv[0]} cannot be started: {error.strerror}")

    def _kill(self) -> None:
        self._loop.at("warm", None, self._look)
        if self._process is not None:
            self._process.kill()
            self._process = None

    # ----------------------------------------------------------------- events

    def on_death(self, how: str, is_crash: bool) -> None:
        """The warm process has ended."""
        # A kill by order or for lack of memory is not the module's fault.
        self._feed(Died(how, self._at() if is_crash else ""))

    def on_message(self, kind: str, lists: Lists) -> None:
        """The warm process has sent a message."""
        if kind == "hello":
            self.profile.areas = [os.fsdecode(area) for area in lists[0]]
            self._feed(Greeted())
        elif kind == "loaded":
            self._on_loaded(lists)
        elif kind == "forked":
            self._on_forked([int(word) for word in lists[0]])
        elif kind == "failed":
            self._feed(ForkFailed(lists[0][0].decode("utf-8", "replace")))

    def _on_loaded(self, lists: Lists) -> None:
        process = self._process
        assert process is not None
        process.took = int(lists[0][0]) / 1000
        failed = tuple(os.fsdecode(name) for name in lists[2])
        process.files = [os.fsdecode(path) for path in lists[3]]
        process.stamp = self._stamp_of(process) if self._kept is not None else ""
        self._is_old = False
        self._feed(Loaded(_pairs(lists[1]), failed))

    def _on_forked(self, pids: list[int]) -> None:
        ours = set(children_of_self())
        if not ours.issuperset(pids):
            self._feed(ForkFailed("the ranks it forks are not this launcher's children"))
            return
        self._feed(Forked())
        self._tell(len(pids))
        if self._then is not None:
            self._answer(self._then, pids)

    def _tell(self, ranks: int) -> None:
        """Tell the people once for each server what it saves, or that it will."""
        assert self._machine is not None and self._process is not None
        modules, left = len(self._machine.loaded), len(self._machine.left_out)
        if modules:
            how = f"imported once in {self._process.took:.1f} s"
            if self._is_old:
                how = "imported by an earlier launch"
            text = f"{modules} modules {how} for {count(ranks, 'process', 'processes')}"
            if left:
                text += f"; left out: {left} (paddock warm list)"
            if self.profile.later > modules:
                text += f"; {self.profile.late}"
        elif self.profile.boundary:
            text = f"nothing is imported once: {self.profile.late}"
        elif self.profile.is_known:
            text = "the script imports nothing that could be imported once"
        else:
            text = "learning what the script imports; its next start here is warm"
        if text != self._told:
            self._told = text
            self._on_note("INFO", f"warm: {text}")

    def _set_timer(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen = b"" if self._process is None else self._process.progress
        self._loop.at("warm", monotonic() + seconds, self._look)

    def _look(self) -> None:
        if self._process is not None and self._process.progress != self._seen:
            self._set_timer(self._seconds)
        else:
            self._feed(Stuck(self._at()))

    def _at(self) -> str:
        return "" if self._process is None else self._process.at

    # ------------------------------------------------------------------ words

    def _load(self, names: Sequence[str]) -> None:
        command = self._command
        place = os.getcwd()
        if command.kind == "script":
            place = os.path.dirname(os.path.realpath(command.program))
        is_safe = bool(self._env.get("PYTHONSAFEPATH"))
        lists = [[] if is_safe else [place], self._differing, list(self.profile.own), names]
        self._order("load", [[os.fsencode(word) for word in words] for words in lists])

    def _order_ranks(self) -> None:
        if self._before is not None:
            self._before()
        said = [] if self._process is None else self._process.said
        common = _entries(self._env)
        args = [os.fsencode(word) for word in self._command.args]
        # Ranks that import for themselves do not come together anyhow.
        ports = self._ports if self._machine is not None and self._machine.loaded else []
        lists = [said, ports, common, args]
        ours = b"0" if self._kept is None else _stdin()
        for order in self._orders:
            first = ours if order.stdin else b"null"
            modes = (0, 0, os.O_NONBLOCK)
            words = [b"%d %d" % each for each in zip(order.outputs, modes, strict=False)]
            lists.append([os.fsencode(order.learn), first, *words])
            known = self._env
            own = {name: text for name, text in order.env.items() if known.get(name) != text}
            lists.append(_entries(own))
        self._order("fork", lists)

    def _order(self, kind: str, lists: Sequence[Sequence[bytes]]) -> None:
        if self._process is None:
            return  # it could not be started
        try:
            self._process.order(kind, lists)
        except OSError as error:
            self._fail_soon(f"no order can be written: {error.strerror}")


def _stdin() -> bytes:
    """The order by which a rank reopens stdin: at its present offset, in its present mode."""
    from fcntl import F_GETFL, fcntl

    try:
        offset = os.lseek(0, 0, os.SEEK_CUR)
    except OSError:
        offset = 0  # no file
    return b"stdin %d %d" % (offset, fcntl(0, F_GETFL) & os.O_ACCMODE)


def _entries(env: Mapping[str, str]) -> list[bytes]:
    return [os.fsencode(f"{name}={text}") for name, text in env.items()]


def _pairs(words: list[bytes]) -> tuple[tuple[str, str], ...]:
    texts = [word.decode("utf-8", "surrogateescape") for word in words]
    return tuple(zip(texts[::2], texts[1::2], strict=True))
