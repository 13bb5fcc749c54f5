"""The named texts of a job, from a command line and the environment, and their checked values.

LaunchArgs: a command line -> texts by the name of their flag. EnvironmentReading: adds those of
variables (the rules are in environment.py). FieldReader: texts -> values of a Job.

Everything after the script belongs to the script. A bare boolean means true: Paddle demands a
value there, so ``--log-overwrite 1 train.py`` keeps its meaning and ``--log-overwrite train.py``
gets the obvious one; so does ``--warm train.py``.
"""

from __future__ import annotations

from paddock.command_line import (
    FALSE_WORDS,
    NO_DURATION,
    TRUE_WORDS,
    nearest,
    read_line,
    spelled,
    to_seconds,
)
from paddock.core.endpoint import is_host, parse_endpoint, without_login
from paddock.core.job import Entrypoint, ValueSource, make_command
from paddock.core.value import value
from paddock.errors import Problem, UsageError
from paddock.jobfile.flags import BY_NAME, LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from paddock.command_line import Flag, FlagTable

DEFAULT = ValueSource("default")
# More than any real value; it keeps a typo from asking for a million processes.
MAX_COUNT = 100_000
OTHER_MASTERS = ("rdzv_endpoint", "master_addr", "elastic_server")
NODE_LISTS = ("ips", "servers", "trainers", "heter_workers")  # they name the nodes themselves
# Flags that decide a value under another name: a variable for that value is not used beside them.
DECIDED_BY = {
    "master": (*OTHER_MASTERS, "standalone"),
    "ips": ("master", *OTHER_MASTERS, "standalone"),
    "nnodes": ("ips", "standalone"),
    "trainer_num": ("nproc_per_node",),
    "log_level": ("quiet",),
}

# A rank started by a launcher sees the outer job's contract. A launcher inside it must not take
# that for its own configuration. Inside a rank of ours nothing is
# read; Paddle's launcher leaves its own configuration to its ranks as well, and only what it set
# for the rank can be told apart.
OWN_SIGN = "PADDOCK_ATTEMPT"
NESTED_SIGNS = ("PADDLE_LOCAL_RANK", "PADDLE_ROLE")
SET_FOR_RANKS = frozenset(
    (
        "PADDLE_TRAINER_ID", "POD_IP", "PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_LOG_DIR",
        "PADDLE_WITH_GLOO", "PADDLE_TRAINER_ENDPOINTS", "DISTRIBUTED_TRAINER_ENDPOINTS",
        "PADDLE_PORT", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_HETER_ENDPOINTS", "TRAINING_ROLE",
        "PADDLE_TRAINING_ROLE", "PADDLE_TRAINERS",
    )
)  # fmt: skip
TORCHRUN_RANK = "TORCHELASTIC_RUN_ID"  # set by torchrun for its ranks


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
        for one in line.flags:
            text = one.text
            if one.flag.name == "env":
                self.env.append(text)
                text = text.partition("=")[0]  # values may be secret: only the name is remembered
            if one.flag.status != "ignored":
                source = ValueSource("flag", one.name, without_login(text))
                self.values[one.flag.name] = ArgValue(text, source)

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
    """The value of --record, even if the rest cannot be read; "" where none is kept."""
    values = LaunchArgs(argv).values
    return values["record"].text if "record" in values and "dry_run" not in values else ""


class EnvironmentReading:
    """The values with the environment's added. values: as LaunchArgs.values, changed in place."""

    def __init__(self, values: dict[str, ArgValue], env: Mapping[str, str]) -> None:
        self.values = values
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self.overridden: dict[str, list[str]] = {}  # variable -> flags that it wins over
        self.is_nested = any(env.get(n) for n in NESTED_SIGNS)
        skipped = SET_FOR_RANKS if self.is_nested else frozenset()
        self.env: dict[str, str] = {}
        if not env.get(OWN_SIGN):
            self.env = {n: t for n, t in env.items() if t and n not in skipped}

    def get(self, name: str) -> str:
        """The variable's text, "" if it is absent or describes an outer job."""
        return self.env.get(name, "")

    def fill(self, name: str, variable: str, text: str) -> None:
        """Set a value that no flag has set; a flag that says something else is noted."""
        for flag in (name, *DECIDED_BY.get(name, ())):
            given = self.values.get(flag)
            if given is None or given.source.kind == "environment":
                continue
            if flag != name or given.text != text:
                self.notes.append(
                    f"{variable}={without_login(self.get(variable))} is not used: "
                    f"{_flag_text(given)} is given"
                )
            return
        self._set(name, variable, text)

    def override(self, name: str, variable: str, text: str) -> None:
        """Set a value, whatever the flags say: for the variables that win."""
        for flag in (name, *(OTHER_MASTERS if name == "master" else ())):
            given = self.values.get(flag)
            if given is not None and (flag != name or given.text != text):
                self.set_aside(flag, variable)
        self._set(name, variable, text)

    def set_aside(self, name: str, variable: str) -> None:
        """Remove a flag's value because of a variable; noted once for each variable."""
        given = self.values.pop(name, None)
        if given is not None and given.source.kind != "environment":
            self.overridden.setdefault(variable, []).append(_flag_text(given))

    def _set(self, name: str, variable: str, text: str) -> None:
        source = ValueSource("environment", variable, without_login(self.get(variable)))
        self.values[name] = ArgValue(text, source)


