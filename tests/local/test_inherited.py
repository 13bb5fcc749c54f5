"""What a parent may leave to us: signals ignored or blocked, files closed, limits, a umask."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.jobs import children_of, wait_until
from paddock.core.plan import Proc
from paddock.local.spawn import spawn_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.jobs import Ended, World

# Brings itself into a state and becomes the launcher, which inherits it.
STATE = "import os, resource, signal, sys\n{}\nos.execvp(sys.argv[1], sys.argv[1:])"
# Another user than root, who has no limits; may read what only root may (this Python, perhaps).
SOMEBODY = [
    *("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
]
# A shell leaves its signals alone, where Python would ignore two.
RANK = "#!/bin/sh\ngrep -E 'Sig(Blk|Ign)' /proc/self/status >rank.$PADDLE_TRAINER_ID\n"
OF_LIBC = 0b11 << 31  # pthreads(7): 32 and 33 are beyond the reach of programs


def in_state(code: str) -> list[str]:
    """The command to start a launcher with."""
    return [sys.executable, "-c", STATE.format(code)]


@pytest.mark.parametrize(
    ("state", "ignored"),
    [
        ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", 0),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())", 0),
        (
            "for n in signal.valid_signals() - {1, 2, 3, 9, 15, 19}:\n"
            "    signal.signal(n, signal.SIG_IGN)",
            0,
        ),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0),
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", 1),
        ("os.close(0)", 0),
        ("os.close(1)", 0),
        ("os.close(2)", 0),
        ("os.closerange(0, 3)", 0),
        ("os.umask(0o777)", 0),
        ("os.umask(0)", 0),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))", 0),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (16, 4096))", 0),
    ],
)
def test_a_job_runs_whatever_its_launcher_inherits(world: World, state: str, ignored: int) -> None:
    """Exit codes are right, nothing is left, and ranks start as from a fresh shell."""
    script = world.folder / "rank.sh"
    script.write_text(RANK)
    script.chmod(0o755)
    ended = world.start("--nproc_per_node", 2, script, before=in_state(state)).end()
    assert (ended.code, ended.left) == (0, []), ended.err
    for rank in (0, 1):
        told = world.folder / f"rank.{rank}"
        told.chmod(0o600)  # the mask was the rank's, too
        rows = told.read_text().split()
        masks = {
            name: int(bits, 16) & ~OF_LIBC for name, bits in zip(rows[::2], rows[1::2], strict=True)
        }
        assert masks == {"SigBlk:": 0, "SigIgn:": ignored}


def test_a_rank_that_fails_is_seen_although_sigchld_was_ignored(world: World) -> None:
    """With it ignored the kernel reaps, and nobody learns how a process ended."""
    before = in_state("signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    ended = world.start(world.script("sys.exit(7)"), before=before).end()
    assert (ended.code, ended.left) == (7, [])


@pytest.mark.parametrize("words", [["--help"], ["--nope"]])
def test_words_to_closed_files_change_no_exit_code(world: World, words: list[str]) -> None:
    """There is nobody to read them."""
    ended = world.start(*words, before=in_state("os.closerange(0, 3)")).end()
    assert (ended.code, ended.left) == (0 if words == ["--help"] else 2, [])


@pytest.mark.parametrize("files", range(6, 28, 3))
def test_too_few_open_files_are_bad_input(world: World, files: int) -> None:
    """Down to what an interpreter itself needs, the limit is named and not a fault of ours."""
    before = in_state(f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))")
    ended = world.start(world.script("tell('up')"), before=before).end()
    assert (ended.code, ended.left, world.events.all("up")) == (2, [], [])
    assert f"this user may have {files}" in ended.err


@pytest.fixture
def commons() -> Iterator[Path]:
    """A folder where that user may write; skips where nobody can become that user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user with setpriv(1)")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def start_as_somebody(world: World, folder: Path, state: str, text: str) -> Ended:
    """A job of four ranks in that folder."""
    script = folder / "train.py"
    script.write_text(text)
    words = ("--nproc_per_node", 4, script)
    return world.start(*words, before=[*SOMEBODY, *in_state(state)], log_dir=folder / "log").end()


def test_a_umask_that_takes_all_from_its_owner_takes_nothing(world: World, commons: Path) -> None:
    """Root may write where nobody may; others need the bits of the directories they make."""
    ended = start_as_somebody(world, commons, "os.umask(0o777)", "print('ran')")
    assert (ended.code, ended.left, ended.out) == (0, [], "ran\n"), ended.err


@pytest.mark.parametrize("processes", range(1, 6))
def test_a_full_process_table_is_said_and_leaves_nothing(
    world: World, commons: Path, processes: int
) -> None:
    """Whichever start is the one too many: the launcher's, a rank's, or a thread's."""
    limit = f"resource.setrlimit(resource.RLIMIT_NPROC, ({processes}, {processes}))"
    ended = start_as_somebody(world, commons, limit, "import time\ntime.sleep(1000)")
    assert (ended.code, ended.left) == (125, []), ended.err
    assert "raise ulimit -u" in ended.err and "Traceback" not in ended.err


# Lowers the launcher's limit of processes, so that the next attempt cannot start its ranks.
SHORT = """\
import os, resource, sys
if os.environ["PADDOCK_ATTEMPT"] == "0":
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.prlimit(os.getppid(), resource.RLIMIT_NPROC, (1, most))
    sys.exit(3)
"""


def test_a_rank_for_which_there_is_no_process_is_tried_again(world: World, commons: Path) -> None:
    """Want of processes passes; the policy decides, as for any other failure."""
    script = commons / "train.py"
    script.write_text(SHORT)
    words = ("--max-restart", 100, "--restart-backoff", "50ms:50ms", script)
    log = commons / "log" / "launcher.log"
    job = world.start(*words, before=SOMEBODY, log_dir=log.parent)
    wait_until(lambda: log.exists() and "could not be started" in log.read_text())
    (launcher,) = children_of(job.pid)
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    code = f"import resource; resource.prlimit({launcher}, resource.RLIMIT_NPROC, ({most}, {most}))"
    subprocess.run([*SOMEBODY, sys.executable, "-c", code], check=True)
    ended = job.end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert "could not be started: " in ended.err and "restart 2 of 100" in ended.err


@pytest.mark.parametrize(
    ("number", "code", "cause"),
    [
        (errno.ENOENT, 127, "not-found"),
        (errno.EACCES, 126, "not-executable"),
        (errno.EAGAIN, 125, "no-resources"),
        (errno.ENOMEM, 125, "no-resources"),
        (errno.EMFILE, 125, "no-resources"),
    ],
)
def test_a_program_is_not_blamed_for_the_machine(number: int, code: int, cause: str) -> None:
    """126 says that the file is wrong; out of processes it is not."""
    proc = Proc("worker", 0, 0, 0, "a", "127.0.0.1", 7000)
    error = OSError(number, os.strerror(number))  # of the subclass that belongs to the number
    ended = spawn_failure(proc, 0, error, "train", "log")
    assert (ended.code, ended.cause) == (code, cause)
