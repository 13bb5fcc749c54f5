"""What a short console leaves out: lines that frameworks print in every run, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.local.output.noise import PADDLE_SOURCES, STACK_LINES_MAX, Noise

GOLDEN = Path(__file__).parent / "golden"
CCACHE = (
    b"/v/paddle/utils/cpp_extension/extension_utils.py:712: UserWarning: No ccache found. Please\n"
    b"  warnings.warn(warning_message)\n"
)
FLAGS = (
    b"======================= Modified FLAGS detected =======================\n"
    b"FLAGS(name='FLAGS_enable_pir_in_executor', current_value=True, default_value=False)\n"
    b"=======================================================================\n"
)
GLOG = (
    b"I1125 20:58:27.454699  7068 tcp_store.cc:336] create libuv server at port: 16781\n"
    b"W1125 20:58:30.092307  7099 gpu_resources.cu:109] Please NOTE: device: 0\n"
    b"I20261125 20:58:27.454699  7068 paddle/phi/store.h:132] Successfully connected\n"
)
STACK = (
    b"\n\n--------------------------------------\nC++ Traceback (most recent call last):\n"
    b"--------------------------------------\nNo stack trace in paddle.\n\n"
    b"----------------------\nError Message Summary:\n----------------------\n"
    b"FatalError: `Termination signal` is detected by the operating system.\n"
    b"  [SignalInfo: *** SIGTERM (@0x1bb9) received by PID 7098 (TID 0x7f) from PID 7097 ***]\n\n"
)
ALL = CCACHE + FLAGS + GLOG + STACK


def test_paddles_messages_are_left_out() -> None:
    """As Paddle 3.3.1 prints them."""
    noise = Noise()
    assert noise.take(b"before\n" + ALL + b"after\n") + noise.rest() == b"before\nafter\n"
    assert noise.folded == ALL.count(b"\n")


def test_lines_that_come_one_by_one_are_left_out_as_well() -> None:
    """Only the frame of a native stack, which may be the user's, is shown then."""
    noise = Noise()
    shown = [noise.take(line + b"\n") for line in (ALL + b"after")[:-5].split(b"\n")[:-1]]
    assert b"".join(shown) == STACK[: STACK.index(b"C++")]
    assert noise.take(b"\nafter\n") == b"\nafter\n"


def test_paddles_answer_to_sigterm_is_left_out() -> None:
    """Recorded in a rank that was stopped because another one had failed."""
    noise = Noise()
    shown = noise.take((GOLDEN / "sigterm-paddle-3.3.1.txt").read_bytes()) + noise.rest()
    assert noise.folded > 5 and b"Termination signal" not in shown


OWN_GLOG = (
    b"I1125 20:42:34.510118  2509 train.cc:88] step 1 loss 0.31\n"
    b"W1125 20:42:34.510118  2509 data.cc:12] 300 samples were skipped: bad label\n"
)


def test_the_glog_lines_of_a_program_that_is_not_python_are_its_own() -> None:
    """A trainer in C++ prints its loss by glog; the sources of Paddle below a wrapper are known."""
    noise = Noise(PADDLE_SOURCES)
    paddles = GLOG[: GLOG.index(b"I2026")]
    assert noise.take(OWN_GLOG + paddles) + noise.rest() == OWN_GLOG
    assert noise.folded == 2


@pytest.mark.parametrize(
    "lines",
    [
        b"E1125 20:58:27.454699  7068 tcp_store.cc:336] cannot bind\n",
        b"F1125 20:58:27.454699  7068 tcp_store.cc:336] check failed\n",
        b"I1125 20:58:27.454699  7068 train.py:336] of the user's own logger\n",
        b"I read a.cc:1] and b.h:2] today\n",
        b"[W1125 20:58:27.454699289 socket.cpp:464] [c10d] The server socket cannot listen\n",
        b"train.py:3: UserWarning: no data\n  warnings.warn(text)\n",
        b"======\nFLAGS(name=...)\n======\n",
        STACK.replace(b"SIGTERM", b"SIGSEGV"),
        STACK[: STACK.index(b"  [Sig")],
        b"\n\n---\n\n",
    ],
)
def test_everything_else_is_shown_as_it_is(lines: bytes) -> None:
    """Errors, crashes, and what only looks alike."""
    noise = Noise()
    assert noise.take(lines) + noise.rest() == lines
    assert noise.folded == 0


def test_a_stack_that_never_ends_is_shown() -> None:
    """What is kept back is bounded."""
    noise = Noise()
    lines = STACK[: STACK.index(b"No stack")] + b"frame\n" * STACK_LINES_MAX
    assert noise.take(lines) + noise.rest() == lines
