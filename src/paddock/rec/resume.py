"""A run begins afresh, from a checkpoint of its own (resume), or from another's (warm start).

With as many workers each goes on at its own position. With another number what all of them have
left of the epoch is dealt anew: the source does it, as only it knows what a position means. A
checkpoint of servers is loaded before the model is opened, so that the model finds its first
values with them; that of a run without servers afterwards, by the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock import ps
from paddock.errors import Problem, UsageError
from paddock.ps.storage.checkpoint import (
    MANIFEST,
    Checkpoint,
    latest_name,
    objection_to_resume,
    open_checkpoint,
)
from paddock.rec import checkpoints
from paddock.rec.learner import Learner, ReshardableSource, Source
from paddock.rec.settings import Task, TrainingRun
from paddock.rec.sources import forget, reshard
from paddock.rec.worker_group import WorkerGroup, WorkerOffset, beginning

READY = ".ready"  # of a table that a table had beside it, in checkpoints of before


@dataclass(frozen=True)
class ResumePoint:
    """The point at which all workers of a job were. ats: of their sources, in order; None: all
    trained: batches and examples of the epoch, of all of them.
    """

    epoch: int
    step: int
    ats: tuple[Any, ...]
    trained: Mapping[str, int] = field(default_factory=dict)


def resume_point(positions: Mapping[str, Mapping[str, Any] | None]) -> ResumePoint:
    """The resume point of a checkpoint's positions, by worker.

    Nobody begins an epoch before all have ended the one before: so who is an epoch behind has
    nothing left of it, and has not begun the next.

    >>> here = {"epoch": 1, "step": 9, "at": 4, "workers": 3, "batches": 4, "examples": 40}
    >>> behind = {"epoch": 0, "step": 7, "at": 7, "workers": 3, "batches": 7, "examples": 70}
    >>> resume_point({"0": here, "1": behind})
    ResumePoint(epoch=1, step=9, ats=(4, None, None), trained={'batches': 4, 'examples': 40})
    """
    found = {int(worker): one for worker, one in positions.items() if one}
    if not found:
        return ResumePoint(0, 0, ())
    newest = max(found.values(), key=lambda one: one["epoch"])
    epoch = newest["epoch"]
    there = {worker: one for worker, one in found.items() if one["epoch"] == epoch}
    ats = [there[n]["at"] if n in there else None for n in range(newest["workers"])]
    trained = {n: sum(one.get(n, 0) for one in there.values()) for n in ("batches", "examples")}
    return ResumePoint(epoch, max(one["step"] for one in found.values()), tuple(ats), trained)


def check_assignment(where: str, cut: ResumePoint, assignment: str) -> None:
    """Raises UsageError when a checkpoint's data were given out in another way.

    >>> check_assignment("out", ResumePoint(0, 3, ({"chunk": 1, "done": 5},)), "dynamic")
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: checkpoint out is of a run with another assignment than dynamic \
(hint: go on with the one it had, or warm_start from it)
    """
    known = [isinstance(at, dict) and "open" in at for at in cut.ats if at is not None]
    is_dynamic = assignment == "dynamic"
    # Nothing is known where nobody has begun the epoch; those of dynamic the servers count.
    if any(known) != is_dynamic and (known or (is_dynamic and cut.epoch)):
        raise UsageError(
            f"checkpoint {where} is of a run with another assignment than {assignment}",
            hint="go on with the one it had, or warm_start from it",
        )


def check_tables(where: str, there: Iterable[str], here: Iterable[str]) -> None:
    """Raises UsageError when a checkpoint's tables are not those of the model.

    >>> check_tables("out/step-7", ["emb", "dense"], ["emb", "dense"])
    >>> check_tables("out/step-7", ["emb", "tower"], ["emb", "dense"])
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: checkpoint out/step-7 has no table 'dense' of this model; table \
'tower' of checkpoint out/step-7 is not of this model (hint: is this the model that was trained?)
    """
    mine, its = (
        {name for name in names if not name.startswith("rec.") and not name.endswith(READY)}
        for names in (here, there)
    )
    odd = [f"checkpoint {where} has no table {name!r} of this model" for name in sorted(mine - its)]
    odd += [
        f"table {name!r} of checkpoint {where} is not of this model" for name in sorted(its - mine)
    ]
    if odd:
        hint = "is this the model that was trained?"
        raise UsageError.of([Problem(one, hint) for one in odd])


class RunStart:
    """The start of a run for one of its workers.

    `load` is called before its model is opened, `choose` afterwards, and
    neither where an earlier incarnation of this worker has begun.
    """

    def __init__(
        self, run: TrainingRun, group: WorkerGroup, number: int = 0, *,
        say: Callable[[str], None] = lambda line: None, attempt: int = 0,
    ) -> None:  # fmt: skip
        self.run, self.client, self.group = run, group.client, group
        self.number, self.say = number, say
        self.attempt = attempt  # of the job; in 1 and more servers may have lost their tables

    @property
    def is_leased(self) -> bool:
        """True if the servers lease the data, and know how far that is."""
        return self.run.reading is not None and self.run.reading.assignment == "dynamic"

    def load(self) -> int | None:
        """With servers, by worker 0: have them load; how many epochs are over, if it resumes."""
        checkpoint = self._resumed()
        if checkpoint is None and self.run.task is Task.TRAIN:
            self._tell_afresh()
            warm = self.run.warm_start
            checkpoint = open_checkpoint(warm) if warm and is_of_servers(warm) else None
            if checkpoint is not None and self.client is not None:
                load(self.client, str(checkpoint.path))
                if self.is_leased:
                    forget(self.client, self.number)
            return None
        if checkpoint is None or self.client is None:
            return None
        load(self.client, str(checkpoint.path))
        cut = resume_point(checkpoint.positions)
        is_dealt = self.is_leased or len(cut.ats) not in (0, self.group.workers)
        if self.run.strategy.name != "sync" and (
            is_dealt or objection_to_resume(checkpoint, len(self.client.peers))
        ):
            self.say(
                f"going on from {checkpoint.path}: batches that were open when it was made may be "
                f"trained twice, as strategy is {self.run.strategy.name}; in sync none is"
            )
        return cut.epoch

    def _tell_afresh(self) -> None:
        """Lines tell a user that nothing is resumed, and what a restart has lost."""
        if self.attempt and self.client is not None:
            self.say(
                f"attempt {self.attempt} begins at batch 0: the servers' tables are new; "
                + ("there was no checkpoint" if self.run.resume else "resume=true goes on at the "
                   "newest checkpoint")
            )  # fmt: skip
        if self.run.resume:
            where = self.run.saving.directory or "no save_dir"
            warm = self.run.warm_start
            self.say(
                f"nothing to resume in {where}: starts "
                + ("afresh" if warm is None else f"from {warm}")
            )

    def choose(self, learner: Learner, source: Source) -> WorkerOffset | None:
        """The offset at which this worker goes on; None: the beginning. Raises UsageError."""
        directory, warm = self.run.saving.directory, self.run.warm_start
        if self.client is None:
            if self.run.resume and directory is not None and checkpoints.has_latest(directory):
                where = checkpoints.latest(directory)
                # Bundled models write the files of one server, and where they are beside them.
                if is_of_servers(where) and not Path(where, checkpoints.STATE).is_file():
                    raise UsageError(
                        f"checkpoint {where} was made by servers, and this run has none",
                        hint="engine local_cluster or cluster; or warm start: a bundled model from "
                        "it, others from an export",
                    )
                learner.load(where)
                positions = checkpoints.read_state(where).get("positions", {})
                return self._position(where, positions, source)
            self._tell_afresh()
            if warm is not None:
                learner.load(checkpoints.latest(warm))
            return None
        checkpoint = self._resumed()
        if checkpoint is not None:
            where, mine = str(checkpoint.path), self.client.tables
            check_tables(where, [spec.name for spec in checkpoint.specs], mine)
            return self._position(where, checkpoint.positions, source)
        if self.group.has_resumed():
            return self._told(self.client)
        if warm is not None:
            self._warm(warm, learner)
        return None

    def _told(self, client: ps.Client) -> WorkerOffset:
        """The offset that servers have of this worker by a checkpoint that only worker 0 sees.

        Raises UsageError when there is nothing, or its data are to be dealt anew.
        """
        held = client.resume_offset()
        if held is None or held["workers"] != self.group.workers:
            raise UsageError(
                f"worker {self.group.worker} does not see the checkpoint in "
                f"{self.run.saving.directory} that worker 0 goes on from"
                + ("" if held is None else f", and it is of {held['workers']} workers"),
                hint="a directory that all workers see, or as many workers as it has",
            )
        return _own(held)

    def _resumed(self) -> Checkpoint | None:
        directory = self.run.saving.directory
        is_asked = self.run.resume and directory is not None and self.run.task is Task.TRAIN
        if not is_asked or directory is None or latest_name(Path(directory)) is None:
            return None
        return open_checkpoint(directory)

    def _position(
        self, where: str, positions: Mapping[str, Mapping[str, Any] | None], source: Source
    ) -> WorkerOffset | None:
        """This worker's, of the checkpoint's; dealt anew where there were more or fewer."""
        cut = resume_point(positions)
        if self.run.reading is not None:
            check_assignment(where, cut, self.run.reading.assignment)
        found = positions.get(str(self.group.worker))
        if len(cut.ats) in (0, self.group.workers):
            return None if found is None else _own(found)
        worker, workers = self.group.worker, self.group.workers
        share = {name: (count + worker) // workers for name, count in cut.trained.items()}
        here = {**beginning(cut.epoch, cut.step), **share}
        if self.is_leased:
            return {**here, "at": cut.ats[worker] if worker < len(cut.ats) else None}
        is_whole = all(at is None for at in cut.ats)
        at: object = None
        if not is_whole and isinstance(source, ReshardableSource):
            at = source.resharded(cut.epoch, cut.ats)
        elif not is_whole:
            at = reshard(cut.ats, worker, workers)
        return {**here, "at": at}

    def _warm(self, where: str, learner: Learner) -> None:
        assert self.client is not None
        if not is_of_servers(where):
            learner.load(checkpoints.latest(where))
            return
        has = {spec.name for spec in open_checkpoint(where).specs}
        mine = [name for name in self.client.tables if not name.startswith("rec.")]
        missing = self.run.warm_start_missing
        if missing == "fail":
            check_tables(where, has.intersection(mine), mine)
        elif missing == "zero" and not has.issuperset(mine):
            raise UsageError(
                f"checkpoint {where} has not all tables of this model, and with servers they "
                "cannot begin with zeros",
                hint="warm_start_missing: init",
            )


def _own(held: Mapping[str, Any]) -> WorkerOffset:
    """A position without what a worker group adds."""
    return {name: held[name] for name in beginning(0, 0) if name in held}


def is_of_servers(path: str) -> bool:
    """True if this is a checkpoint of servers, or a directory of them."""
    return (Path(path) / MANIFEST).is_file() or any(Path(path).glob(f"step-*/{MANIFEST}"))


def load(client: ps.Client, path: str) -> None:
    """Have the servers load a checkpoint, whichever job's."""
    client.load(path, of_job=open_checkpoint(path).job)
