"""The termination message of a launcher in a pod, and what the last lines of others say. No I/O.

The kubelet reads the message from a file of the container; the operator and `paddock status` read
it in the status of the pod. Its last line is a sentence for people. The line before it, of JSON,
says the same in fields: which rank failed (root cause), on which host, and whether that was in this
pod, since every launcher of a job ends with the same verdict.

Of containers without such a message the kubelet gives the end of the log. `read_end` takes it from
there: of torchrun, of Paddle's launcher, and of our own launchers before they wrote messages.
"""

from __future__ import annotations

import json
import re

from paddock.core.attempt.exits import EXIT_EXCEPTION
from paddock.core.hosts import ROLE_NOUNS
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.core.attempt.exits import Exit
    from paddock.core.value import ExitCode, RankOrNone

KEY = "paddock"  # of the line of JSON: the version of its fields
VERSION = 1
ERROR_CHARACTERS = 300
MESSAGE_LINES = 3  # of an exception, below its first
SENTENCE_CHARACTERS = 1000
# Of the kubelet's 4,096 (MaxContainerTerminationMessageLength); a sentence needs its place as well.
FIELDS_BYTES = 2000
# torch/distributed/elastic/multiprocessing/errors/__init__.py, ChildFailedError.format_msg
TORCHRUN = "Root Cause (first observed failure):"
TORCHRUN_FIELD = re.compile(r"^\s+(host|rank|exitcode|traceback)\s*: (.*)$", re.MULTILINE)
# paddle/distributed/launch/job/container.py, Container.__str__; controllers/controller.py
PADDLE_FAILED = re.compile(r"Container rank (\d+) status failed .*?code (-?\d+)", re.DOTALL)
LAUNCH_LINE = re.compile(r"^LAUNCH [A-Z]+ \d{4}-\d\d-\d\d [\d:,]+ ?")
# Our own: text.culprit_text, as the log has it.
SCREEN_LINE = re.compile(r"^(?:\d{4}-\d\d-\d\d [\d:]+ )?paddock: (?!error: )")
FIRST_FAILURE = re.compile(
    r"first failure: (rank|server|heter worker) (\d+)(?: \(pid \d+\))? on (\S+) (.*)"
)
HOW_CODE = re.compile(r"exited with code (\d+)")
# The last line of a traceback: "ValueError: no", "torch.cuda.OutOfMemoryError: ...", "KeyError".
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?$")
PREFIX = re.compile(r"^\[[\w-]*rank\d+\]: ?")  # of torch: "[rank0]: "
# What no restart mends: the interpreter's own words, exceptions of its compiler and its imports,
# and the last line below a usage, as argparse and click write it.
NO_PROGRAM = re.compile(r"^\S*python[\d.]*: (can't open file |No module named )")
NO_CODE = ("ModuleNotFoundError", "ImportError", "SyntaxError", "IndentationError", "TabError")
USAGE = re.compile(r"^usage: ", re.IGNORECASE)
USAGE_ERROR = re.compile(r"^(\S+: error|Error): ")
EXIT_USAGE = 2  # of argparse, click, getopt's examples, and Python itself
FRAME = re.compile(r'^ +File ".*", line \d+')
# The head of an exception group, and the margins of what is in it. Source: Lib/traceback.py.
GROUP = "  + Exception Group Traceback (most recent call last):"
GROUP_MARGIN = re.compile(r"^ +\| ")


@value
class LastWords:
    """The end of a container in its own last words.

    error: the line that says why, "" for none. is_here: whether the root cause was in this
    container, None where that is not known. role, rank, host, code, cause: of the root cause, as in
    Exit (code: exit code, 128 and more for a signal); rank -1 and host "" where nothing names them.
    exits: (role, rank, state, exit code) of the ranks of this pod.
    """

    error: str = ""
    is_here: bool | None = None
    role: str = "worker"
    rank: RankOrNone = -1
    host: str = ""
    code: ExitCode | None = None
    cause: str = ""
    exits: tuple[tuple[str, int, str, int], ...] = ()

    @property
    def name(self) -> str:
        """The name of the root cause: "rank 1", "server 0", "" where it is not known."""
        return f"{ROLE_NOUNS.get(self.role, self.role)} {self.rank}" if self.rank >= 0 else ""

    @property
    def clause(self) -> str:
        """The root cause for a longer sentence: "rank 1 on a: ValueError: no".

        >>> LastWords("ValueError: no", False, "worker", 1, "job-worker-1").clause
        'rank 1 on job-worker-1: ValueError: no'
        """
        where = f"on {self.host}" if self.host and self.is_here is False else ""
        who = " ".join(part for part in (self.name, where) if part)
        return ": ".join(part for part in (who, self.error) if part)


