"""An elastic job on some of the hosts, for tests: who is up, who coordinates, what ran when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from real.hosts import end_all

if TYPE_CHECKING:
    from local.jobs import Ended, Running, World
    from real.hosts import Hosts

MASTER = "10.123.0.1:7000"
KEY = {"PADDOCK_TOKEN": "the-job-key"}
# A rank that only SIGKILL or the gate ends, and that writes down from when to when it ran.
TRAIN = """
import threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=lambda: (gate(), os._exit(0)), daemon=True).start()
first = time.monotonic()
path = f"{sys.path[0]}/beat.{ATTEMPT}.{os.uname().nodename}"
file = os.open(path, os.O_CREAT | os.O_WRONLY)
os.pwrite(file, f"{first:20.6f} {first:20.6f}".encode(), 0)
tell("up", ATTEMPT, RANK, WORLD, os.uname().nodename, os.getpid())
while True:
    os.pwrite(file, f"{time.monotonic():20.6f}".encode(), 21)
    time.sleep(0.02)
"""
OVERLAP_SECONDS_MAX = 1.0  # a busy machine kills late; a lease not waited for is three times that


class Team:
    """One job; hosts are known by their index, from 0."""

    def __init__(
        self,
        hosts: Hosts,
        world: World,
        master: str,
        nnodes: object,
        timeout: float,
        *words: object,
    ) -> None:
        self.hosts = hosts
        self.world = world
        self.master = master
        self.running: dict[int, Running] = {}
        self.words = (
            "--nnodes", nnodes, "--nproc_per_node", 1, "--master", master, "--elastic_timeout",
            timeout, "--max_restart", 5, "--restart_backoff", "0.1", "--grace", 0.2,
            "--elastic_level", 1, *words, world.script(TRAIN),
        )  # fmt: skip

    def start(self, *numbers: int, words: tuple[object, ...] = ()) -> None:
        """Start the same command on these hosts."""
        for number in numbers:
            self.running[number] = self.hosts[number].start(*words, *self.words, env=KEY)

    def up(self, attempt: int, world_size: int) -> dict[str, int]:
        """Wait until all ranks of an attempt are up; returns host name -> rank."""
        found = self.world.events.wait("up", attempt, count=world_size)
        assert {event[3] for event in found} == {str(world_size)}
        assert sorted(int(event[2]) for event in found) == list(range(world_size))
        return {event[4]: int(event[2]) for event in found}

    def rank_pid(self, attempt: int, host: str) -> int:
        """The process of the rank that an attempt has on a host."""
        (event,) = [e for e in self.world.events.all("up", attempt) if e[4] == host]
        return int(event[5])

    def coordinator(self, *numbers: int) -> int:
        """Which of these hosts coordinates the first attempt."""
        if self.master == MASTER:
            return 0
        said = "Waiting peer start...\n"
        logs = {n: self.world.folder / f"log-{self.hosts[n].name}" for n in numbers}
        (found,) = [n for n in numbers if said in (logs[n] / "launcher.log").read_text()]
        return found

    def end(self, *numbers: int) -> list[Ended]:
        """Wait for the end of these; nothing of them is left."""
        ended = end_all([self.running[n] for n in numbers])
        assert [e.left for e in ended] == [[]] * len(numbers)
        return ended

    def finish(self, *numbers: int) -> list[int]:
        """Let the ranks end well; returns the exit codes of these hosts."""
        self.world.open_gate(len(numbers))
        return [e.code for e in self.end(*numbers)]

    def beats(self, attempt: int) -> tuple[float, float]:
        """When the first of an attempt's ranks began, and the last was alive."""
        texts = [p.read_text() for p in self.world.folder.glob(f"beat.{attempt}.*")]
        first, last = zip(*(map(float, text.split()) for text in texts), strict=True)
        return min(first), max(last)

    def assert_no_overlap(self, attempts: int) -> None:
        """No rank of an attempt was alive when those of a later one had begun."""
        for attempt in range(1, attempts):
            begun, _ = self.beats(attempt)
            _, ended = self.beats(attempt - 1)
            assert ended < begun + OVERLAP_SECONDS_MAX, f"attempt {attempt - 1} ran on"
