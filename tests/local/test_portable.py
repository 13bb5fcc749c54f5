"""The path for systems without posix_spawn and pidfd; it needs neither, so it runs everywhere."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.errors import UsageError
from paddock.jobfile.parse import parse
from paddock.local.facts.devices import find_devices
from paddock.local.portable import run_portable

if TYPE_CHECKING:
    from paddock.core.job import Job

SRC = Path(__file__).resolve().parents[2] / "src"
HEAVY = ("loop", "streams", "ports", "node")


def job_of(*words: object) -> Job:
    """The job of a command line."""
    return parse([str(w) for w in words], {}, python=sys.executable).job


def launch(folder: Path, text: str, *words: object) -> int:
    """Run a script on this path with the logs in ``folder``."""
    script = folder / "train.py"
    script.write_text("import os, signal, sys, time\nRANK = int(os.environ['RANK'])\n" + text)
    return run_portable(job_of("--log_dir", folder / "log", *words, script), dict(os.environ), 1)


def test_ranks_get_their_environment_and_their_log_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 on the console, everything in files that only the owner can read."""
    text = "print('rank', RANK, 'of', os.environ['PADDLE_TRAINERS_NUM'])"
    assert launch(tmp_path, text, "--nproc_per_node", 2) == 0
    out, err = capfd.readouterr()
    assert out == "rank 0 of 2\n"
    assert "paddock: done" in err
    for rank in (0, 1):
        log = tmp_path / "log" / f"workerlog.{rank}"
        assert log.read_text() == f"rank {rank} of 2\n"
        assert log.stat().st_mode & 0o077 == 0
    words = ("--nproc_per_node", 1, "--log_overwrite", 1, "--warm", "on")
    assert launch(tmp_path, text, *words) == 0
    assert "not warm: it needs Linux" in capfd.readouterr().err
    assert (tmp_path / "log" / "workerlog.0").read_text() == "rank 0 of 1\n"


def test_the_first_failure_stops_the_others_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is the culprit's, its traceback is in the report; a pod gets the sentence."""
    reason = tmp_path / "termination-log"
    reason.touch()
    monkeypatch.setenv("PADDOCK_TERMINATION_LOG", str(reason))
    text = "if RANK == 1:\n    raise ValueError('bad sample')\ntime.sleep(60)"
    assert launch(tmp_path, text, "--nproc_per_node", 3) == 1
    err = capfd.readouterr().err
    assert reason.read_text().startswith("rank 1 (pid ")
    assert "first failure: rank 1 (pid " in err
    assert "ValueError: bad sample" in err
    assert "stopped as a result: rank 0, rank 2" in err


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """And a signal's exit code is 128 + n."""
    text = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "ready = os.path.join(os.environ['PADDLE_LOG_DIR'], 'ready')\n"
        "if RANK == 0:\n"
        "    open(ready, 'w').close()\n"
        "    time.sleep(60)\n"
        "while not os.path.exists(ready):\n"
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), 11)"
    )
    assert launch(tmp_path, text, "--nproc_per_node", 2, "--grace", "200ms") == 139


@pytest.mark.parametrize(
    ("program", "mode", "code"),
    [("./absent", None, 127), ("./text", 0o755, 126), ("./text", 0o644, 126)],
)
def test_a_program_that_cannot_be_started_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, mode: int | None, code: int
) -> None:
    """As a shell would."""
    monkeypatch.chdir(tmp_path)
    if mode is not None:
        Path(program).write_text("neither script nor program")
        Path(program).chmod(mode)
    job = job_of("--nproc_per_node", 2, "--no_python", program)
    assert run_portable(job, dict(os.environ), 1) == code


def test_a_time_limit_is_124(tmp_path: Path) -> None:
    """--timeout works here, too."""
    assert launch(tmp_path, "time.sleep(60)", "--timeout", "300ms", "--grace", "1s") == 124


