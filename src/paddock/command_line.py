"""The arguments of a command line: a table of flags for each command, and one reader for all.

Read alike everywhere: ``--flag value``, ``--flag=value``, unique beginnings, a dash for an
underscore and the other way round, ``-f value`` and ``-fvalue``, ``--`` before what only looks
like a flag. All that is wrong is found at once.

A flag has one usual spelling, that of its table, in help and in messages: what comes from
Paddle's launchers has underscores (--log_dir), all else has hyphens (--data-dir).

No I/O here, and nothing is imported but errors: the parameter server, which lifts out, reads its
arguments with this file, and the launch path pays for no more.
"""

from __future__ import annotations

from paddock.errors import Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The words of distutils.util.strtobool, which Paddle's launcher uses.
TRUE_WORDS = frozenset(("y", "yes", "t", "true", "on", "1"))
FALSE_WORDS = frozenset(("n", "no", "f", "false", "off", "0"))
MAX_WORDS = 1_000_000
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
NO_DURATION = "write seconds, or units as in 500ms, 5m, 1h30m"
NEAR = 0.6  # of difflib: test_rows is near to train_rows; at 0.5 nosuch.py was near to syn.py
# What a value is, told by the word that stands for it in the help; all others are "text".
KINDS = {"": "switch", "N": "int", "PORT": "int", "DURATION": "seconds",
         "FILE": "file", "DIR": "dir"}  # fmt: skip


def spelled(name: str, typed: str = "") -> str:
    """The usual spelling of a flag; with underscores for a user who has typed one.

    >>> spelled("log_dir"), spelled("log_dir", "--log_d")
    ('--log-dir', '--log_dir')
    """
    return "--" + (name if "_" in typed else name.replace("_", "-"))


