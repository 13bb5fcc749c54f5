"""What watching a run costs, and how soon it shows what it has seen.

"bare" is the same job with a launcher that does not watch, and of the stacks, py-spy by hand.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.memory import own_processes
from benchmarks.world import ROOT, Running, World, load_average, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_SECONDS = 0.01
SETTLE_SECONDS = 4.0  # the watcher has imported, and looked
NOT_WATCHED = """

def _refuse(self: Watcher) -> None:
    raise RuntimeError("measured without it")


Watcher.start = _refuse
"""
# Writes a history of 1,024 ranks that is as large as they get; or makes the bill from it.
END = """
import sys
from paddock.watch.bill import bill_of, needed_rows
from paddock.watch.history import HistoryReader, HistoryWriter

path, what = sys.argv[1:]
if what == "write":
    writer, ranks = HistoryWriter(path), range(1024)
    writer.add({"kind": "begin", "at": 1.0, "version": 1, "run": "run", "host": "node"})
    rows = [["worker", rank, rank + 9, f"workerlog.{rank}"] for rank in ranks]
    writer.add({"kind": "attempt", "at": 2.0, "attempt": 0, "ranks": rows})
    for step in range(76):
        at = 3.0 + 5 * step
        more = {"profile": "plain", "values": {"loss": 0.5}, "unit": "", "step": step}
        rows = [{"kind": "progress", "at": at, "rank": rank, **more} for rank in ranks]
        more = {"cpu": at, "rss": 10**8, "read": 10**6, "written": 10**5}
        rows += [{"kind": "sample", "at": at, "rank": rank, **more} for rank in ranks]
        writer.add(*rows)
    writer.add({"kind": "end", "at": at})
else:
    peak = lambda: int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
    before = peak()
    bill = bill_of(HistoryReader([path], needed_rows()).read())
    assert bill.ranks == 1024 and bill.steps == 75
    print((peak() - before) / 1024)
"""
STALL_SECONDS = 120.0  # so long it is waited for
WEB_RUNS = 100
WEB_LOOKS = 30


def measure(world: World) -> list[Figure]:
    """The cost of recording, then stalls, stacks and pages."""
    unwatched = _unwatched(world)
    figures = _steps(world, unwatched, "printed", 2)
    figures += _steps(world, unwatched, "reported", 2)
    figures += _many(world, unwatched, 128 if world.quick else 1024)
    figures.append(_end(world))
    if find_spec("torch") is not None:
        figures += _stalls(world)
    if _pyspy(world):
        figures.append(_stacks(world, 4 if world.quick else 32))
    if find_spec("starlette") is not None:
        figures += _web(world)
    return figures


def _unwatched(world: World) -> str:
    """A copy of the package whose launcher goes on without a watcher; the folder for PYTHONPATH."""
    folder = world.folder()
    shutil.copytree(world.site / "paddock", folder / "paddock")
    with open(folder / "paddock" / "watch" / "watcher.py", "a", encoding="utf-8") as file:
        file.write(NOT_WATCHED)
    compileall.compile_dir(folder, quiet=2)
    return str(folder)


# ------------------------------------------------------------------------------------- its cost


def _steps(world: World, unwatched: str, how: str, nprocs: int) -> list[Figure]:
    """Ranks that compute for 10 ms a step and tell each; their time, and the launcher's."""
    name = f"steps of 10 ms, {nprocs} ranks, {how}"
    wall = Figure(f"{name}: a step", "ms", wanted=0.05, over="bare")
    used = Figure(f"{name}: a step's processor time", "ms", wanted=0.05, over="bare")
    own = Figure(f"{name}: the launcher", "%", wanted=0.5, over="bare")
    steps, warm = (300, 150) if world.quick else (1000, 400)
    loops = _calibrated()

    def once(launcher: str) -> None:
        env = {
            "BENCH_STEP": str(STEP_SECONDS), "BENCH_STEPS": str(steps + 2 * warm),
            "BENCH_LOOPS": str(loops), "BENCH_FROM": str(warm),
            "BENCH_TELL": "report" if how == "reported" else "print",
            "PYTHONPATH": unwatched if launcher == "bare" else str(world.site),
        }  # fmt: skip
        job = world.run("paddock", nprocs, "steps.py", env=env)
        try:
            began, ended = (_marks(job, event, nprocs) for event in ("warm", "done"))
        finally:
            job.end()
        for figure, scale, before, after in zip(
            (wall, used, own), (1e3 / steps, 1e3 / steps / nprocs, 100), began, ended, strict=True
        ):
            share = ended[0] - began[0] if figure is own else 1.0
            figure.add(launcher, scale * (after - before) / share)

    interleave((wall, used, own), rounds(world, paddock=5, bare=5), once, load_average)
    for figure in (wall, used, own):
        figure.notes["bare"] = "[not watched]"
    return [wall, used, own]


