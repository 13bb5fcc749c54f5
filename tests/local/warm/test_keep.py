"""--warm keep: the launcher stays, and the next launch forks from what is imported."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobfile.reading import job
from local.jobs import children_of, marked, wait_until
from local.warm.pack import IN_ASCII, Pack
from paddock.cli import warm_daemon
from paddock.cli.warm_daemon import KEPT_MAX
from paddock.local.warm import keep
from paddock.local.warm.keep import DaemonDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.jobs import Running, World

TWO = ("--nproc_per_node", 2)
TELL = """
import pack.quick
tell("up", RANK, os.getpid(), os.getppid(), pack.quick.NAME, *sys.argv[1:])
"""
EARLIER = "modules imported by an earlier launch"
ONCE = "modules imported once"


class Kept:
    """A script of an installed package, and the launcher that stays for it."""

    def __init__(self, world: World, text: str = TELL, module: str = "") -> None:
        self.pack = Pack(world, {"quick": f'{module}\nNAME = "old"'}, text)
        self.world = world

    def start(self, *words: object, **how: object) -> Running:
        """Start the script, by default on two ranks."""
        return self.pack.start(*words, warm="keep", **how)  # type: ignore[arg-type]

    def run(self, *words: object, code: int = 0, **how: object) -> str:
        """Launch it; returns what the people saw. Nothing is left but what is kept."""
        running = self.start(*words, **how)
        assert running.process.wait(60) == code, running.text("err")
        return running.close()  # which nobody who stays holds

    def twice(self) -> None:
        """Until all is imported before the launch, and it waits for the next."""
        self.run()
        assert EARLIER in self.run()
        self.wait()

    def wait(self) -> None:
        """Until it is idle."""
        wait_until(lambda: self.rows()[0]["state"] == "idle")

    def rows(self) -> list[dict[str, object]]:
        """`paddock warm list --json`: the launchers that stay."""
        row: list[dict[str, object]] = json.loads(self.paddock("list", "--json"))[0]["kept"]
        return row

    def paddock(self, *words: str) -> str:
        """`paddock warm ...`."""
        command = [sys.executable, "-m", "paddock", "warm", *words]
        env = self.world.env(self.pack.env)
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def pids(self) -> tuple[int, int, int]:
        """Guardian, launcher, warm server."""
        (row,) = self.rows()
        launcher = int(str(row["pid"]))
        with open(f"/proc/{launcher}/stat", encoding="ascii") as f:
            guardian = int(f.read().rpartition(")")[2].split()[1])
        (server,) = children_of(launcher)
        return guardian, launcher, server

    def parents(self) -> list[str]:
        """Of each rank so far."""
        return [parent for _, _, _, parent, *_ in self.world.events.all("up")]

    def assert_nothing_left(self) -> None:
        """Of all launches."""
        wait_until(lambda: not marked(self.pack.mark))


@pytest.fixture
def kept(world: World) -> Kept:
    """Nothing is imported yet."""
    return Kept(world)


def test_the_next_launch_imports_nothing(kept: Kept) -> None:
    """The first learns; then the launcher imports, idle, what the second will want."""
    assert "learning what the script imports" in kept.run()
    kept.wait()
    assert EARLIER in kept.run()
    assert kept.pack.count_servers() == 0
    assert len(set(kept.parents())) == 1
    assert set(kept.pids()) == set(marked(kept.pack.mark))
    kept.wait()
    assert "stopped 1 launcher" in kept.paddock("stop", kept.pack.script)
    kept.assert_nothing_left()
    assert kept.rows() == []
    assert "stopped 0 launchers" in kept.paddock("stop")


def test_each_launch_has_its_own_arguments_and_code(kept: Kept) -> None:
    """Also where the server's command line is that of another."""
    kept.pack.script = kept.world.script(f"{TELL}sys.exit(int(sys.argv[1]))\n")
    kept.run(args=["0"])
    for code in (3, 0, 9):
        text = kept.run(args=[str(code), "a b", "", "\u4e2d"], code=code)
        assert EARLIER in text
        assert kept.world.log(0).count(b"Traceback") == 0
    assert kept.world.events.all("up", 0)[-1][5:] == ("9", "a", "b", "", "\u4e2d")


