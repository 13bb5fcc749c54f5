"""What holds on every backend: one text of each property, collected wherever there is a lab.

tests/conformance/test_conformance.py has the labs on hosts, tests/cluster/test_conformance.py
those on a cluster.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from conformance.labs import PROJECT, secrets_in
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.labs import Lab

FAR = "time.sleep(3600)\n"
UP = "say('rank-is-up')\n"


def test_every_rank_gets_its_place(lab: Lab) -> None:
    """Six ranks on three hosts, and all know where they are."""
    script = lab.script(
        "say('at', RANK, WORLD, os.environ['PADDLE_LOCAL_RANK'], os.uname().nodename,"
        " os.environ['PADDLE_TRAINER_ENDPOINTS'].count(','), sys.argv[1:])\n"
    )
    lab.submitted(script, "--lr", "0.1", "two words", "$(id)", "$(HOME)$$x", "q'\"q\\n", "中文")
    assert lab.paddock("wait").returncode == 0
    lines = sorted(line.partition("] ")[2] for line in lab.logs() if "] at " in line)
    args = "['--lr', '0.1', 'two words', '$(id)', '$(HOME)$$x', 'q\\'\"q\\\\n', '中文']"
    names = [lab.node_name(index) for index in range(3)]
    assert lines == [f"at {r} 6 {r % 2} {names[r // 2]} 5 {args}" for r in range(6)]
    assert len(lab.paddock("logs", "last", "-n", 2).stdout.splitlines()) == 2
    assert [line.partition("] ")[2] for line in lab.logs("last", "--rank", "3")] == [lines[3]]


def test_output_may_go_into_the_directory_that_is_sent(lab: Lab) -> None:
    """`paddock submit ... > submit.log`: the file grows with every line that we print."""
    script = lab.script("say('sent', *sorted(os.listdir('.')))\n")
    submit = lab.command("submit", *lab.words, "--detach", "--nproc_per_node", 2, script)
    line = f'cd ~/"{PROJECT}" && exec "$@" > submit.log 2>&1'
    done = lab.laptop.run(["sh", "-c", line, "sh", *submit], env=lab.env)
    assert done.returncode == 0, (lab.project / "submit.log").read_text("utf-8")
    assert lab.paddock("wait").returncode == 0
    sent = [line for line in lab.logs() if "] sent " in line]
    assert len(sent) == 6 and not [line for line in sent if "submit.log" in line]


def test_the_first_failure_is_named_and_ends_all(lab: Lab) -> None:
    """The job's code is the rank's, and status says which one, where."""
    text = f"if RANK == 3:\n    time.sleep(0.5)\n    sys.exit(7)\n{FAR}"
    lab.submitted(lab.script(text))
    assert lab.paddock("wait").returncode == 7
    status = lab.status()
    assert (status["state"], status["code"]) == ("failed", 7)
    assert "rank 3" in status["why"] and lab.node_name(1) in status["why"]
    if lab.knows_ranks:  # who was only stopped because of it has not failed
        states = [(node["name"], node["state"]) for node in status["nodes"]]
        names = [lab.node_name(index) for index in range(3)]
        assert states == list(zip(names, ("cancelled", "failed", "cancelled"), strict=True))
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize("now", [False, True], ids=["asked", "now"])
def test_stop_ends_every_rank(lab: Lab, now: bool) -> None:
    """Asked, they may save; at once, nobody is asked, and nothing is waited for."""
    save = "signal.SIG_IGN" if now else "save"
    text = (
        "def save(*_):\n    say('saved', RANK)\n    sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, {save})\n{UP}{FAR}"
    )
    job = lab.submitted("--grace", 600, lab.script(text))
    following = lab.laptop.start(lab.command("logs", "-f", job), env=lab.env)
    following.wait_for("rank-is-up", count=6)
    assert lab.paddock("stop", job, *(["--now"] if now else [])).returncode == 0
    assert lab.until("cancelled", job=job)["state"] == "cancelled"
    wait_until(lambda: not lab.ranks_alive())
    followed = following.end()
    assert followed.code == 0, followed.err
    assert len(re.findall(r"saved \d$", followed.out, re.MULTILINE)) == 6 or now


MEET = """\
import socket
host, _, port = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].partition(":")
if RANK == 0:
    listener = socket.create_server(("", int(port)))
    kept = [listener.accept() for _ in range(WORLD - 1)]
    say("rank-is-up")
    forever()
while True:
    try:
        with socket.create_connection((host, int(port))) as connection:
            connection.recv(1)
    except ConnectionError:
        time.sleep(0.1)
