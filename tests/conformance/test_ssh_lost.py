"""Verbs over ssh when a host of an ended job cannot be asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from local.jobs import wait_until

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from conformance.hosts import Hosts


def test_what_the_others_have_comes_and_who_cannot_be_asked_is_named(hosts: Hosts) -> None:
    """Logs and output of an ended job, of which one host is off; it is not half deleted."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    text = "open(f'output/{RANK}', 'w').write('x' * 10)\nsay('hello', RANK)\n"
    lab.submitted(lab.script(f"os.makedirs('output', exist_ok=True)\n{text}"))
    assert lab.paddock("wait").returncode == 0
    hosts[1].kill()

    def ask(*words: object) -> CompletedProcess[str]:
        done = lab.paddock(*words)
        assert done.returncode == 2 and "h2: " in done.stderr
        return done

    said = ask("logs", "last").stdout.splitlines()
    assert {line.split()[-1] for line in said if "hello" in line} == set("0145")
    # Without -f, where what one host cannot tell is raised after them.
    assert len(ask("logs", "last", "-n", "2").stdout.splitlines()) == 2

    done = ask("fetch", "last", "--to", "got")
    assert "error: h2: " in done.stderr and "paddock: h3: " in done.stderr
    assert "output/ 2 files, 20 B -> got" in done.stderr
    got = lab.project / "got"
    assert sorted(str(path.relative_to(got)) for path in got.glob("output/*/*")) == [
        "output/h1/0", "output/h1/1", "output/h3/4", "output/h3/5",
    ]  # fmt: skip
    assert {path.parts[-2] for path in got.glob("log/*/workerlog.0")} == {"h1", "h3"}

    ask("delete", "last")  # else its state would be half known for ever
    assert [len(list((h.home / "paddock/jobs").glob("train-*"))) for h in hosts] == [1, 1, 1]
    assert lab.status()["state"] == "succeeded"


def test_stop_names_the_host_that_is_not_told_and_what_becomes_of_it(hosts: Hosts) -> None:
    """The others end, and so does what runs there."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    job = lab.submitted("--lease", 3, lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    lab.laptop.run(["ip", "route", "add", "unreachable", f"{hosts[1].address}/32"])
    done = lab.paddock("stop", job)
    assert done.returncode == 2
    assert "error: h2: " in done.stderr and "it is not told to end" in done.stderr
    assert "within their lease of 3 s" in done.stderr and "error: h3" not in done.stderr
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize("nnodes", ["3", "1:3"], ids=["fixed", "elastic"])
def test_stop_connects_to_each_host_once(hosts: Hosts, nnodes: str) -> None:
    """The state, the request and what waits for the end go over one connection each."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3"))
    script = lab.script("say('rank-is-up')\ntime.sleep(3600)\n")
    words = ("--nnodes", nnodes, "--nproc_per_node", "1", "--name", "it", script)
    lab.submitted(*words)
    lab.until_up(3)
    before = [host.sessions() for host in hosts]
    assert lab.paddock("stop", "it").returncode == 0
    assert [host.sessions() - n for host, n in zip(hosts, before, strict=True)] == [1, 1, 1]
    assert lab.paddock("wait").returncode == 143


def test_a_job_whose_first_host_stands_still_is_not_said_to_have_failed(hosts: Hosts) -> None:
    """It may go on there; when it does, its end is told."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    lab.submitted("--lease", 3, "--grace", 60, lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    hosts[0].freeze()
    wait_until(lambda: "h2 has failed" in str(lab.until("unknown", "running")["why"]))
    assert "h1: it " in lab.status()["why"]
    hosts[0].freeze(thaw=True)
    lab.until("failed")


def test_a_job_whose_first_host_is_gone_for_good_has_failed(hosts: Hosts) -> None:
    """Nobody waits for a host for ever that a job of a fixed size cannot do without."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    lab.submitted("--lease", 3, "--grace", 1, lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    hosts[0].kill()
    assert lab.paddock("wait").returncode == 125
    status = lab.status()
    assert status["state"] == "failed" and status["why"].startswith("h1: ")
    assert "; h2: " in status["why"], "and why the others have failed"
    assert status["nodes"][0]["state"] == "unknown"