def test_an_edited_package_is_imported_anew(kept: Kept) -> None:
    """And so is one that is installed, or removed."""
    kept.twice()
    path = kept.pack.site / "quick.py"
    # Of another length: Python tells no edits of one second apart that have the same (PEP 3147).
    path.write_text(path.read_text("utf-8").replace("old", "edited"), "utf-8")
    assert ONCE in kept.run()
    assert kept.pack.count_servers() == 1
    assert {row[4] for row in kept.world.events.all("up")[-2:]} == {"edited"}
    assert EARLIER in kept.run()
    kept.wait()
    (kept.pack.site.parent / "other").mkdir()
    assert ONCE in kept.run()


@pytest.mark.parametrize("change", ["environment", "script", "forget"])
def test_what_may_import_otherwise_is_imported_anew(kept: Kept, change: str) -> None:
    """A variable, a variable that the script sets before, an empty memory."""
    kept.twice()
    if change == "environment":
        kept.pack.env["MODE"] = "fast"
        assert ONCE in kept.run()
    elif change == "script":
        kept.pack.script = kept.world.script(f'os.environ["MODE"] = "fast"\n{TELL}')
        text = kept.run()
        assert ONCE not in text and EARLIER not in text
    else:
        kept.paddock("forget")
        assert "learning what the script imports" in kept.run()
    assert len(set(kept.parents())) == 1  # the launcher stays


def test_terminals_differ_in_what_no_program_reads(kept: Kept) -> None:
    """Another window, another depth of shells."""
    kept.twice()
    kept.pack.env.update({"WINDOWID": "7", "SHLVL": "9", "OLDPWD": "/", "_": "paddock"})
    assert EARLIER in kept.run()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_job_and_not_what_is_kept(world: World, number: str) -> None:
    """With the code of a job that nobody keeps."""
    kept = Kept(world, f"{TELL}forever()\n")
    for launch in range(2):
        running = kept.start()
        world.events.wait("up", count=2 * launch + 2)
        running.signal_group(getattr(signal, number))
        assert running.process.wait(60) == 128 + getattr(signal, number)
    assert len(set(kept.parents())) == 1
    assert set(kept.pids()) == set(marked(kept.pack.mark))


def test_a_signal_of_the_users_reaches_the_ranks(world: World) -> None:
    """Once."""
    handler = "signal.signal(signal.SIGUSR1, lambda *_: tell('heard', RANK))\n"
    kept = Kept(world, f"{handler}{TELL}gate()\n")
    running = kept.start()
    world.events.wait("up", count=2)
    running.signal(signal.SIGUSR1)
    world.events.wait("heard", count=2)
    world.open_gate(2)
    assert running.process.wait(60) == 0
    assert len(world.events.all("heard")) == 2


def at_gate(world: World) -> tuple[Kept, Running, tuple[int, int, int]]:
    """A second launch, whose ranks wait; and who carries it (Kept.pids)."""
    kept = Kept(world, f"{TELL}gate()\n")
    world.open_gate(2)
    kept.run()
    pids = kept.pids()
    running = kept.start()
    world.events.wait("up", count=4)
    return kept, running, pids


@pytest.mark.parametrize("who", ["client", "guardian", "launcher"])
@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_whoever_is_killed_nothing_is_left(world: World, who: str, is_busy: bool) -> None:
    """The next launch starts another."""
    kept, running, (guardian, launcher, _) = at_gate(world)
    if not is_busy:
        world.open_gate(2)
        assert running.process.wait(60) == 0
    if is_busy or who != "client":
        pid = {"client": running.pid, "guardian": guardian, "launcher": launcher}[who]
        os.kill(pid, signal.SIGKILL)
        kept.assert_nothing_left()
    wanted = (-9 if who == "client" else 137) if is_busy else 0
    assert running.process.wait(60) == wanted
    said = "the launcher that was kept, or its guardian, was killed; all processes ended"
    if wanted == 137:
        running.wait_for(said)
    else:
        assert said not in running.text("err")
    world.open_gate(2)
    kept.run()
    assert len(set(kept.parents())) == (1 if who == "client" and not is_busy else 2)


HANGS = "import signal\nwhile IN_SERVER: signal.pause()"


