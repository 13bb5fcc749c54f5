"""The arguments of ``paddock launch`` -> named texts. Their meaning is read elsewhere (reader.py).

Everything after the script belongs to the script. A bare boolean means true: Paddle demands a
value there, so ``--log-overwrite 1 train.py`` keeps its meaning and ``--log-overwrite train.py``
gets the obvious one; so does ``--warm train.py``.
"""

from __future__ import annotations

from paddock.command_line import TRUE_WORDS, read_line
from paddock.core.job import Entrypoint, ValueSource, make_command
from paddock.core.secrets import without_login
from paddock.core.value import value
from paddock.jobfile.flags import LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.command_line import FlagTable


@value
class ArgValue:
    """A value as text, and its source."""

    text: str
    source: ValueSource


class LaunchArgs:
    """The flags, script and script arguments of one command line.

    values: by Flag.name, the last one wins. env: every --env. script: the first argument that is no
    flag; "" if there is none. is_whole: as in ParsedLine.

    >>> w = LaunchArgs(["--gpu=0,1", "--nnodes", "2", "train.py", "--nnodes", "5"])
    >>> {n: g.text for n, g in w.values.items()}, w.script, w.script_args
    ({'devices': '0,1', 'nnodes': '2'}, 'train.py', ('--nnodes', '5'))
    """

    def __init__(self, argv: Sequence[str], table: FlagTable = LAUNCH) -> None:
        line = read_line(argv, table, has_script=True)
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
                source = ValueSource("flag", said.name, without_login(text))
                self.values[said.flag.name] = ArgValue(text, source)

    def command(self, python: str) -> Entrypoint:
        """The command that every process runs."""
        if is_set(self.values, "run_path"):
            return Entrypoint("script", self.script, self.script_args, python)
        kinds = (is_set(self.values, "module"), is_set(self.values, "no_python"))
        return make_command(self.script, self.script_args, python, *kinds)


def is_set(values: Mapping[str, ArgValue], name: str) -> bool:
    """Return True if a switch is given, and not as false."""
    return name in values and values[name].text.lower() in TRUE_WORDS


def record_of(argv: Sequence[str]) -> str:
    """The value of --record, even if the rest cannot be read; "" where it is not given."""
    given = LaunchArgs(argv).values.get("record")
    return given.text if given is not None else ""
