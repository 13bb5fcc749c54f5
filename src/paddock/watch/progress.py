"""Read a training script's progress from its log lines: step, epoch, loss, rate. Pure.

A profile knows the lines of one library. The first profile that reads a line of a rank is used; any
later line that another profile reads changes it, so a script may change its library on the way.
Sources are the libraries' own lines, captured under tests/watch/golden.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from math import isfinite

from paddock.core.value import value
from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

LINES_MAX = 60  # read of one look, from the last
LINE_BYTES_MAX = 2000  # the rest of a longer line is not read
VALUES_MAX = 24  # of one line
REPEATS_MAX = 9  # of what repeats without a limit itself, in a user's profile
WHOLE_MAX = 1e18  # a larger number is damage
PROFILE_BYTES_MAX = 1 << 20
TRACKERS = {  # words of their lines; whether any address there is a run's
    "wandb": False, "swanlab": False, "comet": True, "mlflow": False, "tensorboard": True,
    "aim ui": True, "view run": False,
}  # fmt: skip

NUMBER = r"[-+]?(?:(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan\b|inf(?:inity)?\b)"


@value
class ProgressReading:
    """The progress that one line tells.

    steps: of the epoch or the run, as the line tells it. rate: per second, of rate_unit.
    values: loss, learning rate and whatever else the line has with a name, in its order.
    """

    profile: str
    step: int | None = None
    steps: int | None = None
    epoch: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    values: tuple[tuple[str, float], ...] = ()


@value
class LineProfile:
    """The lines of one library. hints: one of them is in such a line, in lower case.

    pattern: matched against the line; its groups step, steps, epoch, rate and unit are read.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _profile(name: str, hints: tuple[str, ...], pattern: str) -> LineProfile:
    return LineProfile(name, hints, re.compile(pattern.replace("NUMBER", NUMBER), re.IGNORECASE))


# The bar of tqdm: " 45%|####5     | 45/100 [00:10<00:12,  4.50it/s, loss=0.2]".
_BAR = (
    r"(?P<step>\d+)/(?P<steps>\d+|\?) \[[\d:]+<[\d:?]+,?\s*"
    r"(?:(?P<rate>NUMBER|\?)\s*(?P<unit>[\w.]+/s|s/[\w.]+))?"
)
PROFILES = (
    _profile("paddlenlp", ("global_step",), r"(?=.*\bloss\b).*?global_step: (?P<step>\d+)"),
    _profile(
        "paddle", ("batch_id", "ips:", "[iter:", "ms/step", "sec/step"),
        r".*?(?:epoch:? \[?(?P<epoch>\d+)(?:/\d+)?\]?,? ?)?"
        r"(?:batch_id: |\[iter: ?|(?<=\] )\[ *|(?<!\w)step +)(?P<step>\d+)(?:/(?P<steps>\d+))?",
    ),
    _profile(
        "megatron", ("iteration",),
        r".*?\biteration +(?P<step>\d+)/ *(?P<steps>\d+) \|.*elapsed time per iteration",
    ),
    _profile(
        "huggingface", ("'epoch':", '"epoch":'),
        r"\{(?=.*'(?:loss|train_loss|eval_loss)').*'epoch': '?(?P<epoch>NUMBER)",
    ),
    _profile("lightning", ("epoch",), r".*?Epoch (?P<epoch>\d+)(?:/\d+)?:? +\d+%\|.*?\| " + _BAR),
    _profile(
        "keras", ("/step", "s/epoch"),
        r".*?(?P<step>\d+)/(?P<steps>\d+) .{3,80}? \d+\w*(?: \d+\w+/step)?",
    ),
    _profile("tqdm", ("it/s", "s/it", "/s]", "/s,", "?it"), r".*?\| " + _BAR),
    _profile(
        "pytorch-example", ("train epoch:",),
        r".*?Train Epoch: (?P<epoch>\d+) \[(?P<step>\d+)/(?P<steps>\d+)",
    ),
    _profile(
        "plain", ("step", "iter", "batch", "epoch"),
        r".*?(?<![\w-])(?:epochs?\W{0,3}(?P<epoch>\d+(?:\.\d+)?)(?:\s*/\s*\d+)?\]?.*?)?"
        r"(?<![\w-])(?:global[ _]step|step|iteration|iter|batch)s?\W{0,3}(?P<step>\d+)"
        r"(?:\s*(?:/|of)\s*(?P<steps>\d+))?(?![\d.]*\s*(?:ms|s|sec|seconds)\b)",
    ),
    _profile(
        "plain", ("epoch",),
        r".*?(?<![\w-])epoch\W{0,3}(?P<epoch>\d+(?:\.\d+)?)(?=.*\bloss\b)",
    ),
)  # fmt: skip