class Flag:
    """A flag of a command line. Not changed after it is made.

    name: the usual spelling. kind: "switch" takes no value but =BOOL, "bool" may take one; "int"
    and "seconds" never swallow a script. field: the Job field it fills, or several, with blanks
    between. env: variables that stand for it; of two the last wins. default: as the help shows it.
    bare: what it means without a value. status: "normal", "ignored", "synonym" or "hidden".
    repeats: every one counts, not the last. is_greedy: takes what follows, up to the next flag.
    is_needed: it cannot be left out. is_plain: its text is the field's value, read as the kind
    says. is_shared: it must be equal on every node. is_listed: in the configuration block of
    Paddle's launcher.
    """

    def __init__(
        self, name: str, kind: str, field: str, help: str, group: str = "Flags",
        aliases: tuple[str, ...] = (), short: str = "", metavar: str = "", default: str = "",
        env: tuple[str, ...] = (), choices: tuple[str, ...] = (), status: str = "normal",
        origin: str = "paddle", bare: str = "", repeats: bool = False, is_greedy: bool = False,
        is_needed: bool = False, is_plain: bool = False, is_shared: bool = False,
        is_listed: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.kind, self.field, self.help = name, kind, field, help
        self.group, self.aliases, self.short, self.metavar = group, aliases, short, metavar
        self.default, self.env, self.choices, self.status = default, env, choices, status
        self.origin, self.bare, self.repeats = origin, bare, repeats
        self.is_greedy, self.is_needed = is_greedy, is_needed
        self.is_plain, self.is_shared, self.is_listed = is_plain, is_shared, is_listed
        self.key = name.replace("-", "_")

    @property
    def fields(self) -> tuple[str, ...]:
        """The paths of the Job fields it fills."""
        return tuple(self.field.split())

    @property
    def names(self) -> tuple[str, ...]:
        """The flag's spellings as the help shows them, without underscores; the short one first."""
        long = tuple(dict.fromkeys(spelled(name) for name in (self.name, *self.aliases)))
        return (f"-{self.short}", *long) if self.short else long

    @property
    def value(self) -> str:
        """The placeholder of the flag's value in the help; "" for a switch."""
        return "" if self.kind == "switch" else self.metavar or "|".join(self.choices) or "VALUE"

    def full_name(self, word: str) -> str:
        """The complete name behind an abbreviated flag, as the user would know and spell it.

        >>> gpus = Flag("devices", "text", "", "", aliases=("gpus", "gpu_ids"))
        >>> gpus.full_name("--gpus"), gpus.full_name("--gpu_"), gpus.full_name("--gpu-i")
        ('--gpus', '--gpu_ids', '--gpu-ids')
        """
        if not word.startswith("--") and word[1:] == self.short:
            return word
        name = word.lstrip("-").replace("-", "_")
        known = {one.replace("-", "_"): one for one in (self.name, *self.aliases)}
        found = [one for key, one in known.items() if key.startswith(name)]
        return spelled(known.get(name) or (found[0] if found else name), word)


def flag(name: str, metavar: str, help: str, short: str = "", **more: object) -> Flag:
    """A flag whose kind follows from its metavar, or from its choices."""
    kind = "choice" if more.get("choices") else KINDS.get(metavar, "text")
    field = str(more.pop("field", ""))
    more.setdefault("origin", "paddock")
    return Flag(name, kind, field, help, short=short, metavar=metavar, **more)  # type: ignore[arg-type]  # Flag's own


HELP = flag("help", "", "show this help", "h")
HELP_ALL = flag("help-all", "", "show all flags", group="Other")


class FlagTable:
    """The flags of a command. command: as typed after ``paddock``.

    foreign: what other tools call it -> the name here. goes_single: ``-name``, as in Go.
    """

    def __init__(
        self,
        command: str,
        flags: Iterable[Flag],
        foreign: Mapping[str, str] = {},
        *,
        goes_single: bool = False,
    ) -> None:
        own = tuple(flags)
        self.command = command
        self.flags = own if any(f.name == "help" for f in own) else (*own, HELP)
        self.foreign = foreign
        self.goes_single = goes_single
        self.by_name = {
            name.replace("-", "_"): f for f in reversed(self.flags) for name in (f.name, *f.aliases)
        }
        self.by_short = {f.short: f for f in reversed(self.flags) if f.short}

    def find(self, word: str) -> tuple[Flag, ...]:
        """The flags that a name without dashes may mean: one if it is clear, none if unknown.

        Exact names first, then unique beginnings as in argparse; where a beginning fits several,
        Paddle's own flags win, so that abbreviations which worked there work here.
        """
        name = word.replace("-", "_")
        if name in self.by_name:
            return (self.by_name[name],)
        if not name:
            return ()
        found = {f.name: f for known, f in self.by_name.items() if known.startswith(name)}
        if set(found) == {"help", HELP_ALL.name}:
            return (found["help"],)
        if len(found) > 1:
            own = [f for f in found.values() if f.origin == "paddle" and f.field]
            if len(own) == 1:
                return (own[0],)
        return tuple(f for f in self.flags if f.name in found)

    def meant(self, word: str) -> str:
        """A hint for a flag that is not in the table."""
        name = word.lstrip("-").replace("-", "_")
        name = self.foreign.get(name, name)
        if name in self.by_name:  # -nnodes
            return f"did you mean {self._near(name, word)}?"
        import difflib  # only in an error

        known = [n for n, f in self.by_name.items() if f.status != "hidden"]
        found = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
        if not found:  # a beginning with a mistake in it: --nprc
            begins = {one[: len(name) + 1]: one for one in reversed(known)}
            found = [begins[b] for b in difflib.get_close_matches(name, begins, n=1, cutoff=0.75)]
        found = found or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        if not found:
            return f"see paddock {self.command} --help"
        meant = {self.by_name[n].name: self._near(n, word) for n in reversed(found)}
        return f"did you mean {' or '.join(reversed(meant.values()))}?"

    def _near(self, name: str, word: str) -> str:
        """A flag by its key, spelled as the user spells."""
        return spelled(self.by_name[name].full_name(f"--{name}")[2:], word)


class ParsedFlag:
    """A flag that was given. name: complete, as the user knows it. words: as they were typed."""

    __slots__ = ("flag", "name", "text", "words")

    def __init__(self, flag: Flag, name: str, text: str, words: Sequence[str]) -> None:
        self.flag, self.name, self.text, self.words = flag, name, text, words


class ParsedLine:
    """The flags and other arguments of a command line.

    rest: the arguments that are no flags; with a script, it and its own. is_whole: False when an
    unknown flag made the rest uncertain, so that a missing script is not reported as well.
    """

    def __init__(self) -> None:
        self.flags: list[ParsedFlag] = []
        self.rest: list[str] = []
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.is_help = False
        self.is_whole = True

    def texts(self) -> dict[str, str]:
        """The last text of each flag that is not ignored, by Flag.key."""
        return {one.flag.key: one.text for one in self.flags if one.flag.status != "ignored"}

    def ignored(self) -> dict[str, str]:
        """The flags without effect that were given, and why they have none."""
        return {one.name: one.flag.help for one in self.flags if one.flag.status == "ignored"}


def read_line(argv: Sequence[str], table: FlagTable, *, has_script: bool = False) -> ParsedLine:
    """Split a command line into flags and the rest; a script ends it.

    >>> ports = FlagTable("x", [flag("num_servers", "N", ""), flag("dry-run", "", "")])
    >>> line = read_line(["--num-servers=2", "a", "--dry", "--", "-b"], ports)
    >>> line.texts(), line.rest
    ({'num_servers': '2', 'dry_run': '1'}, ['a', '-b'])
    """
    assert len(argv) <= MAX_WORDS
    line = ParsedLine()
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            line.rest += argv[at + 1 :]
            break
        if word.startswith("-") and word != "-":
            at = _take(line, table, argv, at)
            continue
        if has_script:
            line.rest += argv[at:]
            break
        line.rest.append(word)
        at += 1
    return line


def _take(line: ParsedLine, table: FlagTable, argv: Sequence[str], at: int) -> int:
    """Read the flag at ``at``; returns the position of the next argument."""
    begin, word = at, argv[at]
    name, equals, text = word.partition("=")
    found = table.find(name[2:]) if name.startswith("--") else ()
    if not name.startswith("--"):
        short = table.by_short.get(name[1:])
        long = table.by_name.get(name[1:].replace("-", "_")) if table.goes_single else None
        joined = table.by_short.get(word[1])
        if short is None and long is None and joined is not None and joined.kind != "switch":
            short, name, equals, text = joined, word[:2], "=", word[2:]  # -fjob.yaml, -r3
        found = tuple(f for f in (short or long,) if f is not None)
    at += 1
    if len(found) != 1:
        line.is_whole = False
        if found:
            names = ", ".join(spelled(f.name, name) for f in found)
            line.problems.append(Problem(f"{name} is ambiguous", f"it may be {names}"))
        else:
            line.problems.append(Problem(f"unknown flag {name}", table.meant(name)))
        if not equals and at < len(argv) and not _ends_a_flag(argv[at]):
            return at + 1  # the word after an unknown flag is more often its value than the script
        return at
    flag = found[0]
    if flag.name == "help" or flag is HELP_ALL:
        line.is_help = True
        line.flags += [ParsedFlag(flag, name, "1", (word,))] if flag is HELP_ALL else []
        return at
    name = flag.full_name(name)
    if not equals:
        taken = _value_after(flag, argv, at)
        if taken is None:
            hint = f"write {name} {flag.value}"
            line.is_whole = at < len(argv)
            if line.is_whole and _is_dashed_value(table, argv[at]):
                hint = f"a value that begins with a dash needs '=': {name}={argv[at]}"
                at += 1  # read as a flag it would be a second error, of something else
            line.problems.append(Problem(f"{name} needs a value", hint))
            return at
        text, used = taken
        at += used
    _keep(line, ParsedFlag(flag, name, text, argv[begin:at]))
    while flag.is_greedy and not equals and at < len(argv) and not argv[at].startswith("-"):
        _keep(line, ParsedFlag(flag, name, argv[at], argv[at : at + 1]))
        at += 1
    return at


def _keep(line: ParsedLine, new: ParsedFlag) -> None:
    before = next((one for one in line.flags if one.flag is new.flag), None)
    if before is not None and not new.flag.repeats and new.flag.status != "ignored":
        line.flags.remove(before)
        if before.text != new.text:
            line.notes.append(
                f"{new.name} is given twice: {before.name} {before.text}, "
                f"then {new.name} {new.text}; the last one is used"
            )
    line.flags.append(new)


def _value_after(flag: Flag, argv: Sequence[str], at: int) -> tuple[str, int] | None:
    """The value of a flag without "=" and how many arguments it took; None if it is missing."""
    if flag.kind == "switch":
        return "1", 0
    following = argv[at] if at < len(argv) else ""
    bare = "1" if flag.kind == "bool" else flag.bare
    if bare and (at >= len(argv) or _ends_a_flag(following) or "/" in following):
        return bare, 0
    if at >= len(argv):
        return None
    is_number = following[1:].replace(".", "", 1).isdigit()
    if following.startswith("-") and following != "-" and not is_number:
        return None
    if flag.kind in ("int", "seconds") and following.endswith(".py"):
        return None
    return following, 1


def _is_dashed_value(table: FlagTable, word: str) -> bool:
    """Return True if an argument with one dash is a value and no flag of the table: -rf."""
    name = word[1:].partition("=")[0]
    is_long = table.goes_single and name.replace("-", "_") in table.by_name
    return word[:1] == "-" != word[1:2] and name not in table.by_short and not is_long


def _ends_a_flag(word: str) -> bool:
    """Return True if an argument cannot be an optional value: another flag, or a script."""
    return word.startswith("-") or word.endswith(".py")


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a value outside a set: the one that is really near, else all of them.

    >>> nearest("colective", ("collective", "ps", "ps-heter", "rpc"))
    "did you mean 'collective'?"
    >>> nearest("nosuch", ("syn", "train"), "check the path")
    'check the path'
    """
    import difflib  # only in an error

    names = list(known)
    found = difflib.get_close_matches(word.lower(), [n.lower() for n in names], n=1, cutoff=NEAR)
    if found:
        return f"did you mean '{next(n for n in names if n.lower() == found[0])}'?"
    return otherwise or (f"choose one of {', '.join(names)}" if names else "")


def to_seconds(text: str) -> float | None:
    """A duration with units, or None.

    >>> to_seconds("90"), to_seconds("1h30m"), to_seconds("500ms"), to_seconds("5x")
    (90.0, 5400.0, 0.5, None)
    """
    rest, total = text.strip().lower(), 0.0
    units: list[str] = []
    while rest or not units:
        after = rest.lstrip("0123456789.")
        number = rest[: len(rest) - len(after)]
        rest = after.lstrip("dhms")
        unit = after[: len(after) - len(rest)]
        if number.count(".") > 1 or not number.strip(".") or unit not in (*UNITS, ""):
            return None
        total += float(number) * UNITS.get(unit, 1.0)
        units.append(unit)
    return total if units == [""] or "" not in units else None
