"""Streams of several trainers over real servers: each record is trained once, whoever dies."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.shared_world import (
    COUNTS,
    DataFleet,
    DiedError,
    Mortal,
    counts,
    open_stream,
    train,
    write_records,
)
from paddock.errors import PaddockError, UsageError
from paddock.ps.group.messages import MemberExpelled
from paddock.ps.group.state import carry_out

STRATEGIES = ("sync", "async", "half_async", "staleness", "geo")
RECORDS = 150


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_trainer_that_dies_anywhere_and_comes_back_trains_each_record_once(
    tmp_path: Path, strategy: str, seed: int
) -> None:
    """In every strategy: also the frames of the open batch that some servers have are not lost,
    and not sent twice."""
    draw = random.Random(f"{strategy} {seed}")
    folder = write_records(tmp_path / "data", RECORDS)
    servers = DataFleet(2)
    try:
        for _ in range(5):
            ps = servers.client(strategy=strategy, geo_step=3, window=8)
            trainer = Mortal(ps, draw, draw.randrange(1, 90))
            try:
                train(ps, folder, passes=2)
            except DiedError:
                pass
            trainer.end()
        with servers.client(strategy=strategy, geo_step=3) as ps:
            train(ps, folder, passes=2)
            report = open_look(ps, folder)
        assert counts(servers, RECORDS) == [2] * RECORDS
        assert (report["pass"], report["records"], report["again"]) == (1, RECORDS, 0)
    finally:
        servers.stop()


def open_look(ps: Any, folder: Path) -> dict[str, Any]:
    """The dispatcher's own count."""
    ps.before_step = None
    return open_stream(ps, folder, passes=2).report()


