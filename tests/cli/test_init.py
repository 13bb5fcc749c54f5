"""`paddock init` on a machine whose tools are scripts; tests/conformance has real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from reference_pages.paddock_toml import schema

from paddock.backends.sites.find import find_site
from paddock.cli.init import make_text, ssh_names
from paddock.errors import UsageError
from typed import Terminal

TOOLS = {
    "ssh": 'for w; do [ "$w" = slow ] && sleep 60; [ "$w" = gone ] && exit 255; done; exit 0',
    "sinfo": "echo cpu; echo 'gpu*'",
    "sbatch": "",
    "mpirun": "",
    "kubectl": 'case "$*" in *current-context*) echo prod;; *) echo "{}";; esac',
}
CONFIG = """\
Host node1 node2 *.lab !x
  IdentityFile ~/.ssh/secret_key
Host gone
Host slow
Host *
  User me
"""


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., list[str]]:
    """A home with an ssh configuration, and these tools alone on PATH; gives a command's words."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(CONFIG)
    bin_ = tmp_path / "bin"
    bin_.mkdir()

    def command(*words: str, tools: str = "ssh sinfo sbatch mpirun kubectl") -> list[str]:
        for name in tools.split():
            (bin_ / name).write_text(f"#!/bin/sh\n{TOOLS[name]}\n")
            (bin_ / name).chmod(0o755)
        (bin_ / "sleep").unlink(missing_ok=True)
        (bin_ / "sleep").symlink_to("/bin/sleep")
        env = [f"HOME={tmp_path}", f"PATH={bin_}", "RAY_ADDRESS=head:6379"]
        return ["env", *env, sys.executable, "-m", "paddock", "init", *words]

    return command


