"""Two at once, and submitters that are killed: over ssh, on real hosts."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.hosts import Hosts

FAR = "say('rank-is-up')\ntime.sleep(3600)\n"


@pytest.fixture
def lab(hosts: Hosts) -> Lab:
    return Lab("ssh", hosts, ("--hosts", "h1,h2,h3"))


def test_one_of_those_who_submit_at_once_gets_the_name(lab: Lab) -> None:
    """From one laptop; from several: test_conformance.py."""
    script = lab.script(FAR)
    words = lab.command("submit", *lab.words, "-d", "--nproc_per_node", 1, "--name", "it", script)
    running = [lab.laptop.start(words) for _ in range(4)]
    codes = sorted(each.process.wait() for each in running)
    assert codes == [0, 2, 2, 2]
    wait_until(lambda: len(lab.ranks_alive()) == 3)


@pytest.mark.parametrize("said", ["connecting", "code:", "follow its"])
def test_a_killed_submitter_leaves_what_can_be_stopped_and_removed(lab: Lab, said: str) -> None:
    """Wherever it was; and nothing of the registry is in the way of others."""
    script = lab.script(FAR)
    running = lab.laptop.start(lab.command("submit", *lab.words, "-d", script))
    running.wait_for(said)
    if running.process.poll() is None:
        os.kill(running.pid, signal.SIGKILL)
    running.process.wait()
    wait_until(lambda: lab.status()["state"] in ("lost", "running", "unknown"))
    if lab.status()["state"] == "running":
        assert lab.paddock("stop", "last", "--now").returncode == 0
        lab.until("cancelled")
    assert lab.paddock("list").returncode == 0
    words = ("--entry-only",) if lab.status()["state"] == "unknown" else ()
    done = lab.paddock("delete", "last", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(lab.paddock("list", "--json").stdout) == []
    assert not any(list((h.home / "paddock/jobs").glob("[a-z]*")) for h in lab.hosts)


def test_the_job_of_another_is_left_alone_when_ids_meet(lab: Lab) -> None:
    """What is undone is what was made by us: a directory that was there is not."""
    theirs = lab.hosts[0].home / "paddock" / "jobs" / "train-aaaa"
    theirs.mkdir(parents=True)
    (theirs / "result").write_text("dear")
    line = "import paddock.backends.submit as s, paddock.cli.main as m"
    text = f"{line}; s.new_id = lambda _: 'train-aaaa'"
    (lab.project / "meet.py").write_text(f"import sys\n{text}\nm.main(sys.argv[1:])\n")
    lab.script(FAR)
    line = "cd ~/我的* && exec python meet.py submit --hosts h1,h2,h3 -d train.py"
    done = lab.laptop.run(["sh", "-c", line])
    assert done.returncode == 2 and "h1: there is a job train-aaaa already" in done.stderr
    assert (theirs / "result").read_text() == "dear"
    assert not list((lab.hosts[1].home / "paddock/jobs").glob("[a-z]*"))


def test_an_id_that_another_has_is_drawn_again(lab: Lab) -> None:
    """Here or on any of the hosts; what was begun with it is gone."""
    (lab.laptop.home / ".local/state/paddock/runs/train-aaaa").mkdir(parents=True)
    for host, name in zip(lab.hosts, ("train-bbbb", "train-cccc"), strict=False):
        (host.home / "paddock/jobs" / name).mkdir(parents=True)
    text = "ids = iter('abcd')\ns.new_id = lambda _: f'train-{next(ids) * 4}'"
    line = "import paddock.backends.submit as s, paddock.cli.main as m"
    (lab.project / "meet.py").write_text(f"import sys\n{line}\n{text}\nm.main(sys.argv[1:])\n")
    lab.script("say('rank-is-up')\n")
    line = "cd ~/我的* && exec python meet.py submit --hosts h1,h2,h3 -d train.py"
    done = lab.laptop.run(["sh", "-c", line])
    assert (done.returncode, done.stdout.rpartition("/")[2]) == (0, "train-dddd\n"), done.stderr
    assert lab.paddock("wait").returncode == 0
    jobs = [sorted(p.name for p in (h.home / "paddock/jobs").glob("[a-z]*")) for h in lab.hosts]
    assert jobs == [["train-bbbb", "train-dddd"], ["train-cccc", "train-dddd"], ["train-dddd"]]


def test_a_job_that_is_known_is_not_found_again(lab: Lab) -> None:
    """By whatever name of its site it is looked for; elsewhere it has the same id."""
    job = lab.submitted(lab.script("say('rank-is-up')\n"))
    assert lab.paddock("wait").returncode == 0
    (lab.project / "paddock.toml").write_text(
        '[site.lab]\nbackend = "ssh"\nhosts = ["h1", "h2", "h3"]\n'
    )
    found = json.loads(lab.paddock("list", "--discover", "lab", "--json").stdout)
    assert [row["handle"] for row in found] == [job]
    lab.env["XDG_STATE_HOME"] = "/root/elsewhere"
    found = json.loads(lab.paddock("list", "--discover", "lab", "--json").stdout)
    assert [row["id"] for row in found] == [job.rpartition("/")[2]]


def test_a_root_that_others_may_write_to_is_refused_on_the_host(lab: Lab) -> None:
    """They could exchange what we start; nothing is made."""
    there = lab.hosts[1].home / "open"
    there.mkdir()
    there.chmod(0o777)
    done = lab.submit("--root", "/root/open/jobs", lab.script(FAR))
    assert done.returncode == 2
    assert "h2: /root/open/jobs: others may write to /root/open" in done.stderr
    assert "error: h1" not in done.stderr and list(there.iterdir()) == []
    assert not list((lab.hosts[0].home / "open").glob("jobs/*"))


def test_a_handle_of_another_is_refused_and_forgotten(lab: Lab) -> None:
    assert lab.project.is_dir()
    done = lab.paddock("stop", "ssh://lab/theirs-3f2a")
    assert done.returncode == 2 and "--discover lab" in done.stderr
    assert json.loads(lab.paddock("list", "--json").stdout) == []


def test_a_chatty_attached_job_ends_when_its_laptop_is_cut_off(lab: Lab) -> None:
    """Its hosts are in the middle of a message that nobody takes."""
    script = lab.script("say('rank-is-up')\nwhile True:\n    say('x' * 2000)\n")
    lab.stay(script).wait_for("rank-is-up")
    assert lab.ranks_alive()
    lab.laptop.cut_cable()
    wait_until(lambda: not lab.ranks_alive())


def test_a_paused_terminal_does_not_end_an_attached_job(lab: Lab) -> None:
    """Nobody reads for longer than the lease."""
    script = lab.script("say('rank-is-up')\nwhile True:\n    say('x' * 2000)\n")
    words = lab.command("submit", *lab.words, script)[4:]
    line = 'cd ~/我的* && "$@" | (sleep 13; cat >/dev/null)'
    lab.laptop.start(["sh", "-c", line, "sh", *words])
    wait_until(lambda: len(lab.ranks_alive()) >= 3)
    time.sleep(12)  # sleep: longer than the lease; there is nothing to wait for
    assert len(lab.ranks_alive()) >= 3
    assert lab.paddock("stop", "last", "--now").returncode == 0
    lab.until("cancelled")