class Team:
    """Trainers in threads. What one raises is raised by `end`."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.given: dict[int, int] = {}

    def start(self, servers: DataFleet, trainer: int, of: int, folder: Path, **how: Any) -> None:
        """Start one; `mortal`: it is to die after so many frames."""
        left, strategy = how.pop("mortal", None), how.pop("strategy")

        def run() -> None:
            try:
                ps = servers.client(
                    strategy=strategy, trainer=trainer, trainers=of, timeout=20.0, geo_step=2
                )
                if left is not None:
                    mortal = Mortal(ps, random.Random(trainer), left)
                self.given[trainer] = train(ps, folder, **how)
                ps.close()
            except DiedError:
                mortal.end()
            except BaseException as error:  # noqa: BLE001  # raised in `end`
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def end(self) -> None:
        """All have ended."""
        for thread in self.threads:
            thread.join(25)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_trainers_share_the_passes_and_end_together(tmp_path: Path, strategy: str) -> None:
    """Uneven chunks, more trainers than the last chunks need: nobody hangs, each record once."""
    folder = write_records(tmp_path / "data", RECORDS)
    servers, team = DataFleet(2, ["--num_gradient_servers=3"]), Team()
    try:
        for trainer in range(3):
            team.start(servers, trainer, 3, folder, strategy=strategy, passes=3)
        team.end()
        assert counts(servers, RECORDS) == [3] * RECORDS
        assert sum(team.given.values()) == 3 * RECORDS
    finally:
        servers.stop()


@pytest.mark.parametrize("strategy", ["sync", "async", "half_async"])
@pytest.mark.parametrize("left", [12, 25, 40])
def test_chunks_of_a_trainer_that_is_gone_are_given_on_from_where_it_was(
    tmp_path: Path, strategy: str, left: int
) -> None:
    """It dies and nobody starts it again: in sync the others train the rest once; in the others
    what it had not noted may be trained twice: its open batches, and that is counted."""
    folder = write_records(tmp_path / "data", RECORDS)
    seconds = 60 if strategy == "sync" else 0.3
    flags = [f"--trainer-timeout={seconds}", "--on-lost-trainer=rescale"]
    servers = DataFleet(2, ["--num_gradient_servers=2", *flags])
    team, victim = Team(), Team()
    try:
        team.start(servers, 0, 2, folder, strategy=strategy)
        victim.start(servers, 1, 2, folder, strategy=strategy, mortal=left)
        victim.end()
        server = servers.servers[0]
        assert server.coordinator is not None
        if strategy == "sync":
            incarnation = server.store.incarnations[1][0]
            with server.coordinator._changed:
                expelled = carry_out(
                    [MemberExpelled(1, incarnation, "silent")], server.coordinator._write
                )
                for reply in expelled:
                    server.coordinator._replies[reply.trainer, reply.incarnation] = reply  # type: ignore[union-attr]
                server.coordinator._changed.notify_all()
        team.end()
        found = counts(servers, RECORDS)
        assert min(found) == 1
        twice = sum(found) - RECORDS
        assert twice == 0 if strategy == "sync" else twice <= 2 * 5
    finally:
        servers.stop()


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_dispatcher_that_is_started_again_goes_on_from_its_log(
    tmp_path: Path, strategy: str
) -> None:
    """Server 0 ends and comes back in the middle of a pass, several times."""
    folder = write_records(tmp_path / "data", RECORDS)
    servers = DataFleet(2, data=tmp_path / "log")

    def restart(given: int) -> None:
        if given % 20 == 0:
            for index in range(2):
                if (given // 20 + index) % 2:
                    servers.stop_one(index)
                    servers.restart(index)

    try:
        with servers.client(strategy=strategy, timeout=20.0) as ps:
            train(ps, folder, before=restart)
        assert counts(servers, RECORDS) == [1] * RECORDS
    finally:
        servers.stop()


@pytest.mark.parametrize("after", [1, 2, 3])
def test_loaded_checkpoint_goes_on_with_the_rest_of_the_pass(tmp_path: Path, after: int) -> None:
    """The notes of the dispatcher, the positions and the tables are of one step; what was done
    behind it is done again, by other servers and another number of trainers."""
    folder = write_records(tmp_path / "data", RECORDS)
    servers, team = DataFleet(2, ["--num_gradient_servers=2"]), Team()

    try:
        saver = threading.Event()

        def save_once(given: int) -> None:
            if given >= 40 and not saver.is_set():
                saver.set()
                ps0.save(tmp_path / "saved")

        ps0 = servers.client(strategy="sync", trainer=0, trainers=2, timeout=20.0)
        team.start(servers, 1, 2, folder, strategy="sync")
        train(ps0, folder, before=save_once)
        ps0.close()
        team.end()
        assert counts(servers, RECORDS) == [1] * RECORDS
    finally:
        servers.stop()
    servers = DataFleet(after, ["--trainer-timeout=0.5"])
    try:
        with servers.client(strategy="sync", timeout=20.0) as ps:
            ps.create(COUNTS)
            ps.load(tmp_path / "saved")
            given = train(ps, folder)
        assert counts(servers, RECORDS) == [1] * RECORDS
        assert 0 < given < RECORDS
    finally:
        servers.stop()


def test_second_stream_of_a_client_is_refused(tmp_path: Path) -> None:
    """A trainer has one position."""
    folder = write_records(tmp_path / "data", 10)
    servers = DataFleet(1)
    try:
        with (
            servers.client() as ps,
            open_stream(ps, folder),
            pytest.raises(UsageError, match="another stream"),
        ):
            open_stream(ps, folder)
    finally:
        servers.stop()


def test_other_files_in_the_middle_of_a_pass_are_refused(tmp_path: Path) -> None:
    """Trainers that name different files would each miss some."""
    servers = DataFleet(1)
    try:
        with servers.client() as ps:
            next(iter(open_stream(ps, write_records(tmp_path / "a", 100))))
            ps.before_step = None
            with pytest.raises(UsageError, match="other data are being read"):
                next(iter(open_stream(ps, write_records(tmp_path / "b", 100))))
    finally:
        servers.stop()


def test_stream_over_loaded_servers_says_that_it_must_be_made_anew(tmp_path: Path) -> None:
    """Leases of a past that was rolled back end nothing."""
    folder = write_records(tmp_path / "data", 100)
    servers = DataFleet(1)
    try:
        with servers.client(strategy="sync") as ps:
            ps.create(COUNTS)
            data = open_stream(ps, folder, passes=2)
            ps.save(tmp_path / "saved")
            for lines in data:
                ps.push("counts", [int(i) for i in lines], np.zeros((len(lines), 1), np.float32))
                ps.step()
            ps.load(tmp_path / "saved")
            with pytest.raises(PaddockError, match="a checkpoint was loaded"):
                list(data)
    finally:
        servers.stop()


def test_checkpoint_of_async_lacks_no_record(tmp_path: Path) -> None:
    """Servers save their parts one after the other, while trainers go on: what some have and others
    lack is done again, by all; no batch is taken for another one."""
    folder = write_records(tmp_path / "data", RECORDS)
    servers, team = DataFleet(2, ["--num_gradient_servers=2"]), Team()
    saved = threading.Event()

    def save_once(given: int) -> None:
        if given >= 40 and not saved.is_set():
            saved.set()
            ps0.save(tmp_path / "saved")

    try:
        ps0 = servers.client(strategy="async", trainer=0, trainers=2, timeout=20.0)
        team.start(servers, 1, 2, folder, strategy="async")
        train(ps0, folder, before=save_once)
        ps0.close()
        team.end()
    finally:
        servers.stop()
    servers, team = DataFleet(2, ["--num_gradient_servers=2"]), Team()
    try:
        with servers.client(strategy="async", trainers=2, timeout=20.0) as ps:
            ps.create(COUNTS)
            ps.load(tmp_path / "saved")
            team.start(servers, 1, 2, folder, strategy="async")
            train(ps, folder)
            team.end()
        found = counts(servers, RECORDS)
        assert min(found) == 1
        assert sum(found) < 2 * RECORDS
    finally:
        servers.stop()
