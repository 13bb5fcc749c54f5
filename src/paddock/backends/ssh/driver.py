"""The ssh backend: connects, sends the missing files, starts, and later asks.

Also for this machine.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from paddock.backends.backend import NotAllReachedError, Received, Say
from paddock.backends.node.store import size_text
from paddock.backends.registry import IdTakenError, RegisteredJob, damaged
from paddock.backends.ssh.attached import Attached
from paddock.backends.ssh.channel import Channel
from paddock.backends.ssh.command import HERE, Target
from paddock.backends.ssh.plan import (
    chosen,
    filled,
    launch_args,
    plan_of,
    root_of,
    targets_of,
    user_args,
)
from paddock.backends.ssh.pool import ConnectionPool, HostGroup, all_or_none, at_all, tried
from paddock.backends.ssh.state import checked, found_jobs, status_of
from paddock.backends.types import (
    ALIVE,
    CALL_PYTHON,
    FETCHED,
    Handle,
    JobStatus,
    LogChunk,
    LogQuery,
    Site,
    Submission,
    SubmissionPlan,
)
from paddock.errors import PaddockError, Problem, refuse
from paddock.watch.history import STANDS

GOODBYE_SECONDS = 10.0  # of launchers, after the ranks' grace (core/rendezvous/membership.py)


class Ssh:
    """The backend for hosts that the user's own ssh reaches.

    target_kind: of the hosts. is_held: the launchers end with the session that has started them,
    also those of a detached job, whose sessions somebody keeps.
    """

    target_kind: type[Target] = Target
    is_held = False

    def plan(self, submission: Submission) -> SubmissionPlan:
        return plan_of(submission, self._targets(submission.site))

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Connect, prepare, send, start; then stay attached, unless the job is detached."""
        return self._submit(
            submission, chosen(submission, self._targets(submission.site)), run, say
        )

    def _submit(
        self,
        submission: Submission,
        targets: Sequence[Target],
        run: RegisteredJob,
        say: Say,
        keep: Callable[[list[dict[str, Any]]], None] = lambda _requests: None,
    ) -> int | None:
        """Start the job on its hosts. keep: called once a detached job has started."""
        root = root_of(submission.site)
        run.keep(
            targets=[asdict(target) for target in targets],
            root=root,
            id=submission.run_id,
            cwd=submission.workspace,
            is_elastic=submission.job.is_elastic,
            nnodes_min=submission.job.nnodes_min,
            lease_seconds=submission.job.rendezvous.lease_seconds,
            may_run=[],
        )
        what = f"connecting to {len(targets)} hosts" if len(targets) > 1 else "connecting"
        say(what)
        with run.telling(lambda: what):
            group = HostGroup(targets)
        with closing(group):
            hellos = group.each(
                lambda _i, channel: channel.ask(
                    "hello", root=root, cwd=submission.workspace, python=channel.target.python,
                    has_ps=submission.has_ps, env=dict(submission.env),
                )
            )  # fmt: skip
            try:
                _refuse_other_python(group, submission.extra.get(CALL_PYTHON, ""))
                self._start(submission, group, hellos, run, say)
                requests = [self._base(run, index) for index in range(len(targets))]
                if submission.is_detached:
                    keep(requests)
            except BaseException:
                self._undo(group, run)
                raise
            if submission.is_detached:
                return None
            return Attached(group, requests, say).run()

    def _start(
        self,
        submission: Submission,
        group: HostGroup,
        hellos: Sequence[dict[str, Any]],
        run: RegisteredJob,
        say: Say,
    ) -> None:
        targets = [channel.target for channel in group.channels]
        job = {
            "name": submission.name,
            "command": run.command,
            "nnodes": len(targets),
            "created_at": run.created_at,
            "targets": [asdict(target) for target in targets],
        }
        # The first host decides who has the name; the others follow.
        request = {**self._base(run), "name": submission.name, "submitter": secrets.token_hex(8)}
        taking = {**request, "takes_name": submission.takes_name}
        first = all_or_none(at_all(group.channels[:1], lambda one: one.ask("prepare", **taking)))
        _refuse_taken(targets, first, submission.run_id)

        def prepare(index: int, channel: Channel) -> dict[str, Any]:
            return channel.ask("prepare", **request, index=index) if index else first[0]

        prepared = group.each(prepare)
        _refuse_taken(targets, prepared, submission.run_id)
        parts = [str(row["part"]) for row in prepared]
        run.keep(parts=parts)
        workspaces = [str(hello["workspace"]) for hello in hellos]
        own = _own_output(parts, workspaces)
        run.keep(own_output=own)
        is_common = [bool(each) and workspaces.count(each) > 1 for each in workspaces]
        job |= {"parts": parts, "cwd": submission.workspace, "own_output": own}
        addresses = [t.address or str(h["address"]) for t, h in zip(targets, hellos, strict=True)]
        if submission.package:
            from paddock.backends.ssh.transfer import send_package

            send_package(submission, run, group, self._base(run), parts, addresses, say)
        known = {f"ADDRESS_{i}": address for i, address in enumerate(addresses)}
        known["PORT_0"] = str(hellos[0]["port"])
        cluster = {
            "job": submission.run_id,
            "nodes": [
                {"rank": i, "host": t.login, "address": a}
                for i, (t, a) in enumerate(zip(targets, addresses, strict=True))
            ],
        }

        def start(index: int, channel: Channel) -> dict[str, Any]:
            whole = f"{hellos[index]['root']}/{submission.run_id}"
            directory = f"{whole}/{parts[index]}".rstrip("/")
            words = launch_args(submission, targets, index)
            return channel.ask(
                "start",
                **self._base(run, index),
                cwd=submission.workspace or whole,
                is_shared=bool(parts[index]) or is_common[index],
                words=[*filled(words, {**known, "JOB": directory}), *user_args(submission)],
                job=job,
                env={"PADDOCK_TOKEN": submission.token, **dict(submission.env)},
                index=index,
                file=submission.file,
                cluster=cluster,
                python=channel.target.python,
                is_attached=self.is_held or not submission.is_detached,
                is_held=self.is_held and submission.is_detached,
            )

        run.keep(may_run=[target.login for target in targets])
        group.each(start)

    def _undo(self, group: HostGroup, run: RegisteredJob) -> None:
        """Undo a failed start: end the ranks that run, and remove the job's files.

        A host that cannot be reached any more stays in the entry's `may_run`.
        """

        def clear(pair: tuple[int, Channel]) -> None:
            index, channel = pair
            base = self._base(run, index)
            is_up = channel.ask("stop", **base, now=True, is_undone=True)["was_running"]
            deadline = time.monotonic() + 10
            while is_up and time.monotonic() < deadline:
                # sleep: ranks that were told to end at once need a moment
                time.sleep(0.05)
                is_up = channel.ask("status", **base)["state"] in ALIVE
            channel.ask("delete", **base, is_undone=True)

        results = at_all(list(enumerate(group.channels)), clear)
        if run.details["may_run"]:
            pairs = zip(group.channels, results, strict=True)
            run.keep(may_run=[c.target.login for c, r in pairs if isinstance(r, PaddockError)])

    # -------------------------------------------------------------------- later

    def status(self, run: RegisteredJob) -> JobStatus:
        """Ask the hosts for the job's status, with the full time limits."""
        (status,) = self.statuses([run])
        if isinstance(status, PaddockError):
            raise status
        return status

    def statuses(
        self, runs: Sequence[RegisteredJob], *, is_brief: bool = False
    ) -> list[JobStatus | PaddockError]:
        """Ask the first hosts, which know the whole job; ask all hosts where that is not enough.

        A host that cannot be asked has the state unknown, if others answer.
        """
        targets = [tried(lambda run: tuple(self._run_targets(run)), run) for run in runs]
        rows: list[list[dict[str, Any] | PaddockError]] = [
            [each] if isinstance(each, PaddockError) else [] for each in targets
        ]
        pool = ConnectionPool(is_brief=is_brief)
        for is_first in (True, False):
            left = [
                (at, (target, self._base(runs[at], node)))
                for at, hosts in enumerate(targets)
                if not isinstance(hosts, PaddockError) and not _is_enough(runs[at], rows[at])
                for node, target in enumerate(hosts)
                if is_first == (node == 0)
            ]
            answers = pool.ask_all("status", [question for _, question in left])
            for (at, _), row in zip(left, answers, strict=True):
                rows[at].append(row)
        return [
            hosts
            if isinstance(hosts, PaddockError)
            else tried(_status_of, (hosts, rows[at], _patience(runs[at])))
            for at, hosts in enumerate(targets)
        ]

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        from paddock.backends.ssh.lines import merged

        return merged(self._questions(run), query)

    def history(self, run: RegisteredJob) -> list[Path]:
        """Copy what is new of every host's history into the entry of the run."""
        from paddock.backends.common.histories import fetch_histories

        ask = partial(ConnectionPool().ask_all, "history")
        return fetch_histories(run.folder / "history", self._questions(run), ask)

    def stacks(self, run: RegisteredJob, *, native: bool) -> list[dict[str, Any]]:
        """Ask every host; one that cannot be asked has an answer with its error."""
        questions = [(target, {**base, "native": native}) for target, base in self._questions(run)]
        results = ConnectionPool().ask_all("stacks", questions)
        if all(isinstance(row, PaddockError) for row in results):
            all_or_none(results)
        return [
            {"host": target.login, "stacks": [], "problem": row.message}
            if isinstance(row, PaddockError)
            else row
            for (target, _), row in zip(questions, results, strict=True)
        ]

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Ask every host to end the job; a job of several nodes ends with any of them."""
        questions = [(target, {**base, "now": now}) for target, base in self._questions(run)]
        results = ConnectionPool().ask_all("stop", questions)
        silent = [row for row in results if isinstance(row, PaddockError)]
        if len(silent) == len(results):
            all_or_none(results)
        if silent:
            lease = run.details.get("lease_seconds")
            then = f"its ranks end within their lease{f' of {lease:g} s' if lease else ''}"
            if run.details.get("is_elastic"):
                then = "the job is elastic, and may go on there"
            hint = f"the others are told; {then}. When it answers: paddock stop {run.run_id}"
            raise NotAllReachedError.of(
                [Problem(f"{row.message}; it is not told to end", hint) for row in silent]
            )

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = FETCHED,
    ) -> None:  # fmt: skip
        """Copy log/HOST/ of every host, and output/; into output/HOST/ where several have one."""
        from paddock.backends.ssh.transfer import fetch_into

        targets = self._run_targets(run)
        called = [target.name for target in targets]
        hosts = [
            (name if called.count(name) == 1 else f"{name}.{index}") or os.uname().nodename
            for index, name in enumerate(called)
        ]
        own = run.details.get("own_output") or [0]

        def fetch(pair: tuple[int, Target]) -> str:
            index, target = pair
            wanted = [name for name in parts if name == "log" or index in own]
            if not wanted:
                return "nothing to fetch"
            request = {**self._base(run, index), "names": wanted, "cwd": run.details["cwd"]}
            output = "output" if len(own) == 1 else f"output/{hosts[index]}"
            places = {"log": f"log/{hosts[index]}", "output": output}
            with Channel(target) as channel:
                return fetch_into(channel, request, to, places, received)

        results = at_all(list(enumerate(targets)), fetch)
        for target, result in zip(targets, results, strict=True):
            if isinstance(result, str):
                say(f"{target.login}: {result}")
        all_or_none(results)

    def delete(self, run: RegisteredJob) -> None:
        """Remove the job's directory from every host; from none if a host cannot be asked."""
        pool, questions = ConnectionPool(), self._questions(run)
        all_or_none(pool.ask_all("ping", questions))
        all_or_none(pool.ask_all("delete", questions))

    def clear(self, site: Site, say: Say) -> None:
        """Remove the contents that the hosts cache; a host that cannot be asked is named."""
        targets = self._targets(site)
        results = ConnectionPool().ask_all("clear", [(target, {}) for target in targets])
        for target, row in zip(targets, results, strict=True):
            if not isinstance(row, PaddockError):
                count, size = int(row["count"]), size_text(int(row["size"]))
                say(f"{target.login}: {count} files, {size} removed from {row['folder']}")
        all_or_none(results)

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        """Return the jobs whose first host is the site's first, on hosts of this site."""
        targets = self._targets(site)
        with Channel(targets[0]) as channel:
            answer = channel.ask("discover", root=root_of(site))
        found = found_jobs(answer, targets)
        return [(Handle(site.backend, site.name, row["id"]), row) for row in found]

    # ------------------------------------------------------------------- helpers

    def _targets(self, site: Site) -> tuple[Target, ...]:
        return targets_of(site)

    def _run_targets(self, run: RegisteredJob) -> list[Target]:
        try:
            return [self.target_kind(**row) for row in run.details["targets"]]
        except TypeError as error:
            raise damaged(run.folder) from error

    def _questions(self, run: RegisteredJob) -> list[tuple[Target, dict[str, Any]]]:
        """Return the hosts of a job, with the keys of a request to each."""
        return [(t, self._base(run, index)) for index, t in enumerate(self._run_targets(run))]

    def _base(self, run: RegisteredJob, index: int = 0) -> dict[str, Any]:
        """Return the keys of a request: which job, and which part of a shared directory."""
        parts = run.details.get("parts") or []
        part = parts[index] if index < len(parts) else ""
        return {"root": run.details["root"], "id": run.details["id"], "part": part}


