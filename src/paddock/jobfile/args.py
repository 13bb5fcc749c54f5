"""The arguments of ``paddock launch`` -> named texts. Their meaning is read elsewhere (reader.py).

Everything after the script belongs to the script. A bare boolean means true: Paddle demands a
value there, so ``--log_overwrite 1 train.py`` keeps its meaning and ``--log_overwrite train.py``
gets the obvious one; so does ``--warm train.py``.
"""

from __future__ import annotations

from paddock.command_line import read_line
from paddock.core.job import ValueSource
from paddock.core.secrets import without_login
from paddock.core.value import value
from paddock.jobfile.flags import LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.core.job import SourceKind


@value
class ArgValue:
    """A value as text, and its source."""

    text: str
    source: ValueSource


class LaunchArgs:
    """The flags, script and script arguments of one command line.

    values: by Flag.name, the last one wins. env: every --env. script: the first argument that is no
    flag; "" if there is none. is_whole: as in ParsedLine.
    """

    def __init__(self, argv: Sequence[str], kind: SourceKind) -> None:
        line = read_line(argv, LAUNCH, has_script=True)
        self.script = line.rest[0] if line.rest else ""
        self.script_args = tuple(line.rest[1:])
        self.problems, self.notes = line.problems, line.notes
        self.is_help, self.is_whole = line.is_help, line.is_whole
        self.ignored = line.ignored()
        self.values: dict[str, ArgValue] = {}
        self.env: list[str] = []
        for said in line.said:
            text = said.text
            if said.flag.name == "env":
                self.env.append(text)
                text = text.partition("=")[0]  # values may be secret: only the name is remembered
            if said.flag.status != "ignored":
                source = ValueSource(kind, said.name, without_login(text))
                self.values[said.flag.name] = ArgValue(text, source)


def read_words(argv: Sequence[str], kind: SourceKind = "flag") -> LaunchArgs:
    """Split a command line into flags, script and the script's own arguments.

    >>> w = read_words(["--gpu=0,1", "--nnodes", "2", "train.py", "--nnodes", "5"])
    >>> {n: g.text for n, g in w.values.items()}, w.script, w.script_args
    ({'devices': '0,1', 'nnodes': '2'}, 'train.py', ('--nnodes', '5'))
    """
    return LaunchArgs(argv, kind)


def record_of(argv: Sequence[str]) -> str:
    """The value of --record, even if the rest cannot be read; "" where it is not given."""
    given = read_words(argv).values.get("record")
    return given.text if given is not None else ""