def _marks(job: Running, event: str, nprocs: int) -> tuple[float, float, float]:
    """The seconds when all ranks were there; of processor time, of all ranks, of the launcher."""
    stamps = job.await_stamps(event, nprocs, 200.0)
    ranks = sum(_thread_seconds(stamp.pid, stamp.pid) for stamp in stamps)
    return stamps[-1].at_ns / 1e9, ranks, _cpu_seconds(job)


def _calibrated() -> int:
    """Turns of a loop that take STEP_SECONDS of processor time."""
    count = 100_000
    began = time.process_time()
    for _ in range(count):
        pass
    return int(count * STEP_SECONDS / max(1e-4, time.process_time() - began))


def _many(world: World, unwatched: str, nprocs: int) -> list[Figure]:
    """Ranks that print a step a second: the watcher's own thread, and what it adds in memory."""
    used = Figure(f"{nprocs:,} ranks, a line a second: the watcher", "%", wanted=5)
    look = Figure(f"{nprocs:,} ranks: seconds between two looks", "s")
    memory = Figure(f"{nprocs:,} ranks: RSS of the launcher", "MB", wanted=40, over="bare")
    seconds = 10.0 if world.quick else 30.0

    def once(launcher: str) -> None:
        env = {
            "BENCH_STEP": "1",
            "PYTHONPATH": unwatched if launcher == "bare" else str(world.site),
        }
        job = world.run("paddock", nprocs, "steps.py", env=env)
        try:
            if not wait_until(lambda: len(job.stamps("up")) >= nprocs, 300.0):
                raise RuntimeError(job.output.read_text(errors="replace")[-2000:])
            time.sleep(SETTLE_SECONDS * 2)
            own = own_processes(job)[-1]
            threads = sorted(map(int, os.listdir(f"/proc/{own}/task")))
            before, began = _thread_seconds(own, threads[-1]), time.monotonic()
            time.sleep(seconds)
            spent, took = _thread_seconds(own, threads[-1]) - before, time.monotonic() - began
            memory.add(launcher, _rss_mb(own))
            if launcher == "paddock":
                used.add(launcher, 100 * spent / took)
                look.add(launcher, _pause(next(job.folder.glob("log/runs/*/history.jsonl"))))
        finally:
            job.end()

    interleave((used, memory), rounds(world, paddock=2, bare=2), once, load_average)
    memory.notes["bare"] = "[not watched]"
    return [used, look, memory]


def _end(world: World) -> Figure:
    """What the end of a long run costs: the bill, from a history that is as large as it gets."""
    figure = Figure("the bill of a history of 16 MB: memory", "MB", wanted=40)
    folder = world.folder()
    script = str(folder / "end.py")
    Path(script).write_text(END, "utf-8")
    for what in ("write", "read"):
        argv = [world.python, script, str(folder / "history.jsonl"), what]
        found = subprocess.run(argv, env=world.env, check=True, stdout=subprocess.PIPE)
    figure.add("paddock", float(found.stdout))
    return figure