def _refuse_taken(targets: Sequence[Target], rows: Sequence[dict[str, Any]], run_id: str) -> None:
    """Raise IdTakenError if a host has a directory of that id already."""
    for target, row in zip(targets, rows, strict=False):
        if row.get("is_taken"):
            raise IdTakenError(f"{target.login}: there is a job {run_id} already")


def _is_enough(run: RegisteredJob, rows: Sequence[dict[str, Any] | PaddockError]) -> bool:
    """Return True if the first host has reported the whole job, which goes on and moves."""
    if not rows or isinstance(rows[0], PaddockError) or run.details.get("is_elastic"):
        return False
    first = checked(rows[0])
    whole = first["whole"]
    if any(each["kind"] in STANDS for each in first["news"]):
        return False  # another host may know which rank the others wait for
    return bool(first["state"] in ALIVE and whole.get("nodes") and not whole["verdict"])


def _patience(run: RegisteredJob) -> tuple[int, float]:
    """How many nodes a job cannot do without, and when those that are cut off have ended.

    In seconds after the others: the lease, the grace of the ranks, and the goodbyes.
    """
    try:
        nodes = int(run.details.get("nnodes_min", ""))
        lease = float(run.details.get("lease_seconds", ""))
        grace = float(run.details.get("grace_seconds", ""))
    except (TypeError, ValueError):
        return 0, math.inf  # an entry of an older Paddock, or of a job found on its host: unknown
    return nodes, lease + grace + GOODBYE_SECONDS


