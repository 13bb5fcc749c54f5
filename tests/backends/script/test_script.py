"""Jobs that are handed to the commands of a site."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.script.pbs import PROFILE, install
from local.jobs import wait_until
from paddock.backends.registry import IdTakenError, Registry
from paddock.backends.script.driver import Script
from paddock.backends.script.parse import find_id, status_of
from paddock.backends.script.render import fill
from paddock.backends.sites.find import find_site
from paddock.backends.types import Handle, LogQuery, Submission
from paddock.cli.main import run as main
from paddock.errors import PaddockError, UsageError
from paddock.jobfile.parse import parse

if TYPE_CHECKING:
    from paddock.backends.registry import RegisteredJob

TRAIN = """\
import os, sys, time
print(os.environ["GREETING"], os.environ.get("MORE"), sys.argv[1:], flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


class Place:
    """A project with a profile for a PBS, and what is done with it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "train.py").write_text(TRAIN)
        self.profile(PROFILE)
        install(folder / "bin")
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        self.script = Script()
        self.said: list[str] = []

    def profile(self, text: str) -> None:
        """Write paddock.toml."""
        (self.project / "paddock.toml").write_text(text)

    def submission(self, *words: str, site: str = "pbs", **more: object) -> Submission:
        """What `paddock submit -b SITE train.py WORDS` asks for."""
        found = find_site(
            site, env={}, cwd=str(self.project), said={"root": str(self.folder / "j")}
        )
        job = parse(["--nnodes", "1", "train.py", *words], {}, python="python3").job
        plain = Submission("train-1a2b", "train", found, job, workspace=str(self.project),
                           is_detached=True, token="k" * 32)  # fmt: skip
        return replace(plain, **more)  # type: ignore[arg-type]  # fields of a test's choice

    def submit(self, *words: str, **more: object) -> RegisteredJob:
        """The run of a submission that was handed over."""
        submission = self.submission(*words, **more)  # type: ignore[arg-type]
        plan = self.script.plan(submission)
        handle = Handle("script", "pbs", submission.run_id)
        run = Registry({"XDG_STATE_HOME": str(self.folder / "state")}).add("train", handle, "", 1)
        try:
            self.script.submit(submission, plan, run, self.said.append)
        except PaddockError:
            run.forget()
            raise
        return run

    def until(self, run: RegisteredJob, state: str) -> None:
        """Wait until a job is in this state; one that has ended in another has said why."""

        def is_so() -> bool:
            found = self.script.status(run)
            assert found.state in (state, "pending", "running", "stopping", "lost"), found
            return found.state == state

        wait_until(is_so)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A project of its own."""
    return Place(tmp_path, monkeypatch)


def test_job_runs_and_its_end_is_known(place: Place) -> None:
    """The id is the site's; the environment is config.ini's and --env's."""
    run = place.submit("0", "0", "q'\"q $(id) 中\n文", env=(("MORE", "$(id) 'x'"),))
    assert run.details["number"] == "1001"
    place.until(run, "succeeded")
    (text,) = [
        p.data.decode() for p in place.script.logs(run, LogQuery()) if b"two words" in p.data
    ]
    assert "two words $(id) 'x' ['0', '0', 'q\\'\"q $(id) 中\\n文']" in text
    assert (
        place.folder / "bin" / "1001.words"
    ).read_text() == "-N train -q batch -l select=1 job.sh\n"


def test_failure_has_the_code_and_the_culprit(place: Place) -> None:
    """The job has written them itself, whatever the site remembers."""
    run = place.submit("0", "7")
    place.until(run, "failed")
    status = place.script.status(run)
    assert status.code == 7
    assert "rank 0" in status.why
    for path in (place.folder / "bin").glob("1001.*"):
        path.unlink()
    assert place.script.status(run).state == "failed"


def test_stop_ends_this_job_only(place: Place) -> None:
    """By its id."""
    run = place.submit("60", "0")
    other = place.submit("60", "0", run_id="train-9f9f")
    place.until(run, "running")
    place.script.stop(run, now=False)
    place.until(run, "cancelled")
    assert place.script.status(other).state == "running"
    place.script.stop(other, now=True)
    place.until(other, "cancelled")


@pytest.mark.parametrize("words", ["--rank 1", "--since 5m", "--around-failure 5s"])
def test_what_a_command_of_the_site_cannot_choose_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str
) -> None:
    """Its lines say neither rank nor time; all of them would be taken for the chosen ones."""
    place.profile(PROFILE.replace("status =", 'logs = "echo all of it"\nstatus =', 1))
    run = place.submit("0", "7")
    place.until(run, "failed")
    monkeypatch.setenv("XDG_STATE_HOME", str(place.folder / "state"))
    assert main(["logs", run.run_id]) == 0
    assert "all of it" in capfd.readouterr().out
    assert main(["logs", run.run_id, *words.split()]) == 2
    out, err = capfd.readouterr()
    assert out == "" and words.split()[0] in err and "site pbs" in err


