"""Words of the command line -> named texts. Knows the shapes of words, not their meaning.

Accepted: ``--flag value``, ``--flag=value``, unique beginnings, dashes for underscores, ``--``;
everything after the script belongs to the script. A bare boolean means true: Paddle demands a
value there, so ``--log_overwrite 1 train.py`` keeps its meaning and ``--log_overwrite train.py``
gets the obvious one; so does ``--warm train.py``.
"""

from __future__ import annotations

from paddock.core.job import Source
from paddock.core.secrets import without_login
from paddock.core.value import value
from paddock.errors import Problem
from paddock.jobfile.flags import BY_SHORT, find_flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.core.job import SourceKind
    from paddock.jobfile.flags import Flag

# The words of distutils.util.strtobool, which Paddle's launcher uses.
TRUE_WORDS = frozenset(("y", "yes", "t", "true", "on", "1"))
FALSE_WORDS = frozenset(("n", "no", "f", "false", "off", "0"))
MAX_WORDS = 1_000_000


@value
class Given:
    """One value as text, and where it stood."""

    text: str
    source: Source


class Words:
    """What the words of one command line say.

    values: by Flag.name, the last one wins. env: every --env. script: the first word that is not
    a flag; "" if there is none. ignored: flags without effect. is_whole: False when an unknown
    flag made the rest uncertain, so that a missing script is not reported as well.
    """

    def __init__(self) -> None:
        self.values: dict[str, Given] = {}
        self.env: list[str] = []
        self.script = ""
        self.script_args: tuple[str, ...] = ()
        self.ignored: list[tuple[str, Flag]] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self.is_help = False
        self.is_whole = True


def read_words(argv: Sequence[str], kind: SourceKind = "flag") -> Words:
    """Split a command line into flags, script and the script's own words.

    >>> w = read_words(["--gpu=0,1", "--nnodes", "2", "train.py", "--nnodes", "5"])
    >>> {n: g.text for n, g in w.values.items()}, w.script, w.script_args
    ({'devices': '0,1', 'nnodes': '2'}, 'train.py', ('--nnodes', '5'))
    """
    assert len(argv) <= MAX_WORDS
    words = Words()
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            _take_script(words, argv, at + 1)
            return words
        if not word.startswith("-") or word == "-":
            _take_script(words, argv, at)
            return words
        at = take_flag(words, argv, at, kind)
    return words


def _take_script(words: Words, argv: Sequence[str], at: int) -> None:
    if at < len(argv):
        words.script = argv[at]
        words.script_args = tuple(argv[at + 1 :])


def take_flag(words: Words, argv: Sequence[str], at: int, kind: SourceKind) -> int:
    """Read the flag at ``at``; returns the position of the next word."""
    word = argv[at]
    name, equals, text = word.partition("=")
    found = find_flag(name[2:]) if name.startswith("--") else ()
    if not name.startswith("--"):
        short = BY_SHORT.get(name[1:])
        if short is None and word[1] in BY_SHORT and BY_SHORT[word[1]].kind != "switch":
            # -fjob.yaml, -r3
            short, name, equals, text = BY_SHORT[word[1]], word[:2], "=", word[2:]
        found = (short,) if short else ()
    if len(found) != 1:
        _report_unclear(words, name, found)
        if not equals and at + 1 < len(argv) and not _ends_a_flag(argv[at + 1]):
            return at + 2  # the word after an unknown flag is more often its value than the script
        return at + 1
    flag = found[0]
    if flag.name == "help":
        words.is_help = True
        return at + 1
    at += 1
    if not equals:
        taken = _value_after(flag, argv, at)
        if taken is None:
            words.problems.append(
                Problem(f"{name} needs a value", f"write {name} {flag.metavar or 'VALUE'}")
            )
            words.is_whole = at < len(argv)
            return at
        text, used = taken
        at += used
    _keep(words, flag, name, text, kind)
    return at


def _value_after(flag: Flag, argv: Sequence[str], at: int) -> tuple[str, int] | None:
    """The value of a flag without "=" and how many words it took; None if it is missing."""
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


def _ends_a_flag(word: str) -> bool:
    """Whether a word cannot be the value of what may have none: another flag, or a script."""
    return word.startswith("-") or word.endswith(".py")


def _keep(words: Words, flag: Flag, name: str, text: str, kind: SourceKind) -> None:
    if flag.name == "env":
        words.env.append(text)
        text = text.partition("=")[0]  # values may be secret: only the name is remembered
    if flag.status == "ignored":
        words.ignored.append((name, flag))
        return
    before = words.values.get(flag.name)
    if before is not None and before.text != text and flag.name != "env":
        words.notes.append(
            f"{name} is given twice: {before.source.name} {before.text}, "
            f"then {name} {text}; the last one is used"
        )
    words.values[flag.name] = Given(text, Source(kind, full_name(flag, name), without_login(text)))


def full_name(flag: Flag, word: str) -> str:
    """The complete name behind an abbreviated or dashed flag, as the user would know it.

    >>> from paddock.jobfile.flags import BY_NAME
    >>> full_name(BY_NAME["devices"], "--gpu"), full_name(BY_NAME["trainers"], "--workers")
    ('--gpus', '--workers')
    """
    if not word.startswith("--"):
        return word
    name = word[2:].replace("-", "_")
    for known in (flag.name, *flag.aliases):
        if known == name:
            return "--" + known
    for known in (flag.name, *flag.aliases):
        if known.startswith(name):
            return "--" + known
    return word


def _report_unclear(words: Words, name: str, found: tuple[Flag, ...]) -> None:
    words.is_whole = False
    if found:
        names = ", ".join("--" + f.name for f in found)
        words.problems.append(Problem(f"{name} is ambiguous", f"it may be {names}"))
        return
    from paddock.jobfile.suggest import nearest_flags  # costs difflib: only in an error

    words.problems.append(Problem(f"unknown flag {name}", nearest_flags(name)))
