"""A job whose processes are killed at random moments, round after round, and started again."""

from __future__ import annotations

import contextlib
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ps.real.nursery import GATE, Nursery
from ps.real.proxy import proxied
from ps.running import eventually, free_ports

# Steps that the trainers are let go on by in each round; a kill falls somewhere among them.
STEPS_A_ROUND = 3
AT_ONCE = 0.2  # share of kills right after the start of what was killed before
LONGEST_SECONDS = 0.06
SETTLE_SECONDS = 60.0
# Of a pair, one that was killed may stay away as long as the job goes on without it, or so long:
# the other one may lack what it has.
AWAY_SHARE, AWAY_SECONDS = 0.6, 4.0
SUMS = " sums"  # "async sums": its tables are sums.


@dataclass
class Chaos:
    """One job. kills: rounds. victims: what may be killed: "server", "trainer", "pair", "all".

    is_calm: the same work, and nothing is killed. witness: of pairs; each server is two processes
    then. loses: the share of frames at which a connection ends, on the way to or from a server.
    """

    nursery: Nursery
    folder: Path
    seed: int
    strategy: str = "sync"
    kills: int = 20
    victims: tuple[str, ...] = ("server", "trainer", "all")
    servers: int = 2
    trainers: int = 2
    flags: tuple[str, ...] = ()
    is_calm: bool = False
    witness: str = ""
    loses: float = 0.0
    endpoints: list[str] = field(default_factory=list)
    pids: dict[tuple[str, int], int] = field(default_factory=dict)
    away: dict[tuple[str, int], float] = field(default_factory=dict)  # until when

    def run(self) -> dict[str, Any]:
        """{"digest", "applied"} that every trainer found at the end."""
        self.folder.mkdir(parents=True)
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(self.servers * self.width)]
        self.known = self.endpoints
        self.progress = np.memmap(
            self.folder / "progress.bin", np.int64, "w+", shape=(1 + self.trainers,)
        )
        everybody = [("server", i) for i in range(len(self.endpoints))]
        everybody += [("trainer", i) for i in range(self.trainers)]
        with contextlib.ExitStack() as held:
            if self.loses:
                proxies = [held.enter_context(proxied(end)) for end in self.endpoints]
                for number, proxy in enumerate(proxies):
                    proxy.lose(self.loses, self.seed + number)
                self.known = [proxy.endpoint for proxy in proxies]
            held.callback(self._end)
            for who in everybody:
                self._start(who)
            rng = random.Random(self.seed)
            for number in range(0 if self.is_calm else self.kills):
                self._round(rng, number)
            self.progress[GATE] = self.steps
            self._settle(self.steps)
            return self._result()

    def _end(self) -> None:
        for pid in self.pids.values():
            self.nursery.kill(pid)

    @property
    def width(self) -> int:
        """Processes of a server."""
        return 2 if self.witness else 1

    def _servers(self, endpoints: list[str]) -> list[str]:
        """These endpoints, by server."""
        return ["|".join(endpoints[i :: self.servers]) for i in range(self.servers)]

    @property
    def steps(self) -> int:
        """Of the whole job."""
        return STEPS_A_ROUND * (self.kills + 1)

    def _round(self, rng: random.Random, number: int) -> None:
        if rng.random() >= AT_ONCE:
            self._settle(STEPS_A_ROUND * number)
        self._come_back(float("inf"))
        self.progress[GATE] = STEPS_A_ROUND * (number + 1)
        # sleep: the moment of the kill is what is drawn
        time.sleep(rng.random() ** 2 * LONGEST_SECONDS)
        kind = rng.choice(self.victims)
        everybody = sorted(self.pids)
        of_kind = [who for who in everybody if who[0] == kind]
        killed = [rng.choice(of_kind or [who for who in everybody if who[0] == "server"])]
        if kind in ("pair", "all"):
            place = killed[0][1] % self.servers
            pair = [("server", i) for i in range(place, len(self.endpoints), self.servers)]
            killed = pair if kind == "pair" else everybody
        for who in killed:
            self.nursery.kill(self.pids[who])
        if self.witness and kind == "server" and rng.random() < AWAY_SHARE:
            del self.pids[killed[0]]
            self.away[killed[0]] = time.monotonic() + AWAY_SECONDS
            return
        rng.shuffle(killed)
        for who in killed:
            self._start(who)

    def _come_back(self, now: float) -> None:
        for who in [who for who, until in self.away.items() if until <= now]:
            del self.away[who]
            self._start(who)

    def _settle(self, step: int) -> None:
        """Wait until every trainer has done `step`."""
        eventually(lambda: self._is_at(step), f"step {step} {self._story()}", SETTLE_SECONDS)

    def _is_at(self, step: int) -> bool:
        self._come_back(time.monotonic())
        for who, pid in self.pids.items():
            code = self.nursery.ended(pid)
            is_fine = code is None or (code == 0 and who[0] == "trainer")
            assert is_fine, f"{who} ended with {code} {self._story()}"
        return bool((self.progress[1:] >= step).all())

    def _result(self) -> dict[str, Any]:
        results = []
        for number in range(self.trainers):
            pid = self.pids["trainer", number]
            eventually(lambda pid=pid: self.nursery.ended(pid) is not None, self._story())
            assert self.nursery.ended(pid) == 0, self._story()
            results.append(json.loads((self.folder / f"result-{number}.json").read_text()))
        assert all(result == results[0] for result in results), (results, self._story())
        first: dict[str, Any] = results[0]
        return first

    def _start(self, who: tuple[str, int]) -> None:
        kind, number = who
        log = self.folder / f"{kind}-{number}.log"
        if kind == "server":
            words = [
                f"--port={self.endpoints[number].rpartition(':')[2]}",
                f"--index={number % self.servers}",
                f"--endpoints={','.join(self._servers(self.endpoints))}",
                f"--num_gradient_servers={self.trainers}",
                f"--data-dir={self.folder / f'data-{number}'}",
                *self.flags,
                *([f"--witness={self.witness}", "--ack=replica"] if self.witness else []),
            ]
            if number >= self.servers:
                words.append(f"--replica-of={self.endpoints[number - self.servers]}")
            self.pids[who] = self.nursery.server(words, log)
            return
        options = {
            "endpoints": self._servers(self.known),
            "trainer": number,
            "trainers": self.trainers,
            "strategy": self.strategy.removesuffix(SUMS),
            "timeout": 30.0,
        }
        facts = {
            "options": options,
            "seed": 7,  # The same work whatever is killed.
            "steps": self.steps,
            "adds": self.strategy.endswith(SUMS),
            "progress": str(self.folder / "progress.bin"),
            "result": str(self.folder / f"result-{number}.json"),
        }
        self.pids[who] = self.nursery.trainer(facts, log)

    def _story(self) -> str:
        """What is needed to look into it: the seed, and the last lines of every process."""
        logs = sorted(self.folder.glob("*.log"))
        tails = (f"{log.name}: {log.read_text()[-600:]}" for log in logs)
        return "\n".join([f"(seed {self.seed}, progress {self.progress.tolist()})", *tails])
