"""`paddock rec` as a program: what it prints, its exit codes, and what takes its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run as paddock
from paddock.rec.config.resolve import resolve
from paddock.rec.run import HANDED_OVER, take_over
from paddock.rec.settings import Recipe
from rec.config.conftest import DYGRAPH, TWO


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of 2.x, seen from the directory above it."""
    folder = tmp_path / "two"
    (folder / "data").mkdir(parents=True)
    (folder / "data/part-0").write_text("")
    (folder / "config.yaml").write_text(TWO.replace("epochs: 3", "epochs: 3\n  epoch: 3"))
    (folder / "dygraph_model.py").write_text(DYGRAPH)
    (folder / "my_reader.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_dry_run_in_json_is_one_value_on_stdout(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its warnings are in it; nothing is started."""
    assert paddock(["rec", "-m", "two", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["command"][1:] == ["-u", "-m", "paddock.rec.worker", "-m", "two"]
    assert {"setting": "train.epochs", "value": 3, "source": "two/config.yaml:6"} in found[
        "settings"
    ]
    assert "nothing reads runner.epoch" in found["warnings"][0]


def test_secrets_of_o_are_not_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the setting nor the command."""
    words = ["rec", "-m", "two", "-o", "hyper_parameters.db_password=hunter2", "--dry-run"]
    assert paddock(words) == 0
    printed = capsys.readouterr().out
    assert "hunter2" not in printed
    assert "hyper_parameters.db_password=******" in printed


def test_wrong_words_are_exit_code_2(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the nearest word that there is."""
    assert paddock(["rec", "-m", "two", "--evaluates"]) == 2
    assert "did you mean --evaluate?" in capsys.readouterr().err
    assert paddock(["rec"]) == 2
    assert "write paddock rec -m config.yaml" in capsys.readouterr().err


def test_help_is_told_by_both_ways_of_asking(capsys: pytest.CaptureFixture[str]) -> None:
    """paddock help rec, and paddock rec --help."""
    assert paddock(["rec", "--help"]) == 0
    first = capsys.readouterr().out
    assert paddock(["help", "rec"]) == 0
    assert capsys.readouterr().out == first


def test_the_command_takes_our_place_with_its_exit_code(model: Path, tmp_path: Path) -> None:
    """A launcher that ends with 3 makes `paddock rec` end with 3; warnings are on stderr."""
    stub = tmp_path / "python"
    stub.write_text('#!/bin/sh\necho "$OMP_NUM_THREADS" "$@"\nexit 3\n')
    stub.chmod(0o755)
    program = (
        f"import sys; sys.executable = {str(stub)!r}; from paddock.rec.run import main; main()"
    )
    words = [sys.executable, "-c", program, "-m", "two", "-o", "thread_num=2", "epochs=1"]
    words += ["engine=local_cluster"]
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, env=env)
    assert done.returncode == 3
    assert done.stdout.startswith("2 -m paddock launch --log_level WARNING --server_num 1 ")
    ends = "-m paddock.rec.worker -m two -o thread_num=2 -o epochs=1 -o engine=local_cluster\n"
    assert done.stdout.endswith(ends)
    assert done.stderr.startswith("paddock: warning: two/config.yaml:7: nothing reads")


def test_one_process_trains_in_the_process_of_the_command(model: Path, tmp_path: Path) -> None:
    """No other Python is started, and the files are resolved once; the folder is importable."""
    (model / "dygraph_model.py").write_text(
        "import os, sys\n"
        "print(os.environ['OMP_NUM_THREADS'], os.getcwd() in sys.path)\n"
        "os._exit(5)\n" + DYGRAPH
    )
    program = "import sys; sys.executable = '/bin/false'; from paddock.rec.run import main; main()"
    words = [sys.executable, "-c", program, "-m", "two", "-o", "thread_num=2"]
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=env)
    assert (done.returncode, done.stdout) == (5, "2 True\n"), done.stderr


STUB = '#!/bin/sh\nstat -Lc %a "$PADDOCK_REC_RECIPE"\ncat "$PADDOCK_REC_RECIPE"\n'


def test_workers_of_this_machine_get_the_recipe_in_a_file_of_their_launcher(
    model: Path, tmp_path: Path
) -> None:
    """Files are resolved once; no other user reads the secrets that may be in it."""
    stub = tmp_path / "python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    program = (
        f"import sys; sys.executable = {str(stub)!r}; from paddock.rec.run import main; main()"
    )
    words = ["-m", "two", "-o", "engine=local_cluster"]
    words_of_paddock = [sys.executable, "-c", program, *words]
    done = subprocess.run(words_of_paddock, capture_output=True, text=True, timeout=20)
    mode, _, content = done.stdout.partition("\n")
    found = json.loads(content)
    assert mode == "600"
    assert found["words"] == words
    assert Recipe.from_json(found["recipe"]) == resolve(words)
    assert not list(tmp_path.glob("*recipe*"))


def test_a_worker_takes_over_the_recipe_of_its_own_words_only(model: Path, tmp_path: Path) -> None:
    """A script of a worker that starts another training has the variable, too."""
    recipe = resolve(["-m", "two"])
    path = tmp_path / "recipe"
    path.write_text(json.dumps({"words": ["-m", "two"], "recipe": recipe.to_json()}))
    env = {HANDED_OVER: str(path)}
    assert take_over(["-m", "two"], env) == recipe
    assert take_over(["-m", "three"], env) is None
    assert take_over(["-m", "two"], {HANDED_OVER: str(tmp_path / "ended")}) is None
    assert take_over(["-m", "two"], {}) is None
    (model / "dygraph_model.py").write_text("import os\nos._exit(5)\n")
    (model / "config.yaml").unlink()
    words = [sys.executable, "-m", "paddock.rec.worker", "-m", "two"]
    done = subprocess.run(words, capture_output=True, timeout=100, env={**os.environ, **env})
    assert done.returncode == 5, done.stderr


def test_a_date_of_yaml_is_resolved_by_each_worker(model: Path) -> None:
    """JSON has no dates."""
    recipe = resolve(["-m", "two", "-o", "hyper_parameters.day=2026-11-27"])
    with pytest.raises(TypeError, match="date is not JSON"):
        recipe.to_json()


def test_a_dry_run_refuses_what_the_submission_would(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same sentence; nobody is asked for that."""
    (model.parent / "backend.yaml").write_text(
        "backend: local\noptions:\n  namespace: ml\nsubmit:\n  server_num: 1\n"
    )
    words = ["rec", "-m", "two", "-b", "backend.yaml", "-o", "engine=cluster", "--dry-run"]
    assert paddock(words) == 2
    assert "site 'local': local has no key 'namespace'" in capsys.readouterr().err


def test_what_starts_other_workers_imports_no_numpy() -> None:
    """It would need it where only their hosts do, and take longer: a reader's class brought it."""
    code = "import sys, paddock.rec.run; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
