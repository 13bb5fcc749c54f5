"""The log directory: nothing is overwritten, nothing is mixed, nobody else reads it."""

from __future__ import annotations

import errno
import os
import platform
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.core.hosts import Host
from paddock.core.job import Entrypoint, Job, Logs, ValueSource
from paddock.core.plan import Plan, Proc, make_plan
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.local.output.lock import process_text
from paddock.local.output.logs import LogDir, safe_name

if TYPE_CHECKING:
    from local.jobs import World


def job_in(folder: Path, *, overwrite: bool = False, job_id: str = "default") -> Job:
    """A job with --log-dir."""
    logs = Logs(directory=str(folder), overwrite=overwrite)
    sources = {"logs.directory": ValueSource("flag", "--log-dir")}
    command = Entrypoint("script", "train.py")
    return replace(Job(command), logs=logs, job_id=job_id, sources=sources)


def plan_of(job: Job) -> Plan:
    """One node with one worker."""
    host = Host(
        name="a", address="127.0.0.1", slots=(("worker", 0, 1),), ports=(20_000,),
        service_ports=(1, 2, 3, 4),
    )  # fmt: skip
    return make_plan(job, (host,), 0, "u1d")


def proc_of(job: Job) -> Proc:
    """Its worker."""
    return plan_of(job).procs[0]


def write(log: LogDir, job: Job, text: bytes, attempt: int = 0) -> Path:
    """Write to the worker's log as an attempt does; returns the file."""
    fd = log.open(proc_of(job), is_needed=not attempt)
    os.write(fd, text)
    os.close(fd)
    return Path(log.log_path(proc_of(job)))


def test_a_second_run_appends(tmp_path: Path) -> None:
    """The log of the run that failed last night is still there in the morning."""
    job = job_in(tmp_path)
    for text in (b"one\n", b"two\n"):
        log = LogDir(job, "u", "podpod")
        path = write(log, job, text)
        log.close()
    assert path.read_text() == "one\ntwo\n"


def test_overwriting_is_for_the_first_attempt_only(tmp_path: Path) -> None:
    """--log_overwrite empties what an earlier run left, never this run's own first attempt."""
    job = job_in(tmp_path, overwrite=True)
    (tmp_path / "workerlog.0").write_text("of last week\n")
    log = LogDir(job, "u", "podpod")
    write(log, job, b"one\n", attempt=0)
    path = write(log, job, b"two\n", attempt=1)
    log.close()
    assert path.read_text() == "one\ntwo\n"


def test_two_jobs_in_one_directory_do_not_mix(tmp_path: Path) -> None:
    """The second gets a directory below, and says where."""
    first_job, second_job = job_in(tmp_path), job_in(tmp_path, job_id="b/b")
    first, second = LogDir(first_job, "u1", "podpod"), LogDir(second_job, "u2", "podpod")
    one, two = write(first, first_job, b"one\n"), write(second, second_job, b"two\n")
    assert (one.read_bytes(), two.read_bytes()) == (b"one\n", b"two\n")
    assert two.parent == tmp_path / "b_b-u2-podpod"
    assert first.note == "" and str(two.parent) in second.note
    first.close()
    second.close()


def test_the_directory_is_free_again_after_a_job(tmp_path: Path) -> None:
    """The lock ends with the job, not with a file somebody has to remove."""
    job = job_in(tmp_path)
    LogDir(job, "u1", "podpod").close()
    log = LogDir(job, "u2", "podpod")
    assert (log.note, log.path) == ("", str(tmp_path))
    log.close()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without flock(2), as far as this process can see."""

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", flock)


def owners(folder: Path) -> list[str]:
    """The owner files there."""
    return sorted(p.name for p in Path(folder, ".paddock").glob("owner.*"))


@pytest.mark.usefixtures("no_locks")
def test_two_jobs_do_not_mix_where_nothing_can_be_locked(tmp_path: Path) -> None:
    """Two nodes on one shared folder truncated each other's workerlog.0."""
    first_job, second_job = job_in(tmp_path, overwrite=True), job_in(tmp_path, overwrite=True)
    first, second = LogDir(first_job, "u1", "podone"), LogDir(second_job, "u2", "podtwo")
    one, two = write(first, first_job, b"one\n"), write(second, second_job, b"two\n")
    assert (one.read_bytes(), two.read_bytes()) == (b"one\n", b"two\n")
    assert two.parent == tmp_path / "default-u2-podtwo"
    assert f"if that job is gone, delete {tmp_path}/.paddock/owner.1" in second.note
    first.close()
    second.close()
    assert owners(tmp_path) == owners(two.parent) == []
    third = LogDir(first_job, "u3", "podpod")
    assert (third.note, third.path) == ("", str(tmp_path))
    third.close()


@pytest.mark.usefixtures("no_locks")
def test_a_directory_of_a_job_that_was_killed_here_is_free(tmp_path: Path) -> None:
    """Its file stays, but its process is gone, or its number is another's now."""
    (tmp_path / ".paddock").mkdir()
    gone = process_text(os.getpid()).split()
    gone[3] = "1"  # started with the machine
    (tmp_path / ".paddock" / "owner.4").write_text(" ".join(gone) + "\n")
    log = LogDir(job_in(tmp_path), "u", "podpod")
    assert (log.note, owners(tmp_path)) == ("", ["owner.5"])
    log.close()


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("text", ["", "half", "another-boot pid:[1] 7 7\n"])
def test_a_directory_whose_owner_is_not_known_is_left_alone(tmp_path: Path, text: str) -> None:
    """It may be a node elsewhere, or one that is just writing its file."""
    (tmp_path / ".paddock").mkdir()
    (tmp_path / ".paddock" / "owner.4").write_text(text)
    log = LogDir(job_in(tmp_path), "u", "podpod")
    assert log.path == str(tmp_path / "default-u-podpod") and "owner.4" in log.note
    log.close()


