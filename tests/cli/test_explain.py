"""What paddock explain shows before anything is started."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from paddock.cli.main import run
from schemas import mistakes

if TYPE_CHECKING:
    from pathlib import Path


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON of paddock explain for these words, on a CPU."""
    assert run(["explain", "--json", "--devices", "cpu", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert mistakes("explain.json", found) == []
    return found


def test_the_plan_is_shown_with_ranks_and_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two workers on this machine; ports are chosen at the start."""
    found = explained(capsys, "--nproc_per_node", "2", "train.py", "--json")
    assert [p["rank"] for p in found["processes"]] == [0, 1]
    assert [p["environment"]["PADDLE_TRAINER_ID"] for p in found["processes"]] == ["0", "1"]
    assert found["command"][-2:] == ["train.py", "--json"]
    assert found["values"]["roles.worker.count"] == {
        "value": 2,
        "from": "flag",
        "name": "--nproc_per_node",
        "text": "2",
    }


def test_values_have_the_names_that_the_user_knows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Flags and fields of the file, with where each was given; not roles.worker.count."""
    monkeypatch.setenv("PADDLE_NNODES", "2:4")
    assert run(["explain", "--nproc_per_node", "2", "--grace", "5m", "train.py"]) == 0
    rows = _rows(capsys)
    assert rows["--nproc_per_node"] == "2  command line"
    assert rows["--grace"] == "300  command line"
    assert rows["--nnodes"] == "2:4  environment PADDLE_NNODES"
    monkeypatch.delenv("PADDLE_NNODES")
    job = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "digits"},
        "spec": {
            "worker": {
                "replicas": 3,
                "template": {
                    "spec": {
                        "containers": [{"name": "c", "image": "i", "command": ["python", "t.py"]}]
                    }
                },
            }
        },
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    assert run(["explain", "-f", str(file)]) == 0
    assert _rows(capsys)["spec.worker.replicas"] == "3  job.json"


def _rows(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The table of values: name -> the rest of its row, blanks made two."""
    table = capsys.readouterr().out.partition("values that are not the default:\n")[2]
    rows = [re.split(" {2,}", line.strip()) for line in table.partition("\n\n")[0].splitlines()]
    return {name: "  ".join(rest) for name, *rest in rows}


def test_nodes_that_have_not_joined_are_imagined(capsys: pytest.CaptureFixture[str]) -> None:
    """Known addresses are used, the others get a placeholder."""
    found = explained(capsys, "--nnodes", "3", "--nproc_per_node", "1", "train.py")
    assert [p["address"] for p in found["processes"]] == ["node0", "node1", "node2"]
    found = explained(capsys, "--nnodes", "1:2", "--nproc_per_node", "1", "train.py")
    assert [p["address"] for p in found["processes"]] == ["node0"]
    found = explained(capsys, "--ips", "10.0.0.1,10.0.0.2", "--start_port", "7000", "a.py")
    assert [(p["address"], p["port"]) for p in found["processes"]] == [
        ("10.0.0.1", 7000),
        ("10.0.0.2", 7000),
    ]


def test_endpoint_lists_place_every_role(capsys: pytest.CaptureFixture[str]) -> None:
    """Servers and workers where the lists say."""
    found = explained(
        capsys, "--servers", "10.0.0.1:6170,10.0.0.2:6170", "--workers", "10.0.0.1,10.0.0.2", "a.py"
    )
    assert [(p["role"], p["rank"], p["address"], p["port"]) for p in found["processes"]] == [
        ("ps", 0, "10.0.0.1", 6170),
        ("worker", 0, "10.0.0.1", 6171),
        ("ps", 1, "10.0.0.2", 6170),
        ("worker", 1, "10.0.0.2", 6171),
    ]


def test_heter_stages_are_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks run on over the stages; the workers are stage 1."""
    found = explained(
        capsys, "--server_num", "1", "--worker_num", "1", "--heter_worker_num", "1;2", "a.py"
    )
    assert [(p["role"], p["rank"], p["stage"]) for p in found["processes"]] == [
        ("ps", 0, 0),
        ("worker", 0, 1),
        ("heter", 0, 2),
        ("heter", 1, 3),
        ("heter", 2, 3),
    ]


def test_a_flag_that_is_given_twice_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As launch tells it; --json=no is a table."""
    twice = ["--nproc_per_node", "2", "--nproc_per_node", "3"]
    assert run(["explain", "--json=no", *twice, "train.py"]) == 0
    assert capsys.readouterr().out.startswith("note: --nproc_per_node is given twice: ")


def test_every_flag_that_was_given_has_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a flag sets is among the values that explain shows."""
    found = explained(capsys, "--nnodes", "1:4", "--nnodes_wanted", "2", "train.py")
    assert found["values"]["elastic.wanted"] == {
        "value": 2, "from": "flag", "name": "--nnodes_wanted", "text": "2",
    }  # fmt: skip


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Plan, environment, and where values came from."""
    assert run(["explain", "--devices", "cpu", "--nproc_per_node", "2", "train.py"]) == 0
    out = capsys.readouterr().out
    assert "role    rank  local  node  host" in out
    assert "worker  0-1   0-1    0" in out
    assert "--nproc_per_node" in out


def test_eight_ranks_and_their_sources_fit_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody scrolls to see a plan; nodes of one shape share a row, too."""
    words = ["--nproc_per_node", "8", "--max_restart", "3", "--timeout", "1h"]
    assert run(["explain", *words, "--env", "A=1", "--log_dir", "out", "a.py"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24 and "worker  0-7   0-7    0" in out
    assert run(["explain", "--nnodes", "200", "--nproc_per_node", "2", "a.py"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 16
    assert re.search(r"^worker  0-399  0-1    0-199  .*node0\) \.\.\. node199  free", out, re.M)


@pytest.mark.parametrize(
    ("asked", "name", "rank"),
    [("1", "PADDLE_TRAINER_ID", "1"), ("server:0", "PADDLE_PORT", "0"),
     ("trainer:0", "PADDLE_TRAINER_ID", "0"), ("all", "PADDLE_TRAINER_ID", "1")],
)  # fmt: skip
def test_a_shell_takes_the_environment_of_a_rank(
    capsys: pytest.CaptureFixture[str], asked: str, name: str, rank: str
) -> None:
    """`set -a; eval "$(paddock explain --env-of 1 ...)"`, to debug one rank by hand."""
    words = ["--server_num", "1", "--worker_num", "2", "--env", "GREETING=a b'c", "a.py"]
    assert run(["explain", "--env-of", asked, *words]) == 0
    code = capsys.readouterr().out + f'printf "%s|%s" "${name}" "$GREETING"'
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{rank}|a b'c"


def test_a_rank_that_is_not_there_is_told_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And what launch finds wrong is told beside what explain does."""
    assert run(["explain", "--env-of", "2", "--nproc_per_node", "2", "a.py"]) == 2
    assert "worker:0 to worker:1" in capsys.readouterr().err
    assert run(["explain", "--nprc", "2", "--nnodes", "0", "a.py"]) == 2
    err = capsys.readouterr().err
    assert "did you mean --nproc-per-node?" in err and "--nnodes 0" in err


def test_secrets_are_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither inherited ones nor those given with --env."""
    monkeypatch.setitem(os.environ, "MY_TOKEN", "inherited-secret")
    words = ["--devices", "cpu", "--env", "WANDB_API_KEY=given", "a.py"]
    assert run(["explain", "--env-of", "all", *words]) == 0
    out = capsys.readouterr().out
    assert "WANDB_API_KEY='******'" in out
    assert "inherited-secret" not in out
    assert "given" not in out.replace("are given", "")


def test_help_of_explain_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """--help before the script."""
    assert run(["explain", "--help"]) == 0
    assert "usage: paddock explain" in capsys.readouterr().out


def test_servers_of_paddocks_own_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Who serves, why, and what to write to have it otherwise."""
    script = tmp_path / "train.py"
    script.write_text("from paddock import ps\nclient = ps.Client()\n")
    words = ("--server_num", "2", "--worker_num", "1", str(script))
    found = explained(capsys, *words)
    assert found["command"][-1] == str(script)
    assert found["server_command"][-3:] == ["-m", "paddock", "pserver"]
    assert found["values"]["servers.command"]["from"] == "file"
    places = [p["environment"].get("PADDOCK_PS_DATA_DIR") for p in found["processes"]]
    assert places[2] is None
    assert all(
        p.endswith(f"log/runs/<run id>/ps/<run>-0/server-{n}") for n, p in enumerate(places[:2])
    )
    assert run(["explain", "--devices", "cpu", *words]) == 0
    out = capsys.readouterr().out
    assert "but servers: " in out
    assert "note: servers run paddock pserver: train.py uses paddock.ps" in out
    assert "--server-script same" in out


def test_a_script_that_serves_is_explained_as_one_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Paddle's rule needs no words."""
    found = explained(capsys, "--server_num", "1", "--worker_num", "1", "train.py")
    assert found["server_command"] == found["command"]
    assert "PADDOCK_PS_DATA_DIR" not in found["processes"][0]["environment"]
    assert explained(capsys, "--nproc_per_node", "1", "train.py")["server_command"] is None


def test_a_script_that_serves_with_fleet_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One command for both, and a place for the state of each server."""
    script = tmp_path / "both.py"
    script.write_text("from paddock.ps import fleet\nfleet.run_server()\n")
    words = ("--server_num", "1", "--worker_num", "1", str(script))
    found = explained(capsys, *words)
    assert found["server_command"] == found["command"]
    place = found["processes"][0]["environment"]["PADDOCK_PS_DATA_DIR"]
    assert place.endswith("log/runs/<run id>/ps/<run>-0/server-0")
    assert run(["explain", "--devices", "cpu", *words]) == 0
    out = capsys.readouterr().out
    assert "but servers: " not in out
    assert "note: servers run both.py: it serves with paddock.ps.fleet" in out


@pytest.mark.parametrize("style", ["--json", "--env-of=all"])
def test_secrets_are_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """DB_PASS was: people paste the output into issues."""
    monkeypatch.setenv("https_proxy", "http://me:hunter2@proxy:1")
    words = ["--env", "DB_PASS=hunter1", "--env", "PLAIN=seen", "--devices", "cpu", "a.py"]
    assert run(["explain", style, *words]) == 0
    out = capsys.readouterr().out
    assert "hunter" not in out
    assert "DB_PASS" in out
    assert "seen" in out
    assert "***@proxy:1" in out


def test_the_source_of_a_value_of_kubeflow_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which variable made it two nodes is the first question."""
    monkeypatch.setenv("PET_NNODES", "2")
    monkeypatch.setenv("PET_MASTER_ADDR", "10.0.0.1")
    values = explained(capsys, "--nproc_per_node", "1", "a.py")["values"]
    assert (values["nnodes_min"]["value"], values["nnodes_min"]["name"]) == (2, "PET_NNODES")
    assert values["rendezvous.host"]["name"] == "PET_MASTER_ADDR"


def test_ips_give_the_documented_ports(capsys: pytest.CaptureFixture[str]) -> None:
    """6070, 6071, ... on every node; they were random."""
    found = explained(capsys, "--ips", "10.0.0.1,10.0.0.2", "--nproc_per_node", "2", "a.py")
    assert [p["port"] for p in found["processes"]] == [6070, 6071, 6070, 6071]


def test_launch_shows_the_plan_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`launch --dry-run` prints what explain prints, and leaves no file behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("raise SystemExit(1)")
    assert run(["launch", "--dry-run", "--nproc_per_node", "2", "a.py"]) == 0
    shown = capsys.readouterr().out
    assert run(["explain", "--nproc_per_node", "2", "a.py"]) == 0
    assert capsys.readouterr().out == shown
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.parametrize("bad", [(), ("--nnodes", "no"), ("--nnodse", "2"), ("missing.py",)])
def test_a_dry_run_writes_no_error_and_makes_no_directory(
    bad: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one with bad flags remove the error of an earlier run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "error").write_text("of a run\n")
    words = ("launch", "--dry-run", "--record", "rec", "--log-dir", "logs", *bad, "a.py")
    assert run(words) == (2 if bad else 0)
    assert [each.name for each in tmp_path.rglob("*") if each.name != "a.py"] == ["rec", "error"]
    assert (tmp_path / "rec" / "error").read_text() == "of a run\n"