# No part of it may repeat without a limit beside another: a match keeps all threads waiting. The
# number is in a lookahead, which is never tried again with fewer digits.
_PAIR = re.compile(
    r"(?<![A-Za-z])(?P<name>[A-Za-z][\w/.@-]{0,60}(?: [A-Za-z][\w/.@-]{0,60}){0,5})"
    r"(?: \([\w/ ]{1,30}\))?['\"]?\s{0,9}[:=]?\s{0,9}['\"]?"
    rf"(?=(?P<number>{NUMBER}))(?P=number)(?![\w.]{{0,60}}[/:\d])"
    r"(?P<unit> ?(?:[A-Za-z]{1,30}/s(?:ec)?))?"
)
# A number after it is a metric: "TestError: 0.3 step 5".
_RAISED = re.compile(r"\b[A-Z]\w{0,60}(?:Error|Exception|Warning): (?![-\d.])|\braise [A-Z]")
_SPEED = re.compile(rf"(?<![\d,.])({NUMBER}) ?([A-Za-z]{{1,30}}/s(?:ec)?)(?![\w/])")
# wandb: wandb/sdk/wandb_run.py; MLflow: mlflow/tracking/fluent.py "View run"; TensorBoard and Aim
# print where they listen; Comet: "Experiment is live on comet.com"; SwanLab: "View run at".
_URL = re.compile(rb"(https?://)(?:[^\s/@]*@)?([\w.:/#%~@+-]+[\w/])", re.IGNORECASE)
_COLOURS = re.compile(rb"\x1b\[[\d;]{0,40}m")  # ECMA-48, SGR
_LOSS = ("loss", "train_loss", "lm loss", "training loss", "train loss", "avg_loss", "cost")
_RATES = {
    "ips": "", "tps": "tokens/s", "speed": "", "samples_per_second": "samples/s",
    "interval_samples_per_second": "samples/s", "train_samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s", "throughput": "", "samples/s": "samples/s",
    "examples/s": "examples/s", "tokens/s": "tokens/s", "images/s": "images/s",
    "steps/s": "steps/s", "it/s": "it/s",
}  # fmt: skip
_POSITIONS = (
    "step", "steps", "global_step", "global step", "iter", "iteration", "epoch", "epochs",
    "batch", "batch_id",
)  # fmt: skip


def read_line(line: str, own: Sequence[LineProfile] = ()) -> ProgressReading | None:
    """Read one line; None for a line that tells no progress. own: the user's profiles, first.

    >>> read_line("step 30: loss 0.25, lr=1e-3")
    ProgressReading(profile='plain', step=30, steps=None, epoch=None, rate=None, rate_unit='', \
values=(('loss', 0.25), ('lr', 0.001)))
    >>> read_line("step 3 of the installation") is None
    True
    """
    lowered = line.lower()
    for profile in (*own, *PROFILES):
        if not any(hint in lowered for hint in profile.hints):
            continue
        match = profile.pattern.match(line)
        if match is None:
            continue
        found = match.groupdict()
        values, rate, unit = _values(line)
        if found.get("rate"):
            rate, unit = _number(found["rate"]), found.get("unit") or ""
            if unit.startswith("s/"):
                rate, unit = 1 / rate if rate else None, f"{unit[2:]}/s"
        is_empty = not values and rate is None  # "step 3 of the installation"
        if profile.name == "plain" and (is_empty or _RAISED.search(line)):
            continue
        return ProgressReading(
            profile.name, _whole(found.get("step")), _whole(found.get("steps")),
            _finite(_number(found.get("epoch"))), _finite(rate), unit, values,
        )  # fmt: skip
    return None


def read_tail(tail: bytes, own: Sequence[LineProfile] = ()) -> ProgressReading | None:
    """Read the latest line of progress among a log's last bytes, its last line included.

    >>> read_tail(b"step 1 loss=3\\nstep 2 loss=2\\nsaved\\n").step
    2
    """
    readings = (read_line(line, own) for line in _last_lines(tail))
    return next((reading for reading in readings if reading is not None), None)


def read_reports(data: bytes) -> ProgressReading | None:
    """The latest value of each name in some reports (rank.py), a line each; None without any.

    >>> read_reports(b'{"step": 3, "loss": NaN, "who": "me"}\\n[]\\n{"accuracy": 1}').values
    (('loss', nan), ('accuracy', 1))
    >>> read_reports(b'{"step": 3, "steps": 9}').steps
    9
    """
    found: dict[str, float] = {}
    for line in data.splitlines():
        try:
            found |= {
                str(name)[:80]: number
                for name, number in json.loads(line).items()
                if isinstance(number, float) or (type(number) is int and abs(number) < WHOLE_MAX)
            }
        except (ValueError, AttributeError, RecursionError):
            continue
    if not found:
        return None
    step, steps, epoch = (found.pop(name, None) for name in ("step", "steps", "epoch"))
    values = (*found.items(),)[:VALUES_MAX]
    return ProgressReading(
        "paddock.report", _whole(step), _whole(steps), _finite(epoch), values=values
    )