def _status_of(
    asked: tuple[Sequence[Target], Sequence[dict[str, Any] | PaddockError], tuple[int, float]],
) -> JobStatus:
    """Return the status from the hosts' answers. Raises UsageError if no host answers."""
    targets, rows, patience = asked
    if all(isinstance(row, PaddockError) for row in rows):
        all_or_none(rows)
    known = [
        {"state": "unknown", "why": row.message} if isinstance(row, PaddockError) else row
        for row in rows
    ]
    return status_of([target.login for target in targets], known, time.time(), *patience)


def _refuse_other_python(group: HostGroup, sent: str) -> None:
    """Raise UsageError for hosts that cannot read a function of this version, such as 3.11."""
    refuse([
        Problem(
            f"{each.target.login}: {each.target.python or 'python3'} is Python {each.version}, and "
            f"the function is sent by Python {sent}",
            "name another with --interpreter (in Python: python=), or submit a script",
        )
        for each in group.channels if sent and not f"{each.version}.".startswith(f"{sent}.")
    ])  # fmt: skip


def _own_output(parts: Sequence[str], workspaces: Sequence[str]) -> list[int]:
    """Return the hosts whose working directory is their own, not one of a host before them.

    >>> _own_output(["", "nodes/1", ""], ["", "", ""]), _own_output([""] * 3, ["a", "a", "b"])
    ([0, 2], [0, 2])
    """
    return [
        index
        for index, (part, workspace) in enumerate(zip(parts, workspaces, strict=True))
        if (workspaces.index(workspace) == index if workspace else not part)
    ]


class Local(Ssh):
    """The backend for this machine, without ssh: a job runs on when its terminal is closed."""

    def _targets(self, site: Site) -> tuple[Target, ...]:
        # Not the python3 of PATH: of two environments the job has the one it was submitted from.
        return (Target(HERE, python=site.text("interpreter") or sys.executable),)