def test_dry_run_is_what_is_written(place: Place) -> None:
    """Every file, and its lines' reasons."""
    submission = place.submission("0", "0")
    plan = place.script.plan(submission)
    run = place.submit("0", "0")
    for path, text in plan.files.items():
        assert Path(path).read_text("utf-8") == text
    lines = [line for text in plan.files.values() for line in text.splitlines()]
    assert all(reason in lines for reason in plan.why)
    assert plan.why["GREETING='two words'"].endswith("[site.pbs] config")
    place.until(run, "succeeded")


def test_hooks_with_the_line_ends_of_windows_are_lines_of_shell(place: Place) -> None:
    """A file that goes into the directory keeps its bytes."""
    for name in ("hook.sh", "hosts.txt"):
        (place.project / name).write_bytes(b"echo \xff\r\n" if "txt" in name else b"echo up\r\n")
    more = 'before_hook = "hook.sh"\nfiles = ["hosts.txt"]\nqueue ='
    place.profile(PROFILE.replace("queue =", more, 1))
    folder = place.folder / "j/train-1a2b"
    place.submit("0", "0")
    assert (folder / "before_hook.sh").read_bytes() == b"echo up\n"
    assert (folder / "hosts.txt").read_bytes() == b"echo \xff\r\n"


def test_secrets_of_the_script_are_not_recorded(place: Place) -> None:
    """Only what runs it has them."""
    plan = place.script.plan(place.submission("--api_key", "s3cr3t"))
    with_it = {Path(path).name for path, text in plan.files.items() if "s3cr3t" in text}
    assert with_it == {"node.sh"}


def test_directory_is_edited_and_run_again(place: Place) -> None:
    """--from DIR: as it is now, but not while it runs."""
    run = place.submit("60", "0")
    folder = Path(run.details["folder"])
    with pytest.raises(UsageError, match="is in use"):
        place.submit("0", "0", run_id="again-0001", extra={"from": str(folder)})
    place.script.stop(run, now=False)
    place.until(run, "cancelled")
    job = (folder / "node.sh").read_text("utf-8")
    (folder / "node.sh").write_text(re.sub(r"train\.py 60 0", "train.py 0 0", job))
    again = place.submit("0", "0", run_id="again-0002", extra={"from": str(folder)})
    place.until(again, "succeeded")
    assert again.details["number"] == "1002"