@pytest.mark.parametrize("who", ["guardian", "launcher"])
def test_an_import_that_hangs_goes_with_who_is_killed(world: World, who: str) -> None:
    """Nothing of it is left, though it hears of nobody."""
    kept = Kept(world, module=HANGS)
    kept.run()
    wait_until(lambda: kept.pack.count_servers() == 1)
    guardian, launcher, _ = kept.pids()
    os.kill({"guardian": guardian, "launcher": launcher}[who], signal.SIGKILL)
    kept.assert_nothing_left()


def test_ctrl_c_ends_who_waits_for_an_import(world: World) -> None:
    """At once, and without a traceback: there is no job yet."""
    kept = Kept(world, module=HANGS)
    kept.run()
    running = kept.start()
    wait_until(lambda: is_connected(running.pid))
    assert kept.rows()[0]["state"] == "importing"
    running.signal(signal.SIGINT)
    assert running.process.wait(60) == 130
    assert running.text("err") == ""


def is_connected(pid: int) -> bool:
    """Whether this client has found a launcher."""
    path = f"/proc/{pid}/fd"
    names = [os.path.join(path, name) for name in os.listdir(path)]
    return any(os.readlink(n).startswith("socket:") for n in names if os.path.lexists(n))


def test_a_late_signal_ends_no_other_job(world: World) -> None:
    """Of a client that was stopped (Ctrl-Z) until long after its job, which it forwards to."""
    kept = Kept(world, f"{TELL}gate()\n")
    first = kept.start()
    world.events.wait("up", count=2)
    first.signal(signal.SIGSTOP)
    world.open_gate(2)
    kept.wait()
    second = kept.start(log="second")
    world.events.wait("up", count=4)
    for number in (signal.SIGTERM, signal.SIGCONT):
        first.signal(number)
    assert first.process.wait(60) == 0
    world.open_gate(2)
    assert second.process.wait(60) == 0
    assert len(set(kept.parents())) == 1


def test_a_client_that_cannot_be_refused_ends_no_job(world: World) -> None:
    """There may be no file left to accept it with."""
    kept, first, (_, launcher, _) = at_gate(world)
    files = os.listdir(f"/proc/{launcher}/fd")
    soft = next(number for number in range(len(files) + 1) if str(number) not in files)
    before = count_watched(launcher)
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, (soft, 1024))
    second = kept.start(log="second")
    wait_until(lambda: count_watched(launcher) < before)
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, (1024, 1024))
    world.open_gate(4)
    assert first.process.wait(60) == second.process.wait(60) == 0


def count_watched(pid: int) -> int:
    """Files that wake this process. Source: proc(5), fdinfo of an epoll(7)."""
    return sum(
        path.read_text("ascii").count("tfd:") for path in Path(f"/proc/{pid}/fdinfo").iterdir()
    )


def test_clocks_are_those_of_the_launch(kept: Kept) -> None:
    """TZ is read once in a process."""
    kept.run()
    kept.pack.env["TZ"] = "XXX-5"
    at = datetime.fromisoformat(kept.run().partition(" paddock: ")[0][-19:])
    now = datetime.now(timezone(timedelta(hours=5))).replace(tzinfo=None)
    assert abs(now - at) < timedelta(hours=1)


def test_who_cannot_be_reached_is_not_called_busy(kept: Kept) -> None:
    """A tidy hand has removed the socket; `paddock warm stop` helps."""
    kept.twice()
    (path,) = (kept.world.folder / "paddock").glob("*.socket")
    path.unlink()
    assert "not kept: the one that is kept does not answer (paddock warm stop)" in kept.run()
    kept.paddock("stop")
    assert "not kept" not in kept.run()