@pytest.mark.parametrize("number", [0, 1], ids=["of the coordinator", "of another"])
def test_a_killed_daemon_is_lost_and_the_job_has_failed(hosts: Hosts, number: int) -> None:
    """An OOM killer took it: nobody asked the job to stop, so it is not called cancelled."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=6"))
    running = lab.stay(lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up", count=3)
    [state] = (hosts[number].home / "paddock" / "jobs").glob("train-*/.paddock/state.json")
    daemon = json.loads(state.read_text())["process"]["pid"]
    hosts[number].run(["kill", "-9", str(daemon)])
    ended = running.end()
    why = f"node h{number + 1} is lost: the daemon of its job was killed"
    assert ended.code == 125
    assert why in ended.out and "told to stop" not in ended.out + ended.err
    status = lab.until("failed")
    assert (status["code"], status["why"]) == (125, why)
    assert [node["state"] for node in status["nodes"]][number] == "lost"
    wait_until(lambda: not lab.ranks_alive())


def test_a_cut_connection_has_one_answer(hosts: Hosts) -> None:
    """On the terminal what is known; `unknown` until the hosts can be asked; then the same code."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    running = lab.stay("--name", "cut", lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up", count=3)
    lab.laptop.cut_cable()
    ended = running.end()
    assert ended.code == 125
    assert "the connection to h1, h2, h3 was lost, and the job ends because of it" in ended.err
    assert "how it ended is unknown until a host can be asked" in ended.err
    assert lab.status("cut")["state"] == "unknown"
    lab.laptop.mend_cable()
    status = lab.until("failed", job="cut")
    assert status["code"] == 125
    assert "lost its connection to paddock submit; an attached job ends without it" in status["why"]


def test_a_connection_to_one_host_that_is_cut_ends_the_job_and_is_named(hosts: Hosts) -> None:
    """The first host tells it: h2 has said why it ends."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    running = lab.stay(lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up", count=3)
    lab.laptop.run(["ip", "route", "add", "unreachable", f"{hosts[1].address}/32"])
    ended = running.end()
    why = "node h2 lost its connection to paddock submit; an attached job ends without it"
    assert ended.code == 125
    assert why in ended.out and "warning: h2: the connection was lost" in ended.err
    lab.laptop.run(["ip", "route", "del", "unreachable", f"{hosts[1].address}/32"])
    status = lab.until("failed")
    assert (status["code"], status["why"]) == (125, why)


def test_a_log_that_is_lost_on_another_host_is_told(hosts: Hosts) -> None:
    """On the terminal, which shows what the first host says; at the end; and by status."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3"))
    small = "mkdir -p ~/paddock/jobs && mount -t tmpfs -o size=3m tmpfs ~/paddock/jobs"
    assert hosts[1].run(["sh", "-c", small]).returncode == 0
    script = lab.script("for _ in range(5000):\n    print('x' * 999)\n")
    ended = lab.stay(script).end()
    assert ended.code == 0
    for rank in (2, 3):
        text = f"(No space left on device): some output of rank {rank} is lost"
        told = [line for line in ended.out.splitlines() if text in line]
        warnings = [line for line in told if "warning" in line.lower() and "h2: " in line]
        assert len(told) == 2 and warnings == told
    status = lab.status()
    assert status["state"] == "succeeded"
    assert "some output of rank 2 is lost" in status["nodes"][1]["note"]
    assert status["nodes"][0]["note"] == ""


def test_a_sweep_starts_a_run_again_whose_node_was_lost(hosts: Hosts) -> None:
    """And no run that failed: its program would fail again."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    text = "lr = os.environ['PADDOCK_SWEEP_LR']\ntime.sleep(2)\nsys.exit(lr == '2')\n"
    words = ("--nproc_per_node", 1, "--retry", "lost=2", "--sweep", "lr=1,2", lab.script(text))
    sweep = lab.laptop.start(lab.command("submit", *lab.words, *words), env=lab.env)
    wait_until(lambda: len(lab.ranks_alive()) == 3)
    hosts[1].run(["pkill", "-9", "-f", "nnodes"])  # the launcher and its guardian there
    wait_until(lambda: sweep.process.poll() is not None)
    points = json.loads(lab.paddock("sweep", "--json").stdout)["points"]
    assert [(each["state"], each["tries"]) for each in points] == [("succeeded", 2), ("failed", 1)]


@pytest.mark.parametrize("has_daemon", [True, False], ids=["", "with the daemon"])
def test_ranks_of_a_host_where_all_of_ours_is_killed_do_not_stay(
    hosts: Hosts, has_daemon: bool
) -> None:
    """The job's daemon ends them; if that is killed, too, they are named, and stop ends them."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3"))
    lab.submitted(lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    [state] = (hosts[1].home / "paddock" / "jobs").glob("train-*/.paddock/state.json")
    daemon = "" if has_daemon else json.loads(state.read_text())["process"]["pid"]
    kill = f'p="{daemon} $(pgrep -f -- [-]-nnodes)"; kill -STOP $p; kill -KILL $p'
    hosts[1].run(["sh", "-c", kill])  # stopped first: none acts for the others
    if not has_daemon:
        said = lab.paddock("status")
        assert "h2: rank " in said.stdout and "left by a launcher" in said.stdout, said
        refused = lab.paddock("delete", "last")
        assert refused.returncode == 2 and "has not ended" in refused.stderr
        assert lab.paddock("stop", "last", "--now").returncode == 0
    lab.until("failed", "cancelled")
    wait_until(lambda: not lab.ranks_alive())
    assert lab.paddock("delete", "last").returncode == 0
