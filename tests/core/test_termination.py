"""The termination message of a launcher, and the last words of those of others."""

from __future__ import annotations

from paddock.core.attempt.exits import Exit
from paddock.core.attempt.termination import LastWords, error_line, read_end, termination_message

TRACEBACK = (
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    f()\n'
    "ValueError: bad sample 812\n"
)
# Real output of each launcher (torch 2.15, Paddle 3.3.1), the end of it.
TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
rec.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_12:28:54
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 16436)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 16436
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_12:28:53
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 16437) 
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""  # noqa: W291
RECORDED = """Traceback (most recent call last):
    File "/tmp/rec.py", line 6, in main
      raise ValueError("bad sample 812")
  ValueError: bad sample 812
  """
PADDLE = (
    "LAUNCH INFO 2026-11-28 12:28:47,156 Pod failed\n"
    "LAUNCH ERROR 2026-11-28 12:28:47,156 Container failed !!!\n"
    "Container rank 1 status failed cmd ['/usr/bin/python', '-u', 'a.py'] code 1 log workerlog.1\n"
    "LAUNCH INFO 2026-11-28 12:28:47,156 ----------------- ERROR LOG DETAIL -----------------\n"
    f"{TRACEBACK}LAUNCH INFO 2026-11-28 12:28:47,356 Exit code -15\n"
)


def failed(tail: str = TRACEBACK, **more: object) -> Exit:
    """Rank 1 of node 1, which raised."""
    return Exit("worker", 1, 1, "job-worker-1", 0, 0, **{"code": 1, "tail": tail, **more})  # type: ignore[arg-type]


def test_a_message_says_which_rank_failed_and_whether_it_was_in_this_pod() -> None:
    victim = Exit("worker", 0, 0, "job-worker-0", 0, 0, signal=15, by_us=True)
    for node_rank, is_here in ((0, False), (1, True)):
        text = termination_message("rank 1 failed", failed(), [failed(), victim], node_rank)
        words = read_end(text)
        assert (words.name, words.host, words.code, words.is_here) == (
            "rank 1", "job-worker-1", 1, is_here
        )  # fmt: skip
        assert words.error == "ValueError: bad sample 812"
        assert text.splitlines()[-1] == "rank 1 failed"
    assert words.exits == (("worker", 1, "failed", 1),)
    assert len(termination_message("x" * 9000, failed("é" * 9000), [failed()] * 999, 1)) < 4096


def test_the_exceptions_line_is_found_whatever_is_written_around_it() -> None:
    for tail in (
        TRACEBACK,
        TRACEBACK.replace("\n", "\n[rank1]: ").removesuffix("[rank1]: "),
        "step 1\rstep 2\r\n" + TRACEBACK,
        TRACEBACK.replace("ValueError", "my.package.ValueError"),
    ):
        error = read_end(termination_message("it failed", failed(tail), (), 1)).error
        assert error.removeprefix("my.package.") == "ValueError: bad sample 812"
    handled = f"{TRACEBACK}goes on\nno licence\n"
    assert read_end(termination_message("x", failed(handled, code=77), (), 1)).error == "no licence"


def test_torchruns_root_cause_is_read_and_its_exception_where_it_is_recorded() -> None:
    recorded = read_end(TORCHRUN.format(code=1, traceback=RECORDED))
    assert (recorded.name, recorded.code, recorded.is_here) == ("rank 1", 1, None)
    assert recorded.clause == "rank 1: ValueError: bad sample 812"
    unknown = TORCHRUN.format(code=1, traceback="To enable traceback see: https://pytorch.org")
    assert read_end(unknown).clause == "rank 1"
    assert read_end(f"{TRACEBACK}{unknown}").clause == "rank 1: ValueError: bad sample 812"
    assert read_end(TORCHRUN.format(code=-11, traceback="Signal 11")).code == 139


def test_the_lines_of_paddles_launcher_and_of_an_older_paddock_are_read() -> None:
    assert read_end(PADDLE).clause == "rank 1: ValueError: bad sample 812"
    ours = (
        "LAUNCH ERROR 2026-11-28 04:56:50,050 first failure: rank 1 (pid 24) on la-worker-1 exited"
        f" with code 1\n{TRACEBACK}LAUNCH INFO 2026-11-28 04:56:50,050 Exit code 1\n"
    )
    assert (read_end(ours).name, read_end(ours).host) == ("rank 1", "la-worker-1")
    assert read_end(ours).error == "ValueError: bad sample 812"


def test_what_is_no_launchers_message_is_told_by_its_last_line() -> None:
    assert read_end("step 1\nRuntimeError: no data\n\n") == LastWords("RuntimeError: no data")
    assert read_end("paddock: error: no port\n  hint: x\n").error == "paddock: error: no port"
    assert read_end(None) == LastWords()
    for broken in ('{"paddock":1', '{"paddock":1,"here":3}', '{"paddock":[]}', "[[[" * 99):
        assert read_end(f"{broken}\nthe end").error == "the end"


def test_of_an_exception_group_its_message_and_its_first_exception_are_told() -> None:
    """As Python prints it, below the stack of what was raised first; and above what came of it."""
    group = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "a.py", line 4, in <module>\n  |     f()\n'
        "  | ExceptionGroup: 2 loaders failed (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n    | ValueError: bad sample 812\n"
        "    +---------------- 2 ----------------\n    | KeyError: 'b'\n"
        "    +------------------------------------\n"
    )
    error = "ExceptionGroup: 2 loaders failed (2 sub-exceptions): ValueError: bad sample 812"
    assert error_line(group, 1) == error
    assert error_line(f"{TRACEBACK}\nThe above exception was\n\n{group}", 1) == error
    assert error_line(f"{group}\nThe above exception was\n\n{TRACEBACK}", 1) == (
        "ValueError: bad sample 812"
    )