def test_who_is_silent_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, or imports for very long."""
    monkeypatch.setattr(keep, "ANSWER_SECONDS", 0.01)
    place = DaemonDirectory(str(tmp_path), "key")
    lock = place.take()
    with place.listen():
        assert keep._reach(place, job("train.py")) == "does not answer (paddock warm stop)"
    os.close(lock or 0)


def test_who_was_stopped_late_ends(kept: Kept) -> None:
    """`paddock warm stop` had gone before it was heard."""
    kept.twice()
    _, launcher, _ = kept.pids()
    os.kill(launcher, signal.SIGSTOP)
    (path,) = (kept.world.folder / "paddock").glob("*.lock")
    connection = DaemonDirectory(str(path.parent), path.stem).connect()
    assert connection is not None
    connection.close()
    path.unlink()
    os.kill(launcher, signal.SIGCONT)
    kept.assert_nothing_left()


def test_a_killed_server_is_replaced(kept: Kept) -> None:
    """By the next launch."""
    kept.twice()
    os.kill(kept.pids()[2], signal.SIGKILL)
    assert ONCE in kept.run()
    assert len(set(kept.parents())) == 1


def test_two_at_a_time_are_one_kept_and_one_not(world: World) -> None:
    """Nobody waits for the other."""
    kept = Kept(world, f"{TELL}gate()\n")
    first = kept.start()
    world.events.wait("up", count=2)
    second = kept.start(log="second")
    world.events.wait("up", count=4)
    world.open_gate(4)
    assert first.process.wait(60) == second.process.wait(60) == 0
    busy = "not kept: the one that is kept is busy with another launch; this launch is as with"
    assert busy not in first.text("err") and busy in second.text("err")
    wait_until(lambda: set(kept.pids()) == set(marked(kept.pack.mark)))


def test_who_is_stopped_in_a_job_ends_after_it(world: World) -> None:
    """`paddock warm stop` ends no job."""
    kept = Kept(world, f"{TELL}gate()\n")
    running = kept.start()
    world.events.wait("up", count=2)
    assert "stopped 1 launcher; 1 when the job is over" in kept.paddock("stop")
    world.open_gate(2)
    assert running.process.wait(60) == 0
    kept.assert_nothing_left()


@pytest.mark.parametrize("kind", ["pipe", "file", "terminal", "socket"])
def test_rank_0_reads_what_the_client_is_given(world: World, kind: str) -> None:
    """From where it is read to. A socket cannot be opened again: that launch is cold."""
    kept = Kept(world, f"{TELL}tell('read', RANK, sys.stdin.readline())\n")
    kept.run()
    text = b"first\nsecond\n"
    if kind == "pipe":
        fd, other = os.pipe()
        os.write(other, text[6:])
    elif kind == "file":
        path = world.folder / "given"
        path.write_bytes(text)
        fd, other = os.open(path, os.O_RDONLY), os.dup(0)
        os.read(fd, 6)
    elif kind == "terminal":
        other, fd = pty.openpty()
        os.write(other, text[6:])
    else:
        import socket

        ours, theirs = socket.socketpair()
        fd, other = theirs.detach(), ours.detach()
        os.write(other, text[6:])
    said = kept.run(stdin=fd)
    os.close(fd)
    os.close(other)
    assert world.events.all("read", 0)[-1][2] == "second\n".strip() or kind == "socket"
    assert ("not warm: " in said) == (kind == "socket"), said
    assert [row[1] for row in world.events.all("read")][-2:].count("1") == 1


@IN_ASCII
def test_a_process_of_another_kind_keeps_another(kept: Kept) -> None:
    """What a launcher, or its server, cannot change in itself."""
    kept.twice()
    kept.run(before=["nice", "-n", "5"])
    kept.run(before=["sh", "-c", 'umask 077; exec "$@"', "sh"])
    kept.run(before=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])
    kept.run(before=["env", "PYTHONUTF8=0", "LC_ALL=none"])  # where bytes mean other letters
    assert len(set(kept.parents())) == 5
    kept.paddock("stop")
    kept.assert_nothing_left()


# Source: set_mempolicy(2), MPOL_INTERLEAVE over node 0. Not every kernel has it, or lets us.
INTERLEAVE = """
import ctypes, os, platform, sys
number = 238 if platform.machine() == "x86_64" else 237
ctypes.CDLL(None).syscall(number, 3, ctypes.byref(ctypes.c_ulong(1)), 64)
with open("/proc/self/numa_maps") as f:
    sys.stderr.write(f.readline())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/numa_maps"), reason="a kernel without NUMA")
def test_memory_of_another_policy_keeps_another(kept: Kept) -> None:
    """`numactl --interleave=all paddock launch ...`."""
    kept.run()
    said = kept.run(before=[sys.executable, "-c", INTERLEAVE])
    assert len(set(kept.parents())) == 1 + (" interleave:0 " in said)


