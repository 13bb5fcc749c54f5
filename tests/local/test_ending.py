"""What the last lines of a process say. Pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.local.ending import (
    TAIL_LINES,
    TRACEBACK,
    ends_with_traceback,
    explain_end,
    find_traceback,
    has_peer_loss,
    has_timed_out,
    last_line,
    last_lines,
)

GOLDEN = Path(__file__).parent / "golden"
WAITED = sorted(p.name for p in GOLDEN.glob("*.txt") if not p.name.startswith("sigterm"))
PYTHON = b"""step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: loss is nan
"""
CHAINED = b"""Traceback (most recent call last):
  File "a.py", line 1
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3
RuntimeError: no x
"""


@pytest.mark.parametrize(
    "words",
    [
        b"ConnectionResetError: [Errno 104] Connection reset by peer",
        b"RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.1]:42",
        b"torch.distributed.DistBackendError: Connection was likely closed. Did the remote server "
        b"shutdown or crash?",
        b"BrokenPipeError: [Errno 32] Broken pipe",
        b"RuntimeError: [../third_party/gloo] Socket closed",
        b"ncclRemoteError: remote process exited or there was a network error",
        b"E0101 UNAVAILABLE: failed to connect to all addresses",
        b"FatalError: `Termination signal` is detected. SIGTERM (@0x1f4) received by PID 1",
    ],
)
def test_words_of_a_lost_peer_are_known(words: bytes) -> None:
    """Such a process is a witness: its peer ended before it."""
    assert has_peer_loss(PYTHON.replace(b"ValueError: loss is nan", words))


@pytest.mark.parametrize(
    "words",
    [
        b"ValueError: loss is nan",
        b"FileNotFoundError: no such file: data/train.bin",
        b"RuntimeError: CUDA error: out of memory",
        b"Segmentation fault (core dumped)",
    ],
)
def test_words_of_an_own_fault_are_not_peer_loss(words: bytes) -> None:
    """A cause taken for a witness would name the wrong rank."""
    assert not has_peer_loss(PYTHON.replace(b"ValueError: loss is nan", words))


def test_a_mended_connection_long_ago_is_no_evidence() -> None:
    """A data loader that retried after a reset did not die of it."""
    early = b"warning: connection reset by peer, trying again\n"
    assert not has_peer_loss(early + b"step\n" * 10 + b"ValueError: 7\n")


def test_the_traceback_is_found_whole() -> None:
    """From its first line to the exception's, without what a thread wrote after it."""
    found = find_traceback(PYTHON + b"atexit: bye\n")
    assert found.startswith("Traceback") and found.endswith("ValueError: loss is nan")


def test_the_last_of_chained_tracebacks_counts() -> None:
    """The last one is what ended the process."""
    assert find_traceback(CHAINED).endswith("RuntimeError: no x")


def test_a_traceback_counts_only_as_the_last_word() -> None:
    """A program that logs a caught exception and goes on has not failed by it."""
    assert ends_with_traceback(PYTHON)
    assert not ends_with_traceback(PYTHON + b"step 2\n")
    not_compiled = b'  File "t.py", line 1\n    def (:\n        ^\nSyntaxError: invalid syntax\n'
    assert ends_with_traceback(not_compiled)


def test_a_message_of_several_lines_is_shown_whole() -> None:
    """As pydantic, torch and hydra write them, indented or not."""
    message = b"ValueError: 2 fields are wrong\n  lr: 'fast' is not a number\nbatch: missing"
    tail = PYTHON.replace(b"ValueError: loss is nan", message)
    assert explain_end(tail) == tail.decode().partition("\n")[2].rstrip()


def test_all_links_of_a_chain_are_shown() -> None:
    """The first link is often the one that says why."""
    assert explain_end(b"step 1\n" + CHAINED) == CHAINED.decode().rstrip()
    cause = CHAINED.replace(
        b"During handling of the above exception, another exception occurred:",
        b"The above exception was the direct cause of the following exception:",
    )
    assert explain_end(PYTHON + b"step 2\n" + cause) == cause.decode().rstrip()


def test_a_handled_traceback_does_not_hide_the_last_words() -> None:
    """Of a rank that chose its exit code, and of one that exits with 1, as sys.exit(text) does."""
    tail = PYTHON + b"step 2\nfatal: the loss is NaN since step 812, giving up\n"
    for is_uncaught in (False, True):
        shown = explain_end(tail, is_uncaught=is_uncaught)
        assert shown.endswith("fatal: the loss is NaN since step 812, giving up")
    many = PYTHON + b"step\n" * 50 + b"giving up\n"
    assert "Traceback" not in explain_end(many, is_uncaught=False)
    shown = explain_end(many, is_uncaught=True)
    assert shown.startswith("Traceback") and shown.endswith("step\ngiving up")
    assert len(shown.splitlines()) == 4 + TAIL_LINES + 1


