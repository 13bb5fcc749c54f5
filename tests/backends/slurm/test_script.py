"""The sbatch script: every line, every reason, and every string of the user's as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backends.slurm.submissions import TOKEN, submission
from paddock.backends.slurm.driver import Slurm
from paddock.backends.slurm.script import (
    READ_ENV,
    build_script,
    env_file,
    plan_of,
    sbatch_word,
    script_text,
)
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.backends.types import Submission

HERE = Path(__file__).parent
ROOT = "/shared/jobs"
NASTY = [
    "a b",
    "it's",
    'say "x"',
    "$(id)",
    "`id`",
    "line\nbreak",
    "作业",
    "--nnodes",
    "",
    "\\",
    "%j",
]


def script_of(made: Submission) -> str:
    return script_text(build_script(made, f"/shared/jobs/{made.run_id}"))


def test_a_script_is_the_same_as_ever(same_as_golden: Callable[[Path, str], None]) -> None:
    made = submission(
        "--nnodes=3", "--nproc_per_node", "2", "--grace", "20", "--", "train.py", "--lr", "0.1 0.2",
        options={"sbatch_lines": ["--mail-type=END"], "interpreter": "/opt/my py/bin/python"},
        partition="gpu", gres="gpu:2", time="1:00:00", account="lab",
    )  # fmt: skip
    lines = build_script(made, "/shared/jobs/train-3f2a")
    text = "".join(f"{line.text}\n" + (f"    ^ {line.why}\n" if line.why else "") for line in lines)
    assert text.startswith("#!")
    same_as_golden(HERE / "golden" / "script.txt", text)


def test_a_shell_reads_the_script_without_complaint() -> None:
    made = submission("--nnodes=2", "--", "train.py", *NASTY, array="1-4", env=(("A", "b"),))
    done = subprocess.run(["sh", "-n"], input=script_of(made), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def put(folder: Path, **texts: str) -> None:
    """Programs of a shell's lines."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def test_arguments_reach_the_launcher_as_they_are(tmp_path: Path) -> None:
    """The real script in a real shell, with an srun and an squeue that only tell."""
    folder, tools = tmp_path / "my 'job' $HOME", tmp_path / "bin"
    (folder / ".paddock").mkdir(parents=True)
    srun, python3 = 'while [ "$1" != sh ]; do shift; done; exec "$@"', 'printf "%s\\0" "$@" >"$OUT"'
    put(tools, srun=srun, squeue="echo RUNNING None", python3=python3)
    made = submission("--nnodes=1", "--job_id", "x", "--", "train.py", *NASTY)
    script = script_text(build_script(made, str(folder)))
    out = tmp_path / "words"
    env = {"PATH": f"{tools}:/usr/bin:/bin", "OUT": str(out), "SLURM_JOB_ID": "7",
           "SLURM_NODEID": "0", "SLURM_JOB_NUM_NODES": "1"}  # fmt: skip
    done = subprocess.run(["sh"], input=script, env=env, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    words = out.read_text().split("\0")[:-1]
    assert words[-len(NASTY) - 2 :] == ["--", "train.py", *NASTY]
    state = (folder / ".paddock" / "state.json").read_text()
    assert '"state": "succeeded", "code": 0' in state


@pytest.mark.parametrize(
    ("squeue", "at_once", "when_up"),
    [
        ("echo RUNNING None", "", ""),  # before anybody can hear it, or while we look, below
        ("[ -e once ] || { : >once; kill -TERM $(cat pid); }; echo RUNNING None", "", ""),
        ("exit 1", "", "kill -TERM $(cat pid)"),  # the controller is busy
        ("echo RUNNING None", "kill -TERM $(cat pid)", ""),  # before there is a launcher
    ],
    ids=["lost", "while-we-look", "no-answer", "early"],
)
def test_stop_reaches_the_launcher_once(
    tmp_path: Path, squeue: str, at_once: str, when_up: str
) -> None:
    """Whenever its signal comes: a second one would end the ranks without their grace."""
    folder, tools = tmp_path / "job", tmp_path / "bin"
    (folder / ".paddock").mkdir(parents=True)
    (folder / ".paddock" / "stop").touch()
    # One that is told before it listens ends as well, and has no ranks yet; but the shell says so.
    up = "until [ -e up ]; do sleep 0.01; done"
    call = f'case "$*" in *--overlap*) echo told >>calls; {up};; esac'
    wait = "trap 'kill $!; exit 143' TERM; sleep 600 & : >up; "
    put(tools, squeue=squeue, python3=f"{wait}{when_up}\nwait",
        srun=f'{call}\nwhile [ "$1" != sh ]; do shift; done; exec "$@"',
        mkdir=f'{at_once}\nexec /bin/mkdir "$@"')  # fmt: skip
    made = submission("--nnodes=1", "--", "train.py")
    (folder / "script").write_text(script_text(build_script(made, str(folder))))
    env = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_NODEID": "0",
           "SLURM_JOB_NUM_NODES": "1"}  # fmt: skip
    command = ["timeout", "20", "sh", "-c", "echo $$ >pid; exec sh script"]
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (143, "")
    assert (folder / "calls").read_text() == "told\n"
    state = (folder / ".paddock" / "state.json").read_text()
    assert '"state": "cancelled", "code": 143' in state


