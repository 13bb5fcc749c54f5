"""Verbs over ssh when a host of an ended job cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    job = lab.submitted(lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    lab.laptop.run(["ip", "route", "add", "unreachable", f"{hosts[1].address}/32"])
    done = lab.paddock("stop", job)
    assert done.returncode == 2
    assert "error: h2: " in done.stderr and "it is not told to end" in done.stderr
    assert "within their lease of 3 s" in done.stderr and "error: h3" not in done.stderr
    wait_until(lambda: not lab.ranks_alive())


def test_a_job_whose_first_host_stands_still_is_not_said_to_have_failed(hosts: Hosts) -> None:
    """It may go on there; when it does, its end is told."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    lab.submitted(lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    hosts[0].freeze()
    wait_until(lambda: "h2 has failed" in str(lab.until("unknown", "running")["why"]))
    assert "h1: it " in lab.status()["why"]
    hosts[0].freeze(thaw=True)
    lab.until("failed")