def _flag_text(given: ArgValue) -> str:
    """The flag as it was given.

    >>> _flag_text(ArgValue("1", ValueSource("flag", "--standalone", "1")))
    '--standalone'
    """
    flag = BY_NAME.get(given.source.name.lstrip("-"))
    is_switch = flag is not None and flag.kind == "switch"
    return given.source.name if is_switch else f"{given.source.name} {given.source.text}"


class FieldReader:
    """Turns the given texts into values; remembers where each Job field came from."""

    def __init__(self, values: dict[str, ArgValue]) -> None:
        self.values = values
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.sources: dict[str, ValueSource] = {}

    def has(self, name: str) -> bool:
        """Return True if the value is given; an empty text counts as absent, as in Paddle."""
        given = self.values.get(name)
        return given is not None and given.text != ""

    def source(self, name: str) -> ValueSource:
        """The source of the value: flag, variable, file or default."""
        return self.values[name].source if self.has(name) else DEFAULT

    def label(self, name: str) -> str:
        """The value as the user wrote it: "--rank 7" or "PADDLE_RANK=7"."""
        given = self.values.get(name)
        if given is None:
            return spelled(name)
        joint = "=" if given.source.kind == "environment" else " "
        return f"{given.source.name}{joint}{without_login(given.text)}"

    def fault(self, name: str, what: str, hint: str = "") -> None:
        """Report a problem with a value that was given."""
        self.problems.append(Problem(f"{self.label(name)}: {what}", hint))

    def note_source(self, name: str, *fields: str) -> None:
        """Remember that a value decides these Job fields; without any, those of its flag."""
        if self.has(name):
            flag = BY_NAME.get(name)
            for field in fields or (flag.fields if flag else (name,)):
                self.sources[field] = self.source(name)

    def plain(self, flag: Flag) -> object:
        """The value of a flag as its kind says; "" or None where nothing, or nothing right, is."""
        if flag.kind == "choice":
            return self.choice(flag.name, flag.choices, "")
        if flag.kind in ("switch", "bool"):
            return self.boolean(flag.name)
        if flag.kind == "seconds":
            return self.seconds(flag.name, 0.0)
        return self.port(flag.name) if flag.metavar == "PORT" else self.text(flag.name)

    def take(self, name: str) -> str:
        """The text that is given, as it stands; "" where none is. Its source is noted."""
        self.note_source(name)
        return self.values[name].text if self.has(name) else ""

    def text(self, name: str, default: str = "") -> str:
        """The text, blanks around it removed."""
        return self.take(name).strip() if self.has(name) else default

    def items(self, name: str) -> tuple[str, ...]:
        """A comma list; an empty item is a problem."""
        text = self.take(name)
        items = tuple(i.strip() for i in text.strip().rstrip(",").split(",")) if text else ()
        if not all(items):
            self.fault(name, "an item of the list is empty", "separate items by one comma")
        return tuple(i for i in items if i)

    def check_host(self, name: str, host: str) -> str:
        """The host, brackets taken off; a problem where it is none."""
        host = host.strip("[]")
        if not is_host(host):
            self.fault(name, f"'{host}' is not a host name or address")
        return host

    def endpoint(self, name: str, text: str, default: int = 0) -> tuple[str, int] | None:
        """Host and port of an endpoint in this value, None when it is wrong."""
        try:
            return parse_endpoint(text, default)
        except UsageError as error:
            self.fault(name, error.message, error.hint)
            return None

    def integer(self, name: str, low: int, high: int = MAX_COUNT) -> int | None:
        """A whole number in low..high; None when absent or wrong."""
        text = self.take(name)
        found = to_integer(text)
        if text and found is None:
            self.fault(name, "not a whole number", f"write a number in {low}..{high}")
        elif found is not None and not low <= found <= high:
            self.fault(name, f"not in {low}..{high}")
            return None
        return found

    def port(self, name: str) -> int | None:
        """A port number, None when absent or wrong."""
        return self.integer(name, 1, 65535)

    def seconds(self, name: str, default: float, *, is_zero_allowed: bool = True) -> float:
        """A duration such as 30, 0.5, 500ms, 5m, 1h30m; the default when absent or wrong."""
        text = self.take(name)
        found = to_seconds(text)
        if text and found is None:
            self.fault(name, "not a duration", NO_DURATION)
        elif found == 0 and not is_zero_allowed:
            self.fault(name, "must be more than 0")
            return default
        return default if found is None else found

    def boolean(self, name: str) -> bool:
        """A boolean, spelled as for strtobool; False when absent or wrong."""
        word = self.take(name).strip().lower()
        if self.has(name) and word not in TRUE_WORDS and word not in FALSE_WORDS:
            self.fault(name, "neither true nor false", "write 1 or 0")
        return word in TRUE_WORDS

    def choice(self, name: str, known: Iterable[str], default: str, hint: str = "") -> str:
        """A value out of a few; case does not matter. hint: for a value that is near to none."""
        if not self.has(name):
            return default
        word = self.take(name).strip()
        for candidate in known:
            if candidate.lower() == word.lower():
                return candidate
        flag = BY_NAME.get(name)
        if flag and flag.bare and word.lower() in (*TRUE_WORDS, *FALSE_WORDS):  # PADDOCK_WARM=1
            return flag.bare if word.lower() in TRUE_WORDS else default
        self.fault(name, "not one of its values", nearest(word, known, hint))
        return default


def to_integer(text: str) -> int | None:
    """A whole number in ASCII digits, with an optional sign.

    >>> to_integer(" 7 "), to_integer("-1"), to_integer("1.5"), to_integer("1_0")
    (7, -1, None, None)
    """
    text = text.strip()
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return int(text)