def _cpu_seconds(job: Running) -> float:
    """Processor time of the launcher's own processes."""
    return sum(
        _thread_seconds(pid, int(task))
        for pid in own_processes(job)
        for task in os.listdir(f"/proc/{pid}/task")
    )


def _thread_seconds(pid: int, task: int) -> float:
    """Processor time of a thread. Source: kernel documentation, sched-stats."""
    return int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text("ascii").split()[0]) / 1e9


def _rss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def _pause(history: Path) -> float:
    """The mean time between two looks, by the rows of rank 0."""
    rows = [json.loads(line) for line in history.read_text("utf-8").splitlines()[:-1]]
    times = [row["at"] for row in rows if row["kind"] == "progress" and row["rank"] == 0]
    return (times[-1] - times[0]) / max(1, len(times) - 1)


# ------------------------------------------------------------------------------- stalls, stacks


def _stalls(world: World) -> list[Figure]:
    """One of 8 ranks stops in its own code; until a line names it."""
    nprocs = 2 if world.quick else 8
    figures = []
    for how in ("sleep",) if world.quick else ("sleep", "loop", "lock", "pipe"):
        figure = Figure(f"one of {nprocs} ranks stops ({how}): until it is named", "s", wanted=60)
        for launcher in ("paddock", "torchrun") if how == "sleep" else ("paddock",):
            if launcher in world.launchers:
                figure.add(launcher, seconds := _stall(world, launcher, nprocs, how))
                if seconds is None:
                    figure.notes[launcher] = f"not within {STALL_SECONDS:g} s"
        figures.append(figure)
    return figures


def _stall(world: World, launcher: str, nprocs: int, how: str) -> float | None:
    culprit = nprocs - 1
    env = {"BENCH_HOW": how, "BENCH_AT": "100", "BENCH_CULPRIT": str(culprit)}
    job = world.run(launcher, nprocs, "stall.py", env=env)
    try:
        stuck = job.await_stamps("stuck", 1, 180.0)
        if not stuck:
            raise RuntimeError(job.output.read_text(errors="replace")[-2000:])
        told = re.compile(rb"nothing has moved .*stall\.py:\d+ \(rank %d\)|Timeout" % culprit)
        is_told = wait_until(
            lambda: told.search(job.output.read_bytes()) is not None, STALL_SECONDS
        )
        return (time.monotonic_ns() - stuck[0].at_ns) / 1e9 if is_told else None
    finally:
        job.end()


def _pyspy(world: World) -> str:
    beside = Path(world.python).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""


def _stacks(world: World, nprocs: int) -> Figure:
    """`paddock stacks` from Enter to its end, and py-spy for one rank after another."""
    figure = Figure(f"stacks of {nprocs} ranks", "s", wanted=2)
    env = {"BENCH_STEP": "1", "XDG_STATE_HOME": str(world.folder())}
    job = world.run("paddock", nprocs, "steps.py", env=env)
    try:
        job.ready(nprocs)
        time.sleep(SETTLE_SECONDS)

        def once(launcher: str) -> None:
            began = time.monotonic()
            if launcher == "bare":
                for pid in job.rank_pids():
                    argv = [_pyspy(world), "dump", "--pid", str(pid)]
                    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            else:
                argv = [world.python, "-m", "paddock", "stacks", "last"]
                found = subprocess.run(
                    argv, env={**world.env, **env}, check=True, stdout=subprocess.PIPE
                )
                if b"steps.py" not in found.stdout:
                    raise RuntimeError(found.stdout.decode())
            figure.add(launcher, time.monotonic() - began)

        interleave((figure,), rounds(world, paddock=6, bare=6), once, load_average)
    finally:
        job.end()
    figure.notes["bare"] = "[py-spy, one after another]"
    return figure


# ---------------------------------------------------------------------------------------- pages