def test_a_signal_gives_the_ranks_time_to_save(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGINT reaches the ranks as such; all exit 0, so the stop was clean."""
    text = (
        "try:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(0)"
    )
    before = signal.getsignal(signal.SIGINT)
    log = tmp_path / "log" / "workerlog.0"
    done = threading.Event()

    def interrupt() -> None:
        while not done.is_set():
            if log.exists() and log.read_text():
                os.kill(os.getpid(), signal.SIGINT)
                return
            done.wait(0.01)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert launch(tmp_path, text) == 130
    finally:
        done.set()
        thread.join()
    assert "all ranks exited cleanly" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nnodes", 2), "one machine only, this job has 2 nodes or a meeting point"),
        (("--nnodes", "1:2", "--master", "127.0.0.1:1234"), "no elastic jobs"),
        (("--max_restart", 1), "no restarts"),
        (("--server_num", 1, "--worker_num", 1), "no parameter servers"),
    ],
)
def test_what_needs_linux_is_refused_with_a_hint(words: tuple[object, ...], message: str) -> None:
    """Exit code 2, before anything is started."""
    with pytest.raises(UsageError) as caught:
        run_portable(job_of(*words, "train.py"), {}, 1)
    assert any(message in p.message for p in caught.value.problems)
    assert all("Linux" in p.hint for p in caught.value.problems)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """--start_port asks for that port and no other."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} is in use"):
            launch(tmp_path, "", "--start_port", port)


def test_bytes_that_are_not_text_do_not_tear_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Decoded with replacement on the console, kept as they are in the file."""
    text = "sys.stdout.buffer.write(b'\\xff one\\ntwo')"
    assert launch(tmp_path, text, "--nproc_per_node", 2, "--tail", "all") == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [f"[rank {r}] {t}" for r in (0, 1) for t in ("two", "\ufffd one")]
    assert (tmp_path / "log" / "workerlog.1").read_bytes() == b"\xff one\ntwo"


def test_where_there_is_no_dev_the_vendors_tool_is_asked(tmp_path: Path) -> None:
    """Windows has no /dev/nvidia*; nvidia-smi is there with the driver."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-5a'\necho '1, GPU-6b'\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert find_devices(job_of("train.py"), env, asks_smi=True).labels == ("0", "1")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert find_devices(job_of("train.py"), env, asks_smi=True).labels == ()
    env["CUDA_VISIBLE_DEVICES"] = "3"
    assert find_devices(job_of("train.py"), env, asks_smi=True).labels == ("3",)


def test_nothing_is_imported_that_other_systems_lack() -> None:
    """Launching and explaining must work without epoll, fcntl, pidfd and unix sockets."""
    code = (
        "import select, sys\n"
        "for name in ('epoll', 'poll'): hasattr(select, name) and delattr(select, name)\n"
        "sys.modules['fcntl'] = sys.modules['pwd'] = sys.modules['grp'] = None\n"
        "import os\n"
        "for name in ('posix_spawn', 'posix_spawnp', 'pidfd_open', 'pipe2', 'sched_getaffinity',\n"
        "             'uname', 'O_CLOEXEC', 'O_NONBLOCK'): delattr(os, name)\n"
        "from paddock.cli import explain, launch\n"
        "import paddock.local.portable\n"
        "print(*(n.rpartition('.')[2] for n in sys.modules if n.startswith('paddock.local.')))\n"
        "sys.stdout = sys.stderr\n"
        "sys.exit(explain.run(['--devices', 'cpu', 'train.py']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & set(HEAVY)


def test_streams_and_prefixes_of_torchrun_are_heeded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hidden is a rank that shows neither stream; the template stands before the others' lines."""
    words = ("--nproc_per_node", 2, "--local-ranks-filter", 1, "--log-line-prefix-template")
    assert launch(tmp_path, "print('here')", *words, "<${local_rank}>") == 0
    assert capfd.readouterr().out == "<1>here\n"
