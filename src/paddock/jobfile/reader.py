"""Named texts -> checked values. Collects every problem instead of stopping at the first."""

from __future__ import annotations

from paddock.command_line import (
    FALSE_WORDS,
    NO_DURATION,
    TRUE_WORDS,
    nearest,
    spelled,
    to_seconds,
)
from paddock.core.endpoint import is_host, parse_endpoint
from paddock.core.job import ValueSource
from paddock.core.secrets import without_login
from paddock.errors import Problem, UsageError
from paddock.jobfile.flags import BY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.command_line import Flag
    from paddock.jobfile.args import ArgValue

DEFAULT = ValueSource("default")
# More than any real value; it keeps a typo from asking for a million processes.
MAX_COUNT = 100_000


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
            for field in fields or _fields(name):
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


def _fields(name: str) -> tuple[str, ...]:
    flag = BY_NAME.get(name)
    return flag.fields if flag else (name,)


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