def test_logs_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """Output may hold paths, keys and data; a shared machine has other users."""
    previous = os.umask(0)
    try:
        job = job_in(tmp_path)
        log = LogDir(job, "u", "podpod")
        files = [write(log, job, b"x\n")]
        log.write_endpoints(plan_of(job))
        log.write_private("backup.json", "{}")
        log.appender("launcher.log", "a name that is no UTF-8: \udcff\n")()
        files += [tmp_path / n for n in ("endpoints.log", "backup.json", "launcher.log")]
        modes = {stat.S_IMODE(f.stat().st_mode) for f in files}
        run_dir_mode = stat.S_IMODE(Path(log.run_dir).stat().st_mode)
        log.close()
    finally:
        os.umask(previous)
    assert (modes, run_dir_mode) == ({0o600}, 0o700)


def test_a_run_directory_that_holds_something_stays(tmp_path: Path) -> None:
    """PADDOCK_RUN_DIR is the ranks' scratch; what they left there is theirs."""
    job = job_in(tmp_path)
    log = LogDir(job, "u", "podpod")
    kept = Path(log.run_dir, "core.7")
    kept.write_text("x")
    log.close()
    assert kept.exists()


@pytest.mark.parametrize("place", ["file/below", "/proc/nothing"])
def test_a_directory_that_cannot_be_written_is_bad_input(tmp_path: Path, place: str) -> None:
    """Said before anything runs, with the flag to change."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not writable") as caught:
        LogDir(job_in(tmp_path / place), "u", "podpod")
    assert "--log-dir" in caught.value.hint


def test_a_log_that_cannot_be_opened_is_bad_input_at_first_only(tmp_path: Path) -> None:
    """Before the first attempt nothing is lost by stopping; later the training is."""
    job = job_in(tmp_path)
    (tmp_path / "workerlog.0").mkdir()
    log = LogDir(job, "u", "podpod")
    with pytest.raises(UsageError, match="cannot be opened"):
        log.open(proc_of(job), is_needed=True)
    assert log.open(proc_of(job), is_needed=False) == -1
    log.close()


@pytest.mark.parametrize(
    ("job_id", "name"), [("a/b", "a_b"), ("..", "_"), ("", "_"), ("x" * 200, "x" * 80)]
)
def test_a_job_id_is_never_a_path(job_id: str, name: str) -> None:
    """A job called ../../etc writes below its own log directory."""
    assert safe_name(job_id) == name


def test_no_environment_is_ever_written(world: World) -> None:
    """Secrets travel in the environment; nothing Paddock writes or prints may hold them."""
    secret = "hunter2-7f3a9c"
    ended = world.run(
        "--nproc_per_node", 2, "--max_restart", 1, world.script("sys.exit(ATTEMPT == 0)"),
        env={"AWS_SECRET_ACCESS_KEY": secret, "PADDOCK_TOKEN": secret + "-token"},
    )  # fmt: skip
    files = [p for p in world.log_dir.rglob("*") if p.is_file()]
    assert ended.code == 0 and len(files) >= 4
    assert [p for p in files if secret.encode() in p.read_bytes()] == []
    assert secret not in ended.console


# A filter of seccomp(2): flock answers ENOTSUP to a real launcher, as without one in the kernel.
REFUSE = """
import ctypes, os, struct, sys
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, {number})]
rows += [(6, 0, 0, 0x50000 | {errno}), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
program = struct.pack("<HxxxxxxQ", len(rows), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("seccomp is not allowed here")
os.execvp(sys.argv[1], sys.argv[1:])
"""
NUMBERS = {"x86_64": 73, "aarch64": 32}  # of flock, asm/unistd.h


@pytest.mark.parametrize("can_lock", [True, False])
def test_two_jobs_at_once_in_one_directory_keep_their_own_logs(
    world: World, can_lock: bool
) -> None:
    """The same command in two terminals, as people do, and where nothing can be locked."""
    before: list[str] = []
    if not can_lock:
        number = NUMBERS.get(platform.machine())
        if number is None:
            pytest.skip(f"the number of flock on {platform.machine()} is not known to this test")
        before = [sys.executable, "-c", REFUSE.format(number=number, errno=errno.ENOTSUP)]
    script = world.script("print('I am', os.environ['PADDOCK_JOB_ID'])\ntell('up')\ngate()\n")
    for name in ("red", "blue"):
        world.start("--job_id", name, "--nproc_per_node", 2, script, before=before)
    world.events.wait("up", count=4)
    world.open_gate(4)
    codes = [running.end().code for running in world.running]
    logs = {p: p.read_text().strip() for p in world.log_dir.rglob("workerlog.[01]")}
    assert codes == [0, 0]
    assert sorted(logs.values()) == ["I am blue"] * 2 + ["I am red"] * 2
    assert len({p.parent for p, text in logs.items() if "red" in text}) == 1
    notes = [r for r in world.running if "another job writes to" in r.text("err")]
    assert len(notes) == 1