def test_neither_key_nor_values_of_variables_are_in_the_plan() -> None:
    made = submission(
        "--nnodes=1", "--env", "WANDB_KEY=hidden-value", "--", "train.py",
        env=(("WANDB_KEY", "hidden-value"),),
    )  # fmt: skip
    plan = plan_of(made, ROOT)
    assert TOKEN not in repr(plan)
    assert "hidden-value" not in repr(plan)
    assert "WANDB_KEY" in repr(plan)


def test_what_env_sets_reaches_the_launcher_and_no_script(tmp_path: Path) -> None:
    """A shell on the node reads the file; what the launcher sets itself becomes a word of it."""
    made = submission(
        "--nnodes=1", "--env", "PADDLE_MASTER=it's $(id)", "--", "train.py",
        env=(("KEY", "hidden 'value'"),),
    )  # fmt: skip
    assert "hidden" not in script_of(made) and "PADDLE_MASTER" not in script_of(made)
    (tmp_path / "env").write_text(env_file(made))
    words = ["inner", str(tmp_path / "env"), "python", "program", "launch", "--", "train.py"]
    line = f'{READ_ENV} printf "%s\\n" "$KEY" "$@"'
    done = subprocess.run(["sh", "-c", line, *words], text=True, capture_output=True)
    told = ["--env", "PADDLE_MASTER=it's $(id)", "--", "train.py"]
    assert done.stdout.splitlines() == ["hidden 'value'", "python", "program", "launch", *told]


def test_every_line_of_the_head_has_a_reason() -> None:
    made = submission("--nnodes=2", "--", "train.py", partition="gpu", after="slurm://c/12")
    plan = plan_of(made, ROOT)
    (text,) = [text for path, text in plan.files.items() if path.endswith("job.sbatch")]
    heads = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert [line for line in heads if not plan.why.get(line)] == []


def test_a_word_of_the_command_line_wins_over_the_site() -> None:
    made = submission("--nnodes=1", "--", "train.py", options={"qos": "low"}, qos="high")
    assert "--qos=high" in script_of(made)
    assert "--qos=low" not in script_of(made)


def test_a_job_of_a_range_of_nodes_asks_for_it() -> None:
    made = submission("--nnodes=2:4", "--", "train.py")
    assert "#SBATCH --nodes=2-4\n" in script_of(made)
    assert "--nnodes 2:4" in script_of(made)


def test_nodes_of_an_elastic_job_may_be_lost_and_may_end_apart() -> None:
    made = submission("--nnodes=2:4", "--elastic_level", "1", "--", "train.py")
    assert "--wait=0 --kill-on-bad-exit=0 --no-kill" in script_of(made)


def test_numbers_and_handles_may_be_come_after() -> None:
    made = submission("--nnodes=1", "--", "train.py", after="slurm://c/12,13_4")
    assert "#SBATCH --dependency=afterok:12:13_4\n" in script_of(made)


@pytest.mark.parametrize("word", ["ssh://lab/x-1", "train", "12;id", "slurm://c/x"])
def test_what_is_no_job_of_slurm_cannot_be_come_after(word: str) -> None:
    with pytest.raises(UsageError, match="not a job of Slurm"):
        script_of(submission("--nnodes=1", "--", "train.py", after=word))


def test_an_option_is_one_line() -> None:
    """Or it could say more to sbatch than it seems to."""
    with pytest.raises(UsageError, match="--time: sbatch takes one line"):
        script_of(submission("--nnodes=1", "--", "train.py", time="5\n#SBATCH --uid=0"))


@pytest.mark.parametrize("name", ["A;id", "SBATCH_PARTITION", "SLURM_CONF", ""])
def test_variables_that_are_no_names_or_tell_slurm_something_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--env"):
        plan_of(submission("--nnodes=1", "--", "train.py", env=((name, "x"),)), ROOT)


def test_a_job_may_be_told_not_to_start_again() -> None:
    text = script_of(submission("--nnodes=1", "--", "train.py", options={"requeues": 0}))
    assert "#SBATCH --no-requeue\n" in text
    assert "-lt 0 ]" in text


@pytest.mark.parametrize("text", ["gpu:2", "a b", 'a"b', "a\\b", "#x", "作业"])
def test_what_sbatch_takes_away_is_what_was_put_in(text: str) -> None:
    word = sbatch_word(text)
    bare = word[1:-1].replace('\\"', '"').replace("\\\\", "\\") if word[0] == '"' else word
    assert bare == text


def test_words_of_other_backends_are_named() -> None:
    plan = plan_of(submission("--nnodes=1", "--", "train.py", image="x"), ROOT)
    assert plan.cannot == ("--image: for kubernetes only",)


def test_every_of_an_array_has_a_directory_of_its_own() -> None:
    text = script_of(submission("--nnodes=1", "--", "train.py", array="1-10%2"))
    assert "#SBATCH --array=1-10%2\n" in text
    assert 'job=/shared/jobs/train-3f2a/"$SLURM_ARRAY_TASK_ID"\n' in text
    assert "/token " not in text.splitlines()[-2]  # the others still need it


def test_the_holder_of_a_name_is_looked_for_in_the_cluster_of_the_submission(
    tmp_path: Path,
) -> None:
    """--cluster wins over the site here, too."""
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/words"\n')
    squeue.chmod(0o755)
    options = {"bin": str(tmp_path), "cluster": "small"}
    wanted = submission("--nnodes=1", "--", "train.py", options=options, cluster="large")
    Slurm().held(tmp_path, wanted)
    assert "--clusters=large" in (tmp_path / "words").read_text()