"""


def test_stacks_and_stalls_of_all_hosts_are_shown(lab: Lab) -> None:
    """Rank 5 waits for rank 0, which is on another host: only who hears both can tell."""
    job = lab.submitted("--stall-after", 3, lab.script(MEET))
    lab.until_up(6)
    wait_until(lambda: any("rank-is-up" in line for line in lab.logs(job)))
    found: list[dict[str, Any]] = []

    def are_all_there() -> bool:  # a watch begins a second after its ranks
        done = lab.paddock("stacks", job, "--json")
        found[:] = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
        return [row["rank"] for row in found] == list(range(6))

    wait_until(are_all_there)
    assert found[5]["on"] == "recvfrom: rank 0", found[5]
    wait_until(lambda: lab.status(job)["is_stalled"])
    assert "stalled for" in lab.status(job)["why"]
    assert lab.paddock("stop", job, "--now").returncode == 0


def test_a_lost_host_ends_the_job(lab: Lab) -> None:
    """And the others do not train on alone; what they said can be read."""
    lab.submitted("--lease", 2, lab.script(UP + FAR))
    lab.until_up(6)
    named = lab.lose_node(1)
    status = lab.until("failed", "lost")
    assert any(text in status["why"] for text in named), (named, status["why"])
    wait_until(lambda: not lab.ranks_alive())
    assert lab.paddock("logs", "last").stdout.count("rank-is-up") >= 2


def test_a_detached_job_outlives_the_laptop(lab: Lab) -> None:
    """Also one that is started again: the registry knows, and logs go on."""
    job = lab.submitted(lab.script(UP + FAR))
    lab.until_up(6, job)
    registry = lab.laptop.home / ".local" / "state"
    kept = {path: path.read_bytes() for path in registry.rglob("*") if path.is_file()}
    lab.laptop.kill()
    lab.laptop.boot()
    if lab.on_laptop:
        assert lab.status(job)["state"] == "lost"
        wait_until(lambda: not lab.ranks_alive())
        return
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert lab.status(job)["ranks_up"] == 6
    assert len([line for line in lab.logs(job) if line.endswith("rank-is-up")]) == 6
    assert lab.paddock("stop", job, "--now").returncode == 0
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_an_attached_job_ends_with_its_submitter(lab: Lab, how: str) -> None:
    """Whatever becomes of the laptop; where the backend can tell. Elsewhere it goes on."""
    running = lab.stay(lab.script(UP + FAR))
    running.wait_for("rank-is-up")
    wait_until(lambda: len(lab.ranks_alive()) == 6)
    if how == "killed":
        os.kill(running.pid, signal.SIGKILL)
    else:
        lab.laptop.cut_cable()
    if how in lab.follows:
        wait_until(lambda: not lab.ranks_alive())
    else:
        lab.laptop.mend_cable()
        lab.until_up(6)
        assert len(lab.ranks_alive()) == 6


def test_ctrl_c_ends_an_attached_job(lab: Lab) -> None:
    """The code says so."""
    running = lab.stay(lab.script(UP + FAR))
    running.wait_for("rank-is-up")
    os.kill(running.pid, signal.SIGINT)
    ended = running.end()
    assert ended.code in (130, 143)
    wait_until(lambda: not lab.ranks_alive())


def test_a_name_in_use_is_refused(lab: Lab) -> None:
    """And can be taken over."""
    script = lab.script(FAR)
    lab.submitted("--name", "mine", script)
    again = lab.submit("--name", "mine", script)
    assert again.returncode == 2
    assert "the name 'mine' is in use" in again.stderr and "--replace" in again.stderr
    assert lab.submit("--name", "mine", "--replace", script).returncode == 0
    lab.until_up(6)
    assert len(lab.ranks_alive()) == 6


TOOL = """\
import sys
from concurrent.futures import ThreadPoolExecutor
import paddock
from paddock.api.launch import Label

def start(number):
    return paddock.submit("train.py", number, name=Label("point"), nproc=1, flags=sys.argv[2:])

with ThreadPoolExecutor(10) as pool:
    runs = [*pool.map(start, range(int(sys.argv[1])))]
try:
    print(len({run.id for run in runs}), sum(not run.is_done() for run in runs))
finally:
    for run in runs:
        run.stop(now=True)
