"""paddock.submit: the same functions on a site: this machine. Real hosts: tests/conformance."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import paddock
from api import functions
from paddock.api.launch import Label
from paddock.api.results import RESULTS_THERE
from paddock.backends.backend import find_backend
from paddock.compat import submitit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, own_place: Path) -> None:
    """The jobs of a site are below a directory of the test."""
    text = f'[site.here]\nbackend = "local"\nroot = "{tmp_path}/jobs"\n'
    (own_place / "paddock.toml").write_text(text)


def test_results_of_a_submitted_function_come_back(own_place: Path) -> None:
    """Its ranks use paddock and cloudpickle, which the site lacks."""

    def train(scale: float) -> tuple[int, float, str]:
        paddock.report(step=1, loss=0.5)
        return paddock.rank(), scale * paddock.world_size(), os.path.basename(os.getcwd())

    run = paddock.submit(train, 0.5, site="here", nproc=2)
    assert run.results(60) == [(0, 1.0, run.id), (1, 1.0, run.id)]
    assert run.handle == f"local://here/{run.id}"
    assert [path.name for path in own_place.iterdir()] == ["paddock.toml"]
    assert paddock.Run.find(run.id).result == (0, 1.0, run.id)


def test_results_come_without_the_rest_of_the_output(tmp_path: Path) -> None:
    """Which may be a checkpoint of a hundred GB."""

    def train() -> None:
        os.makedirs("output", exist_ok=True)
        with open("output/checkpoint", "w", encoding="utf-8") as file:
            file.write("large")

    run = paddock.submit(train, site="here", nproc=1)
    assert run.results(60) == [None]
    assert run.entry is not None
    told: list[str] = []
    backend = find_backend(run.entry.handle.backend)
    backend.fetch(run.entry, tmp_path / "to", told.append, lambda _: None, [RESULTS_THERE])
    names = sorted(path.name for path in (tmp_path / "to").rglob("*") if path.is_file())
    assert names == ["0.worker.0.1.result"]
    run.fetch(tmp_path / "all")
    assert list((tmp_path / "all").glob("output/**/checkpoint"))


def test_a_submitted_failure_names_rank_host_and_exception() -> None:
    run = paddock.submit(functions.fail_in, 1, "the batch is empty", site="here", nproc=2)
    with pytest.raises(paddock.RankFailedError, match="ValueError: the batch is empty") as caught:
        run.wait(60)
    assert (caught.value.rank, caught.value.consequences) == (1, (0,))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_script_is_submitted_and_fetched(own_place: Path) -> None:
    text = "import os, pathlib; pathlib.Path('output').mkdir(exist_ok=True)\n"
    text += "pathlib.Path('output/a.txt').write_text(os.environ['X'])\n"
    (own_place / "train.py").write_text(text)
    run = paddock.submit(
        "train.py", site="here", env={"X": "secret"}, python=sys.executable, name="mine"
    )
    assert run.wait(60).state == "succeeded"
    assert run.id.startswith("mine-")
    folder = run.fetch(own_place / "fetched")
    assert [path.read_text() for path in folder.glob("output/**/a.txt")] == ["secret"]


def test_a_function_in_an_ignored_directory_is_sent_and_no_other_one(own_place: Path) -> None:
    """One that a killed process has left behind has arguments that are none of this job's."""
    left = own_place / "paddock-call-0123abcd"
    left.mkdir()
    (left / "call.py").write_text("# of another submission\n")
    old = own_place / "paddock-call-89abcdef"
    old.mkdir()
    (old / "call.py").write_text("")
    os.utime(old / "call.py", (0, 0))
    (own_place / ".paddockignore").write_text("*\n!*.toml\n")
    run = paddock.submit(functions.names_here, site="here", nproc=1)
    calls, names = run.results(60)[0]
    assert calls == 1 and "paddock.toml" in names and left.name not in names
    assert left.exists() and not old.exists()


def test_a_submission_that_ends_meanwhile_disturbs_no_other_one(own_place: Path) -> None:
    """It removes its function while another looks for old ones: here its file leads nowhere."""
    left = own_place / "paddock-call-0123abcd"
    left.mkdir()
    (left / "call.py").symlink_to("gone")
    nothing: Any = None  # as other keywords: the only site, no flags
    run = paddock.submit(functions.who, site=nothing, nproc=1, flags=nothing)
    assert run.results(60) == [(0, 1)]