def _web(world: World) -> list[Figure]:
    """A server of its own for each first page; then how old a page's step is."""
    runs = 10 if world.quick else WEB_RUNS
    first = Figure(f"web: first page, {runs} runs", "s", wanted=0.5, is_worst=True)
    again = Figure(f"web: the same page again, {runs} runs", "s")
    ready = Figure("web: from Enter to its address", "s")
    live = Figure("web: age of the step that a page shows", "s", wanted=1)
    worst = Figure("web: age of the step that a page shows, worst", "s", is_worst=True)
    state = world.folder()
    env = {"XDG_STATE_HOME": str(state)}
    _make_runs(world, env, runs)
    job = world.run("paddock", 2, "steps.py", env={**env, "BENCH_STEP": "0.1", "BENCH_CLOCK": "1"})
    try:
        job.ready(2)
        time.sleep(SETTLE_SECONDS)
        for turn in range(2 if world.quick else 5):
            began = time.monotonic()
            with _server(world, env) as (address, token):
                ready.add("paddock", time.monotonic() - began)
                for figure in (first, again):
                    began = time.monotonic()
                    text = _page(address, token, "/")
                    figure.add("paddock", time.monotonic() - began)
                    assert text.count("data-row") >= runs, text
                if not turn:
                    name = re.findall(r'href="/runs/([\w.-]+)"', text)[0]
                    for age in _ages(address, token, f"/runs/{name}"):
                        live.add("paddock", age)
                        worst.add("paddock", age)
    finally:
        job.end()
    return [ready, first, again, live, worst]


def _make_runs(world: World, env: dict[str, str], count: int) -> None:
    """Real records: a job of 4 s, whose history is given to short jobs."""
    more = {"BENCH_STEP": "0.1", "BENCH_STEPS": "40"}
    history = b""
    for number in range(count):
        job = world.run("paddock", 2, "steps.py" if not number else "hello.py", env={**env, **more})
        job.wait(60.0)
        folder = next(job.folder.glob("log/runs/*"))
        if not number:
            history = (folder / "history.jsonl").read_bytes()
        (folder / "history.jsonl").write_bytes(history)
        job.end()


@contextmanager
def _server(world: World, env: dict[str, str]) -> Iterator[tuple[str, str]]:
    """`paddock web`: its address, and the cookie that it gives a browser."""
    argv = [world.python, "-m", "paddock", "web"]
    with subprocess.Popen(
        argv, env={**world.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            found = re.search(rb"http://\S+", server.stdout.readline())
            assert found is not None
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(found[0].decode(), timeout=10) as answer:
                cookie = answer.headers["Set-Cookie"].partition(";")[0]
            yield found[0].decode().partition("/?")[0], cookie
        finally:
            server.terminate()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The answer with the cookie is the redirection itself."""

    def http_error_302(self, req, fp, code, msg, headers):  # type: ignore[no-untyped-def]
        return fp

    http_error_303 = http_error_307 = http_error_302


def _page(address: str, cookie: str, path: str) -> str:
    request = urllib.request.Request(address + path, headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def _ages(address: str, token: str, path: str) -> Iterator[float]:
    """Ask as often as a browser does; ages of the step shown, from one answer to the next."""
    script = (ROOT / "src" / "paddock" / "web" / "static" / "web.js").read_text("utf-8")
    found = re.search(r"POLL_MS = (\d+)", script)
    assert found is not None
    poll = int(found[1]) / 1000
    shown = None
    for _ in range(WEB_LOOKS):
        text = _page(address, token, path)
        now = time.monotonic()
        if shown is not None:
            yield now - shown  # the oldest that a viewer has seen
        steps = (int(word) for word in re.findall(r">\s*(\d+)\s*<", text))
        shown = max(step for step in steps if now - 60 < step / 10 <= now) / 10
        for part in (0.0, 0.5):
            time.sleep(poll / 2)
            yield now + part * poll - shown