def test_refused_submission_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the command complained of, and what to do if it lacks a variable."""
    monkeypatch.setenv("PBS_QUEUE_IS_FULL", "1")
    with pytest.raises(UsageError, match="Maximum number of jobs already in queue") as caught:
        place.submit("0", "0")
    assert "name them in credentials of the site" in caught.value.problems[0].hint
    assert list((place.folder / "j").iterdir()) == []


def test_directory_of_another_job_is_left_as_it_is(place: Place) -> None:
    """Its id is drawn again."""
    there = place.folder / "j" / "train-1a2b"
    there.mkdir(parents=True)
    (there / "result").write_text("dear")
    with pytest.raises(IdTakenError, match="train-1a2b is there already"):
        place.submit("0", "0", takes_name=True)
    assert [path.name for path in there.iterdir()] == ["result"]


def test_name_is_taken_while_its_job_is_handed_over_and_while_it_goes_on(place: Place) -> None:
    """By whoever took it first, wherever; then it is free again."""
    run = place.submit("60", "0", run_id="train-0001", takes_name=True)
    with pytest.raises(UsageError, match=r"'train' is in use: train-0001 is (pending|running)"):
        place.submit("0", "0", run_id="train-0002", takes_name=True)
    assert not (place.folder / "j" / "train-0002").exists()
    place.script.stop(run, now=True)
    wait_until(lambda: place.script.status(run).is_final)
    run = place.submit("0", "0", run_id="train-0003", takes_name=True)
    wait_until(lambda: place.script.status(run).is_final)  # or it writes there after utime()
    id_file = place.folder / "j" / "train-0003" / ".paddock" / "id"
    id_file.unlink()  # its submitter has not come so far
    with pytest.raises(UsageError, match="'train' is in use: train-0003 is being submitted"):
        place.submit("0", "0", run_id="train-0004", takes_name=True)
    os.utime(id_file.parent, (1.0, 1.0))  # and will not any more
    place.submit("0", "0", run_id="train-0005", takes_name=True)
    assert os.readlink(place.folder / "j" / f".names-{os.geteuid()}" / "train") == "train-0005"


def test_stop_that_is_lost_is_asked_for_again_where_a_name_is_taken_over(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After the grace of the job that has the name, or --replace would wait for ever."""
    qdel = place.folder / "bin" / "qdel"
    first, *rest = qdel.read_text().splitlines(keepends=True)
    lost = '[ -e "$0.lost" ] || { : >"$0.lost"; exit 0; }\n'
    qdel.write_text("".join([first, lost, *rest]))
    monkeypatch.chdir(place.project)
    monkeypatch.setenv("XDG_STATE_HOME", str(place.folder / "state"))
    monkeypatch.setattr("paddock.backends.submit.STOP_MARGIN_SECONDS", 0.0)
    words = ["submit", "-b", "pbs", "--root", str(place.folder / "j"), "-d", "--name", "mine"]
    assert main([*words, "--grace", "0.5", "train.py", "600", "0"]) == 0
    assert main([*words, "--replace", "train.py", "0", "0"]) == 0
    assert "has not ended within its grace of 0.5 s: asking again" in capfd.readouterr().err
    assert main(["wait"]) == 0


def test_server_that_is_down_makes_no_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be asked: that is no state of the job."""
    run = place.submit("60", "0")
    with monkeypatch.context() as patch:
        patch.setenv("PBS_SERVER_IS_DOWN", "1")
        with pytest.raises(PaddockError, match="Connection refused"):
            place.script.status(run)
    place.script.stop(run, now=False)
    place.until(run, "cancelled")


def test_forgotten_job_without_an_end_is_lost(place: Place) -> None:
    """Neither the site nor its directory knows."""
    run = place.submit("60", "0")
    wait_until((place.folder / "bin" / "1001.pid").exists)
    shutil.copy(place.folder / "bin" / "1001.pid", place.folder / "kept")
    (place.folder / "bin" / "1001.words").unlink()
    assert place.script.status(run).state == "lost"
    place.script.stop(run, now=False)


def test_credentials_come_from_the_environment_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing ones are named; what a command says of them is hidden; no file holds them."""
    profile = PROFILE.replace("queue = ", 'credentials = ["AK", "SK"]\nqueue = ')
    place.profile(profile.replace('{id}"\nstop', '{id} && echo \\"$AK\\" && false"\nstop'))
    with pytest.raises(UsageError) as caught:
        place.submit("0", "0")
    assert [p.message.split()[0] for p in caught.value.problems] == ["AK", "SK"]
    monkeypatch.setenv("AK", "open-sesame")
    monkeypatch.setenv("SK", "very-secret")
    place.profile(profile.replace("qstat -fx {id}", "echo denied $AK; exit 1"))
    run = place.submit("0", "0")
    wait_until((Path(run.details["folder"]) / ".paddock" / "state.json").exists)
    for path in [*place.folder.rglob("j/**/*"), *place.folder.rglob("state/**/*")]:
        assert not path.is_file() or b"open-sesame" not in path.read_bytes(), path
    place.profile(PROFILE)
    (Path(run.details["folder"]) / ".paddock" / "state.json").unlink()
    with pytest.raises(PaddockError, match=r"denied \*\*\*\*\*\*"):
        place.script.status(run)