def run(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal."""
    return subprocess.run(
        words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_yes_writes_every_site_that_answers(
    machine: Callable[..., list[str]], tmp_path: Path
) -> None:
    """A host that is silent costs the time limit once, and no question is asked."""
    done = run(machine("--yes"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 of 4 hosts of ~/.ssh/config answer; not gone, slow" in done.stderr
    text = (tmp_path / "paddock.toml").read_text()
    assert "secret" not in text.replace("No secrets", "").replace("no secrets", "")
    env = {"HOME": str(tmp_path)}
    sites = {
        name: dict(find_site(name, env=env, cwd=str(tmp_path)).options)
        for name in ("", "slurm", "hosts", "mpi", "cluster", "ray")
    }
    assert sites == {
        "": {"partition": "gpu"},
        "slurm": {"partition": "gpu"},
        "hosts": {"hosts": ("node1", "node2")},
        "mpi": {"hosts": ("node1", "node2")},
        "cluster": {"context": "prod"},
        "ray": {"address": "head:6379"},
    }
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    assert list(Draft7Validator(json.loads(schema())).iter_errors(tomllib.loads(text))) == []


def test_a_file_that_is_there_is_kept(machine: Callable[..., list[str]], tmp_path: Path) -> None:
    """Exit code 2, and --force replaces it; without a terminal nothing can be asked."""
    (tmp_path / "paddock.toml").write_text("# mine\n")
    done = run(machine("--yes"), tmp_path)
    assert (done.returncode, (tmp_path / "paddock.toml").read_text()) == (2, "# mine\n")
    assert "is there already" in done.stderr
    asked = run(machine("--force"), tmp_path)
    assert asked.returncode == 2
    assert "there is no terminal" in asked.stderr
    (tmp_path / ".ssh" / "config").unlink()
    assert run(machine("--yes", "--force", tools="mpirun"), tmp_path).returncode == 0
    assert "[site.mpi]" in (tmp_path / "paddock.toml").read_text()


def test_questions_have_defaults_that_enter_takes(
    machine: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / ".ssh" / "config").write_text("Host node1 node2\n")
    terminal = Terminal(*machine(tools="ssh sinfo sbatch"), cwd=tmp_path)
    terminal.until("write site slurm, yes or no [yes]: ")
    terminal.type("")
    terminal.until("its partition [gpu]: ")
    terminal.type("cpu")
    terminal.until("write site hosts, yes or no [yes]: ")
    terminal.type("no")
    terminal.until("write site ray, yes or no [yes]: ")
    terminal.type("no")
    terminal.until("where jobs run that name no site [slurm]: ")
    terminal.type("")
    assert terminal.end() == 0
    site = find_site("", env={"HOME": str(tmp_path)}, cwd=str(tmp_path))
    assert (site.name, site.options) == ("slurm", {"partition": "cpu"})
    assert "[site.hosts]" not in (tmp_path / "paddock.toml").read_text()


def test_a_wrong_answer_is_asked_for_again(
    machine: Callable[..., list[str]], tmp_path: Path
) -> None:
    """What was answered before is kept, and nothing is written until all is right."""
    (tmp_path / ".ssh" / "config").write_text("Host node1 node2\n")
    terminal = Terminal(*machine(tools="ssh sinfo sbatch kubectl"), cwd=tmp_path)
    terminal.until("write site slurm, yes or no [yes]: ")
    terminal.type("maybe")
    assert "'maybe' is neither yes nor no" in terminal.until("write site slurm, yes or no [yes]: ")
    terminal.type("")
    terminal.until("its partition [gpu]: ")
    terminal.type("cpu")
    terminal.until("write site hosts, yes or no [yes]: ")
    terminal.type("")
    terminal.until("its hosts [node1,node2]: ")
    terminal.type("-")
    assert "site 'hosts' names no hosts" in terminal.until("its hosts [node1,node2]: ")
    terminal.type("node1, node3")
    terminal.until("write site cluster, yes or no [yes]: ")
    terminal.type("")
    terminal.until("its context [prod]: ")
    terminal.type("")
    terminal.until("its image [-]: ")
    terminal.type("me/train:1")
    terminal.until("write site ray, yes or no [yes]: ")
    terminal.type("no")
    terminal.until("where jobs run that name no site [slurm]: ")
    terminal.type("nowhere")
    again = terminal.until("where jobs run that name no site [slurm]: ")
    assert "there is no site 'nowhere'" in again
    assert not (tmp_path / "paddock.toml").exists()
    terminal.type("-")
    assert terminal.end() == 0
    env = {"HOME": str(tmp_path)}
    names = ("slurm", "hosts", "cluster")
    assert [find_site(name, env=env, cwd=str(tmp_path)).options for name in names] == [
        {"partition": "cpu"},
        {"hosts": ("node1", "node3")},
        {"context": "prod", "image": "me/train:1"},
    ]
    with pytest.raises(UsageError, match="several sites"):
        find_site("", env=env, cwd=str(tmp_path))


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_write_nothing(
    machine: Callable[..., list[str]], tmp_path: Path, key: str
) -> None:
    terminal = Terminal(*machine(tools="sinfo sbatch"), cwd=tmp_path)
    terminal.until("write site slurm, yes or no [yes]: ")
    terminal.type(key)
    assert terminal.end() == 130
    assert not (tmp_path / "paddock.toml").exists()


def test_a_directory_that_cannot_be_written_is_told_before_any_question(
    machine: Callable[..., list[str]],
) -> None:
    """The rights of /proc hold for root, too."""
    done = run(machine("--yes"), Path("/proc/self"))
    assert done.returncode == 2
    assert "cannot write /proc/" in done.stderr


def test_sites_of_the_user_may_be_the_default(
    machine: Callable[..., list[str]], tmp_path: Path
) -> None:
    """And where the user's own file is wrong, that is told before any question."""
    (tmp_path / ".ssh" / "config").unlink()
    own = tmp_path / ".config" / "paddock" / "sites.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[site.lab]\nbackend = "ssh"\nhosts = ["h"]\n')
    terminal = Terminal(*machine(tools="mpirun"), cwd=tmp_path)
    terminal.until("write site mpi, yes or no [yes]: ")
    terminal.type("n")
    terminal.until("write site ray, yes or no [yes]: ")
    terminal.type("n")
    terminal.until("where jobs run that name no site [local]: ")
    terminal.type("lab")
    assert terminal.end() == 0
    assert find_site("", env={"HOME": str(tmp_path)}, cwd=str(tmp_path)).name == "lab"
    own.write_text("[site.lab]\n")
    done = run(machine("--yes", "--force"), tmp_path)
    assert done.returncode == 2
    assert "[site.lab] says no backend" in done.stderr


def test_patterns_of_an_ssh_configuration_are_no_hosts(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    assert ssh_names(tmp_path / "config") == ["node1", "node2", "gone", "slow"]
    assert ssh_names(tmp_path / "nosuch") == []


def test_included_files_of_an_ssh_configuration_name_hosts(tmp_path: Path) -> None:
    """Relative to the first file's directory; a file that includes itself is read once."""
    (tmp_path / "config").write_text('Include "conf.d/*" nosuch\nhost=first # me\nMatch host x\n')
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-lab").write_text("HOST lab1 lab?\nInclude more\n")
    (tmp_path / "conf.d" / "20-me").write_text("Host lab1\n#Host old\nInclude config\n")
    (tmp_path / "more").write_text("  Host\tlab2\n")
    assert ssh_names(tmp_path / "config") == ["first", "lab1", "lab2"]


def test_nothing_found_is_a_file_that_works(tmp_path: Path) -> None:
    """Jobs run on this machine then."""
    (tmp_path / "paddock.toml").write_text(make_text({}, "cpu", "local"))
    site = find_site("", env={"HOME": str(tmp_path)}, cwd=str(tmp_path))
    assert site.backend == "local"
    with pytest.raises(UsageError):
        find_site("slurm2", env=dict(os.environ), cwd=str(tmp_path))