def termination_message(
    sentence: str, culprit: Exit | None, exits: Sequence[Exit], node_rank: int
) -> str:
    """The message of a launcher. sentence: how the job ended. node_rank: of this launcher."""
    error = error_line(culprit.tail, culprit.exit_code) if culprit is not None else ""
    sentence = " ".join(sentence.split())
    sentence = sentence[:SENTENCE_CHARACTERS]
    if culprit is None:
        return sentence
    row: dict[str, object] = {
        KEY: VERSION, "here": culprit.node_rank == node_rank, "role": culprit.role,
        "rank": culprit.rank, "host": culprit.host, "code": culprit.exit_code,
        "cause": culprit.cause, "error": error,
    }  # fmt: skip
    mine = [e for e in exits if e.node_rank == node_rank and e.rank >= 0]
    row["exits"] = [
        [e.role, e.rank, _state(e, culprit), e.exit_code] for e in sorted(mine, key=_place)
    ]
    line = _json(row)
    if len(line.encode()) > FIELDS_BYTES:
        del row["exits"]
        line = _json(row)
    return f"{line}\n{sentence}"


def _place(end: Exit) -> tuple[str, int]:
    return end.role, end.rank


def _state(end: Exit, culprit: Exit) -> str:
    if (end.role, end.rank) == (culprit.role, culprit.rank):
        return "failed"
    return "succeeded" if end.ok else "ended" if end.by_us else "failed"