def test_a_group_of_exceptions_is_shown_from_its_top() -> None:
    """Each exception of a group has a header of its own, indented."""
    group = b"""  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in <module>
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 3, in f
    | ValueError: 1
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 4, in g
    | TypeError: 2
    +------------------------------------"""
    assert explain_end(b"step 1\n" + group + b"\n") == group.decode()
    assert ends_with_traceback(group)


def test_nothing_is_found_in_nothing() -> None:
    """A process killed before its first line is no special case."""
    assert (find_traceback(b""), last_lines(b""), has_peer_loss(b"")) == ("", "", False)


def test_last_lines_are_limited() -> None:
    """A report shows enough and no more."""
    tail = b"".join(b"line %d\n" % n for n in range(100))
    assert last_lines(tail).splitlines() == [f"line {n}" for n in range(100 - TAIL_LINES, 100)]


def test_a_progress_bar_counts_as_its_last_state() -> None:
    """A thousand redraws on one line would fill the report."""
    assert last_lines(b"\r1%\r2%\r99%\nKilled\n") == "99%\nKilled"
    assert last_lines(b"two lines\r\nof Windows\r\n") == "two lines\nof Windows"


def test_invalid_utf8_is_read_with_replacement() -> None:
    """The tail is cut anywhere, also inside a character."""
    assert last_lines("训练".encode()[1:]).endswith("练")


def test_without_a_traceback_the_last_lines_explain() -> None:
    """A C++ program has no traceback."""
    assert explain_end(b"loading\nterminate called\n") == "loading\nterminate called"


@pytest.mark.parametrize("name", WAITED)
def test_last_words_of_one_that_waited_in_vain_are_known(name: str) -> None:
    """Real output of each library; who waited for a peer that slept is not the cause."""
    assert has_timed_out((GOLDEN / name).read_bytes())


@pytest.mark.parametrize("name", [n for n in WAITED if "torch" in n and "nccl" not in n])
def test_the_traceback_of_torch_is_shown_whole(name: str) -> None:
    """torch writes "[rank0]: " before each of its lines once a process group is there."""
    tail = (GOLDEN / name).read_bytes()
    assert ends_with_traceback(tail) or b"Original exception" in tail
    assert find_traceback(tail).splitlines()[-1].startswith(("RuntimeError", "torch.distributed."))


@pytest.mark.parametrize(
    "words",
    [
        b"TimeoutError: [Errno 110] Connection timed out",
        b"urllib.error.URLError: <urlopen error timed out>",
        b"subprocess.TimeoutExpired: Command 'make' timed out after 5 seconds",
        b"requests.exceptions.ReadTimeout: Read timed out. (read timeout=10)",
    ],
)
def test_another_time_out_is_an_own_fault(words: bytes) -> None:
    """A download that takes too long says nothing of the other ranks."""
    assert not has_timed_out(PYTHON.replace(b"ValueError: loss is nan", words))


def test_a_wait_that_was_mended_is_no_evidence() -> None:
    """Long before the end, and outside a native stack."""
    early = b"wait timeout after 300000ms, keys: /x, trying again\n"
    assert not has_timed_out(early + b"step\n" * 10 + PYTHON)


def test_the_last_line_is_the_processes_own() -> None:
    """Paddle's handler of our SIGTERM writes a stack below it."""
    dump = (GOLDEN / "sigterm-paddle-3.3.1.txt").read_text()
    assert not has_timed_out(dump.encode())
    assert last_line(dump).endswith("Successfully connected to 127.0.0.1:29904")
    assert last_line("a\r10%\r20%") == "20%"
    assert last_line("x" * 500) == "x" * 120 + "..."


def test_a_native_stack_of_paddle_is_no_traceback() -> None:
    """A crash in C++ is shown by its last lines, which say which signal it was."""
    tail = (GOLDEN / "sigterm-paddle-3.3.1.txt").read_bytes()
    assert find_traceback(tail) == find_traceback(b"written in C++ x") == ""
    assert "`Termination signal` is detected" in explain_end(tail)
    assert find_traceback(PYTHON + tail).startswith("Traceback (most recent call last)")


@pytest.mark.parametrize(
    "message", ["Caught ValueError in worker process 0.\nOriginal ", "the worker failed:\n"]
)
def test_a_traceback_within_a_message_hides_no_exception(message: str) -> None:
    inner = f'{TRACEBACK}:\n  File "data.py", line 9, in read\nValueError: label 7'
    outer = f'{TRACEBACK}:\n  File "train.py", line 3, in <module>\nRuntimeError: {message}{inner}'
    assert explain_end(f"step 1\n{outer}\n".encode()) == outer


def test_a_bar_before_a_traceback_is_shown_in_its_last_state() -> None:
    """tqdm's has no newline behind it when the exception comes."""
    raised = f'{TRACEBACK}:\n  File "train.py", line 3, in <module>\nKeyError: 7'
    shown = explain_end(f"\r 10%|#  \r 20%|## \r 30%|###{raised}\n".encode())
    assert shown == f" 30%|###{raised}"