def test_few_are_kept(kept: Kept) -> None:
    """The one that nobody has asked for longest goes; one that has a job stays."""
    folder = kept.world.folder / "paddock"
    folder.mkdir(mode=0o700)
    places = [DaemonDirectory(str(folder), f"{at}") for at in range(KEPT_MAX + 1)]
    for at, place in enumerate(places):
        assert place.take() is not None
        row = {"pid": os.getpid(), "script": "other.py", "state": "idle" if at else "busy"}
        Path(place.lock).write_text(json.dumps(row), "ascii")
        os.utime(place.lock, (at, at))
    kept.run()
    kept.wait()
    wait_until(lambda: not os.path.exists(places[1].lock))
    assert len(list(folder.glob("*.lock"))) == KEPT_MAX + 1


def test_nothing_grows_over_many_launches(kept: Kept) -> None:
    """Open files, threads, children."""
    kept.twice()
    before = sizes(kept.pids())
    for _ in range(10):
        assert EARLIER in kept.run()
    kept.wait()
    assert sizes(kept.pids()) == before


def sizes(pids: Sequence[int]) -> list[tuple[int, int]]:
    """(files, threads) of each."""
    return [
        (len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))) for pid in pids
    ]


def test_a_wrong_command_line_is_told_as_always(kept: Kept) -> None:
    """By the process that the user has started."""
    kept.twice()
    assert "--nproc_per_node" in kept.run("--nproc_per_node", "many", code=2)
    assert EARLIER in kept.run()


NOT_KEPT = {
    "SLURM_STEP_ID": "a Slurm step ends all that it has started",
    "KUBERNETES_SERVICE_HOST": "a pod ends with its first process",
    "XDG_RUNTIME_DIR": "its directory is not this user's alone",
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_where_nothing_can_stay_it_is_told(kept: Kept, name: str) -> None:
    """The launch is as with --warm on."""
    (kept.world.folder / "open/paddock").mkdir(parents=True)
    (kept.world.folder / "open/paddock").chmod(0o777)
    kept.pack.env[name] = str(kept.world.folder / "open")
    text = kept.run().replace(f"{kept.world.folder}/open/paddock: ", "")
    assert f"not kept: {NOT_KEPT[name]}; this launch is as with --warm on" in text
    kept.assert_nothing_left()


def test_in_a_shell_of_a_pod_it_is_kept(kept: Kept) -> None:
    """Where people edit and run."""
    kept.pack.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
    ours, theirs = pty.openpty()
    assert "not kept" not in kept.run(stdin=theirs)
    assert len(kept.rows()) == 1
    os.close(ours)
    os.close(theirs)


def test_where_nothing_can_be_written_it_is_told(kept: Kept) -> None:
    """A limit of files is met as a full disk is."""
    text = kept.run(before=["bash", "-c", 'ulimit -f 0; exec "$@"', "bash"])
    folder = kept.world.folder / "paddock"
    assert f"not kept: {folder}: File too large; this launch is as with --warm on" in text
    kept.assert_nothing_left()


def test_a_file_that_an_argument_names_is_there(kept: Kept) -> None:
    """Of the shell: train.py <(zcat data.gz). Those who stay are not given more than 0 to 2."""
    kept.pack.script = kept.world.script(f"tell('read', open(sys.argv[1]).read())\n{TELL}")
    text = kept.run(
        *("--nproc_per_node", 1), before=["bash", "-c", 'exec "$@" <(echo first)', "bash"]
    )
    assert kept.world.events.all("read", "first")
    assert "not kept: an argument names an open file: /dev/fd/" in text


def test_who_is_not_asked_for_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And removes what it was found by."""
    monkeypatch.setattr(warm_daemon, "KEPT_SECONDS", 0.05)
    place = DaemonDirectory(str(tmp_path), "key")
    pid = os.fork()  # its loop is its own
    if not pid:
        code = 99
        try:
            lock = place.take()
            listener = place.listen()
            facts = {"place": [place.folder, place.key], "lock": lock, "script": "train.py"}
            facts |= {"listener": listener.detach(), "guardian": os.getppid()}
            made = warm_daemon.LauncherDaemon(facts)
            code = 0 if made.wait() is None else 1
            made.leave()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(tmp_path) == []