def test_discover_finds_what_was_submitted(place: Place) -> None:
    """A lost registry is made anew."""
    run = place.submit("0", "0")
    ((handle, row),) = place.script.discover(place.submission().site)
    assert str(handle) == "script://pbs/train-1a2b"
    assert isinstance(row["details"], dict)
    assert row["details"]["number"] == run.details["number"]
    place.until(run, "succeeded")
    place.script.delete(run)
    assert place.script.discover(place.submission().site) == []


def test_bad_profiles_are_refused_before_anything_is_written(place: Place) -> None:
    """All of it at once."""
    text = PROFILE.replace("{queue}", "{quue}").replace("running =", "runing =")
    place.profile(text.replace(r"^(\d+)\.", r"^(\d+"))
    with pytest.raises(UsageError) as caught:
        place.script.plan(place.submission("0", "0"))
    told = [p.message for p in caught.value.problems]
    assert told[0] == "submit: there is no value '{quue}'"
    assert "is no regular expression" in told[1]
    assert told[2] == "states: there is no state 'runing'"
    assert not (place.folder / "j").exists()


def test_several_nodes_need_to_know_what_starts_them(place: Place) -> None:
    """A job script runs on the first node only."""
    job = parse(["--nnodes", "2", "train.py"], {}, python="python3").job
    with pytest.raises(UsageError, match="does not say what runs"):
        place.script.plan(place.submission(job=job))
    place.profile(PROFILE.replace("queue = ", 'run = "pbsdsh --"\nqueue = '))
    plan = place.script.plan(place.submission(job=job))
    assert "pbsdsh -- sh " in next(t for p, t in plan.files.items() if p.endswith("job.sh"))


@pytest.mark.real
def test_mpirun_starts_a_launcher_on_every_node(place: Place) -> None:
    """Two on this machine; each finds its rank, and has the variables."""
    run = "mpirun --allow-run-as-root --oversubscribe -n {nnodes}"
    place.profile(PROFILE.replace("queue = ", f'run = "{run}"\nqueue = '))
    job = parse(["--nnodes", "2", "train.py", "0", "0"], {}, python="python3").job
    done = place.submit("0", "0", job=job, env=(("MORE", "m"),))
    place.until(done, "succeeded")
    lines = [p.data.decode() for p in place.script.logs(done, LogQuery()) if b"two words" in p.data]
    assert len(lines) == 2
    assert all("two words m" in line for line in lines)


def test_values_are_words_of_the_shell_whatever_they_hold() -> None:
    """No value becomes a command."""
    problems: list[object] = []
    text = fill("run {a} {{b}} ${c}", {"a": "x; rm -rf '$HOME' {b}"}, "run", problems)  # type: ignore[arg-type]
    assert text == "run 'x; rm -rf '\"'\"'$HOME'\"'\"' {b}' {b} ${c}"
    assert problems == []


@pytest.mark.parametrize(
    ("told", "own", "is_asked", "state"),
    [("pending", {}, False, "pending"), ("running", {}, True, "stopping"),
     ("running", {"code": 0}, False, "stopping"), ("lost", {"code": 0}, False, "succeeded"),
     ("lost", {"code": 1}, True, "cancelled"), ("failed", {}, False, "failed"),
     (None, {"code": 2}, False, "failed"), ("lost", {}, False, "lost"),
     ("succeeded", {}, False, "succeeded")],
)  # fmt: skip
def test_state_table_row_by_row(told: str, own: dict[str, int], is_asked: bool, state: str) -> None:
    """The site's word, the job's own, and what we have asked for."""
    found = status_of(told, own, 1.0, is_asked=is_asked)  # type: ignore[arg-type]
    assert found is not None
    assert found.state == state


def test_nobody_who_knows_is_no_status() -> None:
    """The command line says `unknown` then."""
    assert status_of(None, {}, 1.0, is_asked=False) is None


def test_id_is_found_by_pattern_or_as_the_last_word() -> None:
    """And none is none."""
    assert find_id("Submitted batch job 7\n", "") == "7"
    assert find_id("queued as <12>", r"<(\d+)>") == "12"
    assert find_id("error", r"<(\d+)>") == ""
