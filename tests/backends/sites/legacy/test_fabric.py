"""The old Fabric tool's conf.py and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.backends.flags import split_args
from paddock.backends.sites.find import find_site
from paddock.backends.sites.hostfile import hosts_of
from paddock.backends.sites.legacy.fabric import site_from_conf, translate
from paddock.errors import UsageError
from paddock.jobfile.parse import parse

CONF = """\
HOSTS = [
    "root@10.1.9.7",
    "root@10.1.18.7:2222",
    ("root@node3", "10.1.32.9"),
]
\'\'\'
workspace configuration
\'\'\'
#root dir for workspace
ROOT_DIR = "/root"
PADDLE_NIC = "eth0"
PADDLE_PORT = 7164
PADDLE_PORTS_NUM = 1
PADDLE_PORTS_NUM_FOR_SPARSE = 1
PADDLE_USE_GPU = "False"
LD_LIBRARY_PATH = "/usr/local/cuda/lib64:/usr/lib64"
"""
# What run.sh says after the two words that are submit's own.
RUN_SH = [
    "--dot_period=10", "--ports_num_for_sparse=2", "--log_period=50", "--num_passes=5",
    "--trainer_count=2", "--saving_period=1", "--local=0", "--config=./trainer_config.py",
    "--save_dir=./output", "--use_gpu=0",
]  # fmt: skip


def test_conf_is_read_as_a_site() -> None:
    """Every name has its place."""
    site = site_from_conf(CONF, "conf.py")
    assert (site.backend, site.name) == ("ssh", "10.1.9.7")
    assert [each.reached_at for each in hosts_of(site)] == ["10.1.9.7", "10.1.18.7", "10.1.32.9"]
    assert hosts_of(site)[1].port == 2222
    assert (site.text("root"), site.text("ports")) == ("/root", "7164")
    assert site.options["env"] == {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/usr/lib64"}
    assert site.options["paddle_init"] == {
        "NICS": "eth0", "PORTS_NUM": "1", "PORTS_NUM_FOR_SPARSE": "1", "USE_GPU": "False",
    }  # fmt: skip
    assert site.sources["hosts"] == "conf.py, line 1: HOSTS"


def test_conf_is_a_site_for_submit(tmp_path: Path) -> None:
    """With -b ssh or without; options of the word win."""
    (tmp_path / "conf.py").write_text(CONF)
    site = find_site("ssh,port=22", env={}, cwd=str(tmp_path), conf="conf.py")
    assert [each.port for each in hosts_of(site)] == [22, 2222, 22]
    with pytest.raises(UsageError, match="is for ssh"):
        find_site("slurm", env={}, cwd=str(tmp_path), conf="conf.py")


def test_conf_is_never_executed(tmp_path: Path) -> None:
    """What computes is refused with its line and what to write instead."""
    mark = tmp_path / "mark"
    text = f"""\
import os
HOSTS = ["root@h1"] + os.environ["MORE"].split()
ROOT_DIR = open({str(mark)!r}, "w").name
PADDLE_PORT = 7000 + 164
def hosts(): pass
"""
    with pytest.raises(UsageError) as caught:
        site_from_conf(text, "conf.py")
    assert not mark.exists()
    lines = [p.message.partition(":")[0] for p in caught.value.problems]
    assert lines == [f"conf.py, line {n}" for n in (1, 2, 3, 4, 5)]
    assert 'HOSTS = ["user@host1"' in caught.value.problems[1].hint


@pytest.mark.parametrize(
    ("text", "what"),
    [("HOSTS = []", "names no host"), ("ROOT_DIR = '/x'", "names no HOSTS"),
     ("HOSTS = ['-x']", "not a host name"), ("HOST = ['h']", "HOST is not known"),
     ("HOSTS = ['h'", "line 1"), ("HOSTS = ['h']\nROOT_DIR = ['x']", "line 2: ROOT_DIR must be"),
     ("HOSTS = " + "[" * 5000, "conf.py"), ("HOSTS = ['h\\0']", "not a host")],
)  # fmt: skip
def test_bad_conf_says_what_is_wrong(text: str, what: str) -> None:
    """In a sentence with the name of the file."""
    with pytest.raises(UsageError, match=what):
        site_from_conf(text, "conf.py")


def test_run_sh_of_the_document_becomes_a_job_with_servers() -> None:
    """A server a host on the old port, then the trainer; every word reaches it as a variable."""
    site = site_from_conf(CONF, "conf.py")
    found = translate(RUN_SH, site)
    job = parse([*found.flags, *found.script], {}, python="python3").job
    assert (job.mode, job.nnodes_min, job.start_port) == ("ps", 3, 7164)
    assert job.command.argv() == ("python3", "-u", "train.py")
    assert found.env["PADDLE_INIT_NUM_PASSES"] == "5"
    assert found.env["PADDLE_INIT_PORTS_NUM_FOR_SPARSE"] == "2"  # the word wins over conf.py
    assert found.env["PADDLE_INIT_NICS"] == "eth0"
    assert "trainer_config.py is not run by itself" in found.notes[0]


def test_run_sh_is_a_command_line_of_submit() -> None:
    """With paddle.py replaced by paddock submit -b ssh --conf conf.py, and nothing else."""
    site = site_from_conf(CONF, "conf.py")
    words = ["-b", "ssh", "--conf", "conf.py", "--job_dispatch_package=/a b", *RUN_SH]
    found = split_args(translate(words, site).words)
    assert found.problems == []
    assert found.own == {"site": "ssh", "conf": "conf.py", "package": "/a b"}
    assert found.script == ("train.py",)
    assert found.nnodes == "3"
    assert "PADDLE_INIT_SAVE_DIR=./output" in [*found.flags, *found.env]


def test_local_1_starts_no_servers() -> None:
    """As the old trainer understood it."""
    found = translate(["--local=1"], site_from_conf(CONF, "conf.py"))
    assert "--server_num" not in found.flags
    assert found.env["PADDLE_INIT_LOCAL"] == "1"


def test_flags_of_launch_and_a_script_are_taken_too() -> None:
    """Exact names only: --local is no beginning of --local_addr here."""
    site = site_from_conf(CONF, "conf.py")
    words = ["--nnodes", "2", "--log_dir=x", "--num_passes=1", "--", "go.py", "--lr=1"]
    found = translate(words, site)
    assert found.flags[:3] == ("--nnodes", "2", "--log_dir=x")
    assert found.script == ("go.py", "--lr=1")
    assert set(found.env) >= {"PADDLE_INIT_NUM_PASSES"}


def test_what_each_trainer_is_told_by_itself_is_not_taken() -> None:
    """The old tool decided them, and a value from the command line would be wrong on most hosts."""
    found = translate(["--trainer_id=0", "--pservers=h"], site_from_conf(CONF, "conf.py"))
    assert not {"PADDLE_INIT_TRAINER_ID", "PADDLE_INIT_PSERVERS"} & set(found.env)
    assert len(found.notes) == 2


def test_bare_word_is_refused_instead_of_shifting_the_others() -> None:
    """The old tool paired names and values by position."""
    with pytest.raises(UsageError, match="'--use_gpu' has no value"):
        translate(["--use_gpu", "--num_passes=1"], site_from_conf(CONF, "conf.py"))