def _json(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def error_line(tail: str, code: int) -> str:
    """The line that says why a process failed: of its uncaught exception, else its last line.

    >>> error_line("Traceback (most recent call last):\\n  File \\"a\\", line 1\\nKeyError: 7", 1)
    'KeyError: 7'
    """
    lines = _lines(tail)
    return exception_line(tail, code) or _cut(lines[-1] if lines else "")


def exception_line(tail: str, code: int) -> str:
    """The uncaught exception that ended a process, "" where it ended otherwise.

    >>> exception_line(' File "a", line 1\\nKeyError: 7', 1)
    'KeyError: 7'
    """
    # The code of an interpreter after an uncaught exception. Libraries may write after it.
    return _exception(_lines(tail)) if code == EXIT_EXCEPTION else ""


def futile_line(tail: str, code: int) -> str:
    """The last words of a program that would end so again: a usage error, a missing module.

    "" for all others. Paths and arguments are in the words, so equal words are an equal end.

    >>> futile_line("usage: train [-h]\\ntrain: error: unrecognized arguments: --lrr 1", 2)
    'train: error: unrecognized arguments: --lrr 1'
    >>> futile_line("Traceback ...\\n  File \\"a\\", line 1\\nValueError: 7", 1)
    ''
    """
    lines = _lines(tail)
    last = lines[-1] if lines else ""
    if NO_PROGRAM.match(last):
        return _cut(last)
    if code == EXIT_USAGE and USAGE_ERROR.match(last) and any(map(USAGE.match, lines)):
        return _cut(last)
    raised = exception_line(tail, code)
    return raised if raised.partition(":")[0] in NO_CODE else ""


def _lines(tail: str) -> list[str]:
    lines = [PREFIX.sub("", line) for line in tail.splitlines()]
    return [line[line.rfind("\r") + 1 :].rstrip() for line in lines if line.strip()]


def _exception(lines: Sequence[str]) -> str:
    """The exception below the last stack of these lines, with the whole of its message."""
    frames = [at for at, line in enumerate(lines) if FRAME.match(line)]
    below = lines[frames[-1] :] if frames else lines
    if GROUP in below:
        texts = (GROUP_MARGIN.sub("", line) for line in below[below.index(GROUP) :])
        return _cut(": ".join([text for text in texts if EXCEPTION.match(text)][:2]))
    for at in range(frames[-1] + 1 if frames else len(lines), len(lines)):
        if not lines[at][0].isspace():
            more = lines[at + 1 :] if EXCEPTION.match(lines[at]) else []
            message = [line for line in more if not PREFIX.match(line)][:MESSAGE_LINES]
            return _cut(" ".join([lines[at], *message]))
    return ""


def _cut(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= ERROR_CHARACTERS else text[: ERROR_CHARACTERS - 3] + "..."


# ------------------------------------------------------------------------------ what was written


def read_end(text: str | None) -> LastWords:
    """Read the termination message of a container, or the end of its log."""
    text = text or ""
    for read in (_read_message, _read_torchrun, _read_launcher):
        words = read(text)
        if words is not None:
            return words
    return LastWords(_last_of(text))


def _read_message(text: str) -> LastWords | None:
    for line in text.splitlines():
        if not line.startswith(f'{{"{KEY}":'):
            continue
        try:
            row = json.loads(line)
            here, rank, code = row["here"], row["rank"], row["code"]
            exits = tuple(
                (str(role), int(number), str(state), int(end))
                for role, number, state, end in row.get("exits", ())
            )
            return LastWords(
                _cut(str(row["error"])), here if isinstance(here, bool) else None,
                str(row["role"]), int(rank), _cut(str(row["host"])), int(code),
                str(row["cause"]), exits,
            )  # fmt: skip
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None  # cut off, or written by somebody else
    return None


def _read_torchrun(text: str) -> LastWords | None:
    """torchrun names the rank of its own node that failed first there, not that of the job."""
    before, found, block = text.rpartition(TORCHRUN)
    if not found:
        return None
    fields = dict(TORCHRUN_FIELD.findall(block))
    rank, code = (re.match(r"-?\d+", fields.get(name, "")) for name in ("rank", "exitcode"))
    number = int(code[0]) if code else None
    if number is not None and number < 0:
        number = 128 - number
    # With @record its traceback stands in the block; else it is above, in front of torchrun's own.
    lines = [line.strip("=- ") and line for line in block.splitlines()]
    _, is_recorded, recorded = "\n".join(filter(None, lines)).partition("traceback : Traceback")
    error = _deepest(recorded.splitlines()) if is_recorded else ""
    if not error:
        error = _deepest(before.partition("torch.distributed.elastic")[0].splitlines())
    return LastWords(
        error, None, "worker", int(rank[0]) if rank else -1, "", number,
        "signal" if number is not None and number > 128 else "exit",
    )  # fmt: skip


def _deepest(lines: Sequence[str]) -> str:
    """The last line that is the end of a traceback, "" without one."""
    for line in reversed(lines):
        line = PREFIX.sub("", line.strip())
        if EXCEPTION.match(line) and ":" in line:
            return _cut(line)
    return ""


def _read_launcher(text: str) -> LastWords | None:
    """The lines of Paddle's launcher, and of ours where no message could be written."""
    own = [line for line in text.splitlines() if LAUNCH_LINE.match(line) or SCREEN_LINE.match(line)]
    failed, first = PADDLE_FAILED.search(text), FIRST_FAILURE.search("\n".join(own))
    if not own and failed is None:
        return None
    rest = [
        line.strip() for line in text.splitlines()
        if not LAUNCH_LINE.match(line) and not SCREEN_LINE.match(line) and line.strip("- ")
    ]  # fmt: skip
    error = _deepest(rest)
    if first is not None:
        roles = {noun: role for role, noun in ROLE_NOUNS.items()}
        code = HOW_CODE.search(first[4])
        return LastWords(
            error or first[4], None, roles.get(first[1], first[1]), int(first[2]), first[3],
            int(code[1]) if code else None,
        )  # fmt: skip
    if failed is None:
        said = [SCREEN_LINE.sub("", LAUNCH_LINE.sub("", line)) for line in own]
        said = [line for line in said if not re.match(r"[Ee]xit code \d+$|Pod failed$", line)]
        return LastWords(error or _cut(said[-1] if said else ""))
    return LastWords(error, None, "worker", int(failed[1]), "", abs(int(failed[2])))


def _last_of(text: str) -> str:
    """The last line of a log that says what is wrong. Ours are followed by a hint.

    >>> _last_of("paddock: error: no port\\n  hint: choose another\\n")
    'paddock: error: no port'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    while len(lines) > 1 and lines[-1].startswith("hint: "):
        lines.pop()
    return _cut(lines[-1]) if lines else ""