def own_profiles(text: str) -> tuple[list[LineProfile], list[str]]:
    """Read a user's profiles, a line each: a name, then a regular expression with named groups.

    Returns the profiles, and what is wrong with the other lines.

    >>> own_profiles("mine  round (?P<step>[0-9]+)")[0][0].name
    'mine'
    """
    profiles, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        name, _, pattern = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        try:
            compiled = re.compile(".*?(?:" + pattern.strip() + ")")
        except (re.error, OverflowError, RecursionError) as error:
            wrong.append(f"line {number}: {error}")
            continue
        if _is_nested(_parsed(compiled.pattern)):
            wrong.append(f"line {number}: a repeat in a repeat may take years: write {{0,9}}")
        elif "step" in compiled.groupindex or "epoch" in compiled.groupindex:
            profiles.append(LineProfile(name, ("",), compiled))
        else:
            wrong.append(f"line {number}: no group (?P<step>...) or (?P<epoch>...)")
    return profiles, wrong


def _parsed(pattern: str) -> object:
    """A regular expression as Python's parser sees it: tuples and sequences of them."""
    name = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
    return import_module(name).parse(pattern)


def _is_nested(node: Any, is_inside: bool = False) -> bool:
    """Return True for "(a+)+": while such a match lasts, nothing could stop the launcher."""
    if isinstance(node, tuple) and repr(node[0]) in ("MAX_REPEAT", "MIN_REPEAT"):
        _, most, inner = node[1]
        is_open = most > REPEATS_MAX
        return (is_inside and is_open) or _is_nested(inner, is_inside or is_open)
    if isinstance(node, str) or not hasattr(node, "__getitem__"):
        return False
    return any(_is_nested(each, is_inside) for each in node)


def load_profiles(path: str) -> list[LineProfile]:
    """The user's profiles in a file; [] without it. Raises UsageError with all that is wrong."""
    try:
        with open(path, encoding="utf-8") as file:
            profiles, wrong = own_profiles(file.read(PROFILE_BYTES_MAX))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if wrong:
        hint = "a line is a name, a space, and a regular expression of Python's re"
        raise UsageError.of([Problem(f"{path}: {each}", hint) for each in wrong])
    return profiles


def find_trackers(text: bytes) -> list[tuple[str, str]]:
    """The addresses of experiment trackers among log lines: their names and URLs.

    What stands before @ or behind ? in a URL may be a secret, and is left out.

    >>> find_trackers(b"wandb: View run at https://wandb.ai/me/p/runs/1x?apiKey=2\\n")
    [('wandb', 'https://wandb.ai/me/p/runs/1x')]
    """
    found: dict[tuple[str, str], None] = {}
    for line in text.splitlines() if b"://" in text else ():
        name = next((n for n in TRACKERS if n.encode() in line.lower()), "")
        if b"://" not in line or not name:
            continue
        for match in _URL.finditer(line):
            url = (match[1] + match[2]).decode("ascii", "replace")
            if TRACKERS[name] or "/runs/" in url or "/experiments/" in url:
                found[name.replace("view run", "mlflow").replace("aim ui", "aim"), url] = None
    return list(found)


def _last_lines(tail: bytes) -> Iterator[str]:
    """The last lines, latest first. A bar redraws its line with a carriage return."""
    tail = _COLOURS.sub(b"", tail)
    end, count = len(tail), 0
    while end > 0 and count < LINES_MAX:
        begin = max(tail.rfind(b"\n", 0, end), tail.rfind(b"\r", 0, end)) + 1
        if begin < end:
            count += 1
            yield tail[begin : min(end, begin + LINE_BYTES_MAX)].decode("utf-8", "replace")
        end = begin - 1


def _values(line: str) -> tuple[tuple[tuple[str, float], ...], float | None, str]:
    """The named numbers of a line, without positions; its rate, and the unit of that."""
    found: dict[str, float] = {}
    rate, unit = None, ""
    for match in _PAIR.finditer(line):
        name = match["name"].lower()
        number = _number(match["number"])
        if number is None or name in _POSITIONS:
            continue
        if name in _RATES:
            rate, unit = number, (match["unit"] or _RATES[name]).strip()
            continue
        name = "loss" if name in _LOSS and "loss" not in found else name
        if len(found) < VALUES_MAX and name not in found:
            found[name] = number
    if rate is None and (speed := _SPEED.search(line)):
        rate, unit = _number(speed[1]), speed[2]
    return tuple(found.items()), rate, unit


def _number(text: str | float | None) -> float | None:
    try:
        return float(str(text).replace(",", ""))
    except ValueError:
        return None


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None


def _whole(text: str | float | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and abs(number) < WHOLE_MAX else None