print(*{run.wait(check=False).state for run in runs})
"""


def test_ten_jobs_of_one_name_from_a_tool_are_there_at_once(lab: Lab) -> None:
    """Its names are labels: submitit names a job after its function, Hydra after the app."""
    lab.script(FAR)
    count = lab.jobs_at_once
    done = lab.python(TOOL, count, *lab.words, "-n", 1)
    assert done.stdout.splitlines() == [f"{count} {count}", "cancelled"], done.stderr
    wait_until(lambda: not lab.ranks_alive())


def test_a_bad_interpreter_is_named_and_nothing_is_left(lab: Lab) -> None:
    """Before anything has started, where the hosts can be asked before; else by the job's end."""
    done = lab.submit("--interpreter", "/no/such/python", lab.script(FAR))
    if done.returncode == 0 and not lab.asks_first:
        assert lab.paddock("wait").returncode not in (0, 143)
        assert "/no/such/python" in lab.status()["why"]
        return
    assert done.returncode == 2, done
    assert "/no/such/python" in done.stderr
    wait_until(lambda: not lab.ranks_alive())
    assert json.loads(lab.paddock("list", "--json").stdout) == []


def test_no_secret_is_in_any_file(lab: Lab) -> None:
    """Neither the job's key nor what --env says."""
    text = "say('long', len(os.environ['SECRET']))\n"
    lab.submitted("--env", "SECRET=hush-hush", lab.script(text + FAR))
    lab.until_up(6)
    found = secrets_in(lab.folders(), "hush-hush")
    assert all(path.name in lab.secret_files for path in found), found
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")
    wait_until(lambda: secrets_in(lab.folders(), "hush-hush") == [])


def test_what_is_named_travels_and_nothing_else(lab: Lab) -> None:
    """Neither a variable of the submitter's nor its value; --env NAME takes the value from here.

    A variable that a launcher sets for itself is the job's where --env says so.
    """
    lab.env |= {"STRANGER": "hush-hush", "NAMED": "of the 'laptop' $(id)"}
    names = ["STRANGER", "NAMED", "GIVEN", "FLAGS_START_PORT"]
    text = f"say('has', [os.environ.get(name, 'no') for name in {names}])\n"
    words = ("--env", "NAMED", "--env", "GIVEN=two words", "--env", "FLAGS_START_PORT=7")
    lab.submitted(*words, lab.script(text + FAR))
    lab.until_up(6)
    has = f"has {['no', lab.env['NAMED'], 'two words', '7']}"
    wait_until(lambda: sum(line.endswith(has) for line in lab.logs()) == 6)
    assert secrets_in(lab.folders(), "hush-hush") == []


def test_a_file_that_a_rule_kept_here_is_named(lab: Lab) -> None:
    """By status and from Python, though the script opened it by a path of its host."""
    name = lab.script("open(os.path.abspath('data/one.json'))\n")
    (lab.project / ".gitignore").write_text("data/\n", "utf-8")
    (lab.project / "data").mkdir()
    (lab.project / "data" / "one.json").write_text("1", "utf-8")
    lab.submitted("-n", "2", name)
    lab.until("failed")
    sentence = "data/one.json stayed here, in "
    assert sentence in lab.paddock("status", "last").stdout
    lines = ("try:", "  paddock.Run.find().wait()", "except paddock.RunFailedError as error:")
    text = "\n".join(("import paddock", *lines, "  print(error)"))
    assert sentence in lab.python(text).stdout


def test_nothing_is_left_after_delete(lab: Lab) -> None:
    """No process, no directory, no entry; but what was fetched."""
    job = lab.submitted(lab.script("say('done', RANK)\n"))
    assert lab.paddock("wait", job).returncode == 0
    assert lab.paddock("fetch", job, "--to", "mine").returncode == 0
    mine = lab.project / "mine"
    assert {path.name for path in mine.iterdir()} == {".paddockignore", "log"}
    for index in range(3):  # a directory for each host
        logs = [p for p in (mine / "log" / lab.node_name(index)).iterdir() if p.is_file()]
        text = b"".join(path.read_bytes() for path in logs)
        assert all((f"done {rank}\n".encode() in text) == (rank // 2 == index) for rank in range(6))
    assert not list(mine.rglob(".paddock"))
    assert lab.paddock("delete", job).returncode == 0
    assert json.loads(lab.paddock("list", "--json").stdout) == []
    wait_until(lambda: not lab.left_behind())


def test_what_a_dry_run_shows_is_what_is_done(lab: Lab) -> None:
    """Every file, object and command; and a dry run does nothing."""
    script = lab.script(FAR)
    words = ("--name", "same", script, "--lr", "two words", "$(id)")
    shown = lab.submit("--dry-run", "--json", *words)
    assert shown.returncode == 0, shown.stderr
    assert not lab.left_behind()
    plan = json.loads(shown.stdout)
    lab.submitted(*words)
    lab.until_up(6)
    mine = lab.status()["id"]
    lab.check_done(json.loads(shown.stdout.replace(plan["id"], mine)))
