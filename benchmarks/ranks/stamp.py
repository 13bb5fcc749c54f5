"""What the other rank scripts share: which rank this is, and a line in the file of stamps."""

import os
import time

# The first that is there; every launcher sets at least one.
NAMES = ("BENCH_RANK", "OMPI_COMM_WORLD_RANK", "PADDLE_TRAINER_ID", "RANK")
RANK = int(next((os.environ[n] for n in NAMES if os.environ.get(n)), "0"))
_FD = os.open(os.environ["BENCH_STAMPS"], os.O_WRONLY | os.O_APPEND)


def stamp(event: str) -> None:
    """Append (event, rank, pid, now); one short write, so lines of many ranks do not mix."""
    now_ns = time.monotonic_ns()
    os.write(_FD, b"%s %d %d %d\n" % (event.encode(), RANK, os.getpid(), now_ns))


def pass_gate(ready: str) -> None:
    """Stamp ``ready``, then wait until the benchmark closes the gate (a FIFO): end of file."""
    fd = os.open(os.environ["BENCH_GATE"], os.O_RDONLY)
    stamp(ready)
    os.read(fd, 1)
    os.close(fd)


def await_again() -> None:
    """Wait until every rank that was up once has stamped again; half a minute at most."""
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        with open(os.environ["BENCH_STAMPS"], encoding="ascii") as f:
            events = [line.split(" ", 1)[0] for line in f]
        if events.count("again") >= events.count("up"):
            return
        time.sleep(0.01)