def test_a_notebook_that_starts_in_the_home_is_refused(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left there; with the word that allows it, keys and former jobs stay behind."""
    monkeypatch.setenv("HOME", str(own_place))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (own_place / ".ssh").mkdir()
    with pytest.raises(paddock.UsageError, match="the package is your home directory"):
        paddock.submit(functions.names_here, site="here", nproc=1)
    assert list(own_place.glob("paddock-*")) == []
    (own_place / ".paddockignore").write_text(".ssh\n")
    flags = ["--root", str(own_place / "jobs")]
    for _ in range(2):  # the second finds the cache and the job of the first
        run = paddock.submit(functions.names_here, site="here", nproc=1, flags=flags)
        names = {*run.results(60)[0][1]}
        assert not names & {".ssh", "jobs"} and "paddock.toml" in names


@pytest.mark.parametrize("where", ["keyword", "site", "flags", "sweep", "submitit"])
def test_a_function_is_refused_where_no_results_come_back(own_place: Path, where: str) -> None:
    """It ran, and results() failed after hours. No object, record or file is made now."""
    with open(own_place / "paddock.toml", "a", encoding="utf-8") as file:
        file.write('[site.kube]\nbackend = "kubernetes"\nimage = "train:1"\n')
    submit: dict[str, Callable[[], object]] = {
        "keyword": lambda: paddock.submit(
            functions.who, site="kubernetes", flags=["--image", "train:1"]
        ),
        "site": lambda: paddock.submit(functions.who, site="kube", nodes=2),
        "flags": lambda: paddock.submit(functions.who, site="here", flags=["-b", "kube"]),
        "sweep": lambda: paddock.sweep(functions.stay, {"seconds": [0.0, 1.0]}, site="kube"),
        "submitit": lambda: submitit.AutoExecutor("log", cluster="kube").submit(functions.who),
    }
    before = sorted(path.name for path in own_place.rglob("*"))
    with pytest.raises(paddock.UsageError, match=r"a function, and from kube.* no results"):
        submit[where]()
    assert sorted(path.name for path in own_place.rglob("*")) == before
    assert paddock.Run.all() == []


def test_a_package_that_cannot_take_the_function_is_told(own_place: Path) -> None:
    (own_place / "file").touch()
    for package in ("nope", "file"):
        with pytest.raises(paddock.UsageError, match=f"the package .*/{package}: "):
            paddock.submit(functions.who, site="here", package=package)
    with pytest.raises(paddock.UsageError, match="cannot be sent to --workspace /tmp"):
        paddock.submit(functions.who, site="here", flags=["--workspace", "/tmp"])
    with pytest.raises(paddock.UsageError, match="cannot be sent to --from /tmp"):
        paddock.submit(functions.who, site="script,submit=true", flags=["--from", "/tmp"])


def test_another_version_of_python_is_told_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hosts say theirs when they are connected to."""
    monkeypatch.setattr("paddock.api.submit.OUR_PYTHON", "3.1")  # not the beginning of 3.1x
    here = "{}.{}.{}".format(*sys.version_info)
    with pytest.raises(paddock.UsageError, match=f"is Python {here}, and the function is .* 3.1"):
        paddock.submit(functions.who, site="here")
    assert paddock.Run.all() == []


def test_flags_that_would_start_something_else_are_refused() -> None:
    """They were ignored: one run started, without --sweep, and at once."""
    flags = ["--sweep", "lr=1,2", "--dry-run", "--watch"]
    with pytest.raises(paddock.UsageError) as caught:
        paddock.submit("train.py", site="here", flags=flags)
    assert [each.message for each in caught.value.problems] == [
        "submit() takes no --sweep", "submit() takes no --dry-run", "submit() takes no --watch",
    ]  # fmt: skip
    assert paddock.Run.all() == []


def test_the_name_of_a_person_is_a_claim_and_that_of_a_tool_a_label(own_place: Path) -> None:
    """Two jobs of one label live at once; --name among a tool's flags is a label, too."""
    up = str(own_place / "up")
    more: dict[str, Any] = {"site": "here", "nproc": 1}
    runs = [paddock.submit(functions.stay, 60, up, name="mine", **more)]
    try:
        with pytest.raises(paddock.UsageError, match="the name 'mine' is in use"):
            paddock.submit(functions.stay, 60, up, name="mine", **more)
        with pytest.raises(paddock.UsageError, match="the name 'mine' is in use"):
            paddock.submit(functions.stay, 60, up, flags=["--name", "mine"], **more)
        for flags in ([], ["--name", "theirs"], ["--name", "theirs"]):
            name = Label("mine")
            runs.append(paddock.submit(functions.stay, 60, up, name=name, flags=flags, **more))
        assert [run.id[:-5] for run in runs] == ["mine", "mine", "theirs", "theirs"]
        with pytest.raises(paddock.UsageError, match="--replace: a tool starts the job"):
            paddock.submit(functions.who, name=Label("mine"), flags=["--replace"], **more)
    finally:
        for run in runs:
            run.stop(now=True)
    assert {run.wait(60, check=False).state for run in runs} == {"cancelled"}


def test_the_points_of_two_sweeps_may_have_the_same_names() -> None:
    """Both sweeps are on one site at one time, with a point of one name."""
    sweep = partial(paddock.sweep, functions.stay, {"seconds": [0.0]}, site="here", nproc=1)
    (row,) = sweep()
    other = paddock.submit(functions.stay, 60, site="here", nproc=1, name=Label(row["name"]))
    try:
        assert [(each["state"], each["name"]) for each in sweep()] == [("succeeded", row["name"])]
        assert not other.is_done()
    finally:
        other.stop(now=True)


def test_a_run_after_another_waits_for_it(own_place: Path) -> None:
    first = paddock.submit(functions.stay, 0.5, str(own_place / "up"), site="here", nproc=1)
    second = paddock.submit(functions.who, site="here", flags=["--after", first.id])
    assert first.status.state == "succeeded"
    assert second.wait(60).state == "succeeded"


def test_what_is_wrong_is_told_before_anything_is_sent() -> None:
    with pytest.raises(paddock.UsageError, match="nosuchsite"):
        paddock.submit(functions.who, site="nosuchsite")
    with pytest.raises(paddock.UsageError, match=r"submit\(\) has no keyword 'sites'") as caught:
        paddock.submit("train.py", sites="here")
    assert "'site'" in str(caught.value.hint)
    assert paddock.Run.all() == []
