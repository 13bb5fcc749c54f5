"""Two and three hosts: how they find each other, and how they end together."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from real.hosts import can_shift_monotonic, end_all, failure

if TYPE_CHECKING:
    from local.jobs import Running, World
    from real.hosts import Hosts

MASTER = "10.123.0.1:7000"
KEY = {"PADDOCK_TOKEN": "the-job-key"}
# Longer than by default: a machine that stood still for 3 s while ranks start is not the subject.
TWO = ("--nnodes", 2, "--nproc_per_node", 2, "--master", MASTER, "--lease", 10)

# Every rank hears from rank 0 over the network, by the endpoints it was given.
TALK = """
import socket
ends = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
def address(end):
    host, _, port = end.rpartition(":")
    return host.strip("[]"), int(port)
if RANK == 0:
    host, port = address(ends[0])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, port), family=family)
    for _ in range(WORLD - 1):
        peer, _ = server.accept()
        peer.sendall(b"hello")
        peer.close()
else:
    while True:
        try:
            peer = socket.create_connection(address(ends[0]))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    assert peer.recv(5) == b"hello"
tell("at", RANK, WORLD, os.uname().nodename, os.environ["PADDLE_CURRENT_ENDPOINT"])
"""


@pytest.mark.parametrize(
    "how",
    [
        f"--nnodes 2 --master {MASTER}",
        f"--nnodes 2 --master http://{MASTER}",
        "--nnodes 2 --master [fd00::1]:7000",
        "--nnodes 2 --master node1:7000",
        "--nnodes 2 --master node1-6:7000",
        "--ips 10.123.0.1,10.123.0.2",
        "--ips fd00::1,fd00::2",
        "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1 --rdzv-id 7",
    ],
)
def test_the_same_command_on_each_host_just_works(hosts: Hosts, world: World, how: str) -> None:
    """Ranks follow the hosts, endpoints are reachable, nobody needs a --rank."""
    script = world.script(TALK)
    running = hosts.start_all(*how.split(), "--nproc_per_node", 2, script, env=KEY)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(0, []), (0, [])], ended[1].err
    at = {
        int(rank): (int(world_size), node)
        for _, rank, world_size, node, _ in world.events.all("at")
    }
    assert at == {0: (4, "node1"), 1: (4, "node1"), 2: (4, "node2"), 3: (4, "node2")}
    prefix = "[fd00::" if "fd00" in how or "-6" in how else "10.123.0."
    assert all(event[4].startswith(prefix) for event in world.events.all("at"))


def test_the_printed_command_starts_the_other_node(hosts: Hosts, world: World) -> None:
    """Copy, paste, enter: key and address are in it."""
    script = world.script(TALK)
    first = hosts[0].start("--nnodes", 2, "--nproc_per_node", 2, script)
    first.wait_for("Copy the following command to other nodes to run.")
    first.wait_for("-" * 80, count=2)
    (line,) = [r for r in first.text("out").splitlines() if "paddock launch" in r]
    assert "PADDOCK_TOKEN=" in line and "--master 10.123.0.1:" in line
    line = line.replace("log-node1", "log-node2")
    second = hosts[1].start_line(line)
    assert [e.code for e in end_all([first, second])] == [0, 0]
    assert len(world.events.all("at")) == 4


@pytest.mark.parametrize("own", [(), ("--node_rank", 0, "--host", "10.123.0.1")])
def test_the_printed_command_of_a_ranked_node_starts_the_others(
    hosts: Hosts, world: World, own: tuple[object, ...]
) -> None:
    """What only this node is, its rank and its address, is not in the command for another."""
    env = {} if own else {"PADDLE_NODE_RANK": "0", "PADDLE_RANK": "0"}
    script = world.script(TALK)
    words = ("--nproc_per_node", 1, "--nnodes=3", *own, script, "--node_rank", "of the script")
    first = hosts[0].start(*words, env=env)
    first.wait_for("-" * 80, count=2)
    lines = [r for r in first.text("out").splitlines() if "paddock launch" in r]
    assert [re.findall(r"--node-rank (\S+)", line)[0] for line in lines] == ["1", "2"]
    others = [
        host.start_line(line.replace("log-node1", f"log-{host.name}"))
        for host, line in zip((hosts[1], hosts[2]), lines, strict=True)
    ]
    assert [e.code for e in end_all([first, *others])] == [0, 0, 0]
    assert sorted(event[1::2] for event in world.events.all("at")) == [
        ("0", "node1"), ("1", "node2"), ("2", "node3"),
    ]  # fmt: skip


def test_given_ranks_order_the_nodes(hosts: Hosts, world: World) -> None:
    """--rank wins over addresses."""
    script = world.script("tell('at', RANK, os.uname().nodename)")
    ranks = {0: 0, 1: 2, 2: 1}
    running = [
        hosts[i].start(
            "--nnodes", 3, "--nproc_per_node", 1, "--master", MASTER, "--rank", rank, script,
            env=KEY,
        )
        for i, rank in ranks.items()
    ]  # fmt: skip
    assert [e.code for e in end_all(running)] == [0, 0, 0]
    assert sorted(event[1:] for event in world.events.all("at")) == [
        ("0", "node1"), ("1", "node3"), ("2", "node2"),
    ]  # fmt: skip


def test_a_second_job_may_follow_on_the_same_port(hosts: Hosts, world: World) -> None:
    """The last one's connections linger in TIME_WAIT."""
    script = world.script("pass")
    for _ in range(3):
        assert [e.code for e in end_all(hosts.start_all(*TWO, script, env=KEY))] == [0, 0]


def test_logical_nodes_share_one_machine(hosts: Hosts, world: World) -> None:
    """How one tries a big job on a small machine."""
    script = world.script(TALK)
    words = ("--nnodes", 3, "--nproc_per_node", 2, "--master", "10.123.0.1:7000", script)
    running = [
        hosts[0].start(*words, env=KEY, log_dir=world.folder / f"log{i}") for i in range(3)
    ]  # fmt: skip
    assert [(e.code, e.left) for e in end_all(running)] == [(0, [])] * 3
    assert sorted(int(event[1]) for event in world.events.all("at")) == [0, 1, 2, 3, 4, 5]


def test_nodes_of_one_job_share_a_directory(hosts: Hosts, world: World) -> None:
    """A home on NFS: two nodes have a workerlog.0 each."""
    script = world.script("print('I am', RANK)")
    shared = world.folder / "shared"
    running = [hosts[i].start(*TWO, script, env=KEY, log_dir=shared) for i in range(2)]
    assert [e.code for e in end_all(running)] == [0, 0]
    logs = sorted(p.read_text() for p in shared.rglob("workerlog.?"))
    assert logs == [f"I am {rank}\n" for rank in range(4)]


# ------------------------------------------------------------------------- ending together


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(("how", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failing_rank_ends_all_with_one_verdict(
    hosts: Hosts, world: World, rank: int, how: str, code: int
) -> None:
    """Whichever host it is on: same culprit, same exit code, everywhere."""
    text = f"tell('up')\nif RANK == {rank}:\n    gate()\n    {how}\nforever()\n"
    running = hosts.start_all(*TWO, world.script(text), env=KEY)
    world.events.wait("up", count=4)
    world.open_gate(1)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(code, []), (code, [])]
    assert failure(ended[0]) == failure(ended[1])
    assert failure(ended[0]).startswith(f"rank {rank} (pid ")
    assert f" on node{1 + rank // 2} " in failure(ended[0])


CASCADE = """
import random, socket
CULPRIT, SEED = int(sys.argv[1]), int(sys.argv[2])
end = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[CULPRIT]
host, _, port = end.rpartition(":")
random.seed(SEED * 1000 + RANK)
if RANK == CULPRIT:
    server = socket.create_server((host, int(port)), backlog=64)
    peers = [server.accept()[0] for _ in range(WORLD - 1)]
    time.sleep(random.uniform(0.0, 0.03))
    if SEED % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(7)
while True:
    try:
        peer = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
try:
    peer.recv(100)
except OSError:
    pass
time.sleep(random.uniform(0.01, 0.04))
raise ConnectionResetError(104, "Connection reset by peer")
"""


@pytest.mark.alone  # 10 ms decide who was first
@pytest.mark.parametrize("clock", ["wall and monotonic by faketime", "monotonic by the kernel"])
def test_the_culprit_is_right_although_clocks_differ(
    hosts: Hosts, world: World, clock: str
) -> None:
    """Eight ranks over two hosts with clocks 90 s apart: 10 of 10, twice."""
    if clock.startswith("wall"):
        hosts[1].clock = "+90s"
    elif not can_shift_monotonic():
        pytest.skip("this kernel has no time namespaces")
    else:
        hosts[1].boot_seconds = 90
    script = world.script(CASCADE)
    dice = random.Random(clock)
    wrong = []
    for seed in range(10):
        culprit = dice.randrange(8)
        words = ("--nnodes", 2, "--nproc_per_node", 4, "--master", MASTER, script, culprit, seed)
        ended = end_all(hosts.start_all(*words, env=KEY))
        code = 137 if seed % 2 else 7
        named = [re.match(r"rank (\d+) ", failure(e)) for e in ended]
        found = [(int(n[1]) if n else -1, e.code) for n, e in zip(named, ended, strict=True)]
        if found != [(culprit, code)] * 2:
            wrong.append((seed, culprit, found))
    assert wrong == []


@pytest.mark.parametrize("node", [0, 1])
def test_a_signal_to_one_launcher_ends_all(hosts: Hosts, world: World, node: int) -> None:
    """A cancelled job is cancelled everywhere, and every rank may save."""
    text = """
signal.signal(signal.SIGTERM, lambda n, f: (tell("saved", RANK), os._exit(0)))
tell("up")
forever()
"""
    running = hosts.start_all(*TWO, world.script(text), env=KEY)
    world.events.wait("up", count=4)
    running[node].signal(signal.SIGTERM)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(143, []), (143, [])]
    assert len(world.events.all("saved")) == 4
    assert all("all ranks exited cleanly" in e.err for e in ended)


def test_a_second_ctrl_c_on_one_host_hurries_all(hosts: Hosts, world: World) -> None:
    """Nobody logs in to the other hosts to press it there."""
    text = "signal.signal(2, lambda n, f: tell('ignored'))\ntell('up')\nforever()\n"
    running = hosts.start_all(*TWO, "--grace", 3600, world.script(text), env=KEY)
    world.events.wait("up", count=4)
    running[1].signal(signal.SIGINT)
    world.events.wait("ignored", count=4)
    running[1].signal(signal.SIGINT)
    assert [(e.code, e.left) for e in end_all(running)] == [(130, []), (130, [])]


# ------------------------------------------------------------------------------ lost nodes


def start_two(hosts: Hosts, world: World, *words: object) -> list[Running]:
    """A job on two hosts that would run for ever."""
    script = world.script("tell('up', RANK)\nforever()\n")
    running = hosts.start_all(*TWO, *words, script, env=KEY)
    world.events.wait("up", count=4)
    return running


@pytest.mark.parametrize("how", ["kill", "lose_power", "cut_cable"])
def test_a_lost_member_is_noticed_and_named(hosts: Hosts, world: World, how: str) -> None:
    """torchrun's survivor is unaware for 75 s and more."""
    running = start_two(hosts, world)
    getattr(hosts[1], how)()
    ended = running[0].end()
    assert (ended.code, ended.left) == (125, [])
    assert failure(ended).startswith("node 1 on node2 ")
    reason = "is gone" if how == "kill" else "is silent for"
    assert reason in failure(ended)


@pytest.mark.parametrize("how", ["kill", "lose_power", "cut_cable"])
def test_a_lost_coordinator_ends_the_members(hosts: Hosts, world: World, how: str) -> None:
    """Node 0 is no more sacred than others; its members do not wait for ever."""
    running = start_two(hosts, world)
    getattr(hosts[0], how)()
    ended = running[1].end()
    assert (ended.code, ended.left) == (125, [])
    assert "the coordinator at 10.123.0.1:7000 is lost" in ended.err


def test_both_sides_of_a_cut_end_alike(hosts: Hosts, world: World) -> None:
    """The member that is cut off must not train on alone."""
    running = start_two(hosts, world)
    hosts[1].cut_cable()
    assert [(e.code, e.left) for e in end_all(running)] == [(125, []), (125, [])]


def test_a_short_cut_is_not_a_loss(hosts: Hosts, world: World) -> None:
    """A switch that restarts is quicker than a job."""
    text = "tell('up', RANK)\ngate()\n"
    running = hosts.start_all(*TWO, "--lease", 6, world.script(text), env=KEY)
    world.events.wait("up", count=4)
    hosts[1].cut_cable()
    # sleep: a cut as long as two pings, far below the lease
    threading.Event().wait(1.5)
    hosts[1].mend_cable()
    world.open_gate(4)
    assert [(e.code, e.left) for e in end_all(running)] == [(0, []), (0, [])]


def test_a_job_that_nobody_can_replace_outlives_a_long_cut(hosts: Hosts, world: World) -> None:
    """A bond that fails over, a live migration: the job has no size but this one, so it waits."""
    text = "tell('up', RANK)\ngate()\n"
    fixed = ("--nnodes", 2, "--nproc_per_node", 2, "--master", MASTER)
    running = hosts.start_all(*fixed, world.script(text))
    world.events.wait("up", count=4)
    hosts[1].cut_cable()
    # sleep: the cut itself, longer than the lease of an elastic job
    threading.Event().wait(8)
    hosts[1].mend_cable()
    world.open_gate(4)
    assert [(e.code, e.left) for e in end_all(running)] == [(0, []), (0, [])]


def test_a_lease_is_not_spent_on_waiting_for_tcp(hosts: Hosts, world: World) -> None:
    """TCP doubles its pauses: after a cut of 7 s it would look again when 13 s are over."""
    text = "tell('up', RANK)\ngate()\n"
    running = hosts.start_all(*TWO, world.script(text), env=KEY)  # 10 s
    world.events.wait("up", count=4)
    hosts[0].cut_cable()  # the member's kernel sees its own link up, and backs off
    # sleep: the cut itself
    threading.Event().wait(7.0)
    hosts[0].mend_cable()
    world.open_gate(4)
    assert [(e.code, e.left) for e in end_all(running)] == [(0, []), (0, [])]


@pytest.mark.parametrize("node", [0, 1])
def test_a_paused_agent_is_not_taken_for_dead(hosts: Hosts, world: World, node: int) -> None:
    """SIGSTOP of everything on a host (a hypervisor's snapshot) for less than its lease."""
    text = "tell('up', RANK)\ngate()\n"
    running = hosts.start_all(*TWO, "--lease", 6, world.script(text), env=KEY)
    world.events.wait("up", count=4)
    hosts[node].freeze()
    # sleep: the pause itself, more than two pings and far below the lease
    threading.Event().wait(3.5)
    hosts[node].freeze(thaw=True)
    world.open_gate(4)
    assert [(e.code, e.left) for e in end_all(running)] == [(0, []), (0, [])]


# ---------------------------------------------------------------------- who does not belong


def join_wrong(hosts: Hosts, world: World, words: tuple[object, ...], key: str) -> str:
    """Node 1 waits; what node 2 is told when it joins with these words. It must end with 2."""
    script = world.script("pass")
    first = hosts[0].start(*TWO, script, env=KEY)
    first.wait_for("waiting for nodes: 1 of 2 joined (node1)")
    env = {"PADDOCK_TOKEN": key} if key else {}
    ended = hosts[1].start(*TWO, *words, script, env=env).end()
    assert (ended.code, ended.left) == (2, []), ended.err
    assert first.process.poll() is None, "a stranger must not end the job"
    good = hosts[1].start(*TWO, script, env=KEY)
    assert [e.code for e in end_all([first, good])] == [0, 0]
    errors = [line for line in ended.err.splitlines() if line.startswith("paddock: error:")]
    assert len(errors) == 1 and "  hint: " in ended.err
    return errors[0]


def test_a_wrong_key_is_refused_and_the_job_goes_on(hosts: Hosts, world: World) -> None:
    """The right node still gets in."""
    assert "job key is wrong" in join_wrong(hosts, world, (), "guess")


def test_a_missing_key_is_refused_and_explained(hosts: Hosts, world: World) -> None:
    """The token was not copied."""
    assert "has a job key, this node has no key" in join_wrong(hosts, world, (), "")


def test_another_job_is_refused_by_name(hosts: Hosts, world: World) -> None:
    """Two users, one port."""
    said = join_wrong(hosts, world, ("--job_id", "bert"), "the-job-key")
    assert "runs job 'default', this node has job 'bert'" in said


def test_other_words_on_one_node_are_refused(hosts: Hosts, world: World) -> None:
    """What must be equal everywhere is compared."""
    said = join_wrong(hosts, world, ("--nnodes", 3), "the-job-key")
    assert "--nnodes" in said


@pytest.mark.parametrize("speaks", ["print('hello')", "pass"])
def test_another_program_on_the_master_port_is_told_apart(
    hosts: Hosts, world: World, speaks: str
) -> None:
    """On its own host the owner is named; from elsewhere it is at least no coordinator."""
    server = world.folder / "server.py"
    server.write_text(
        "import os, socket\ns = socket.create_server(('', 7000))\n"
        "os.write(os.open(os.environ['TEST_EVENTS'], os.O_WRONLY), b'listens\\n')\n"
        f"speaks = {speaks != 'pass'}\n"
        "kept = []\nwhile True:\n    kept.append(s.accept()[0])\n"
        "    speaks and kept[-1].sendall(b'220 mail.example ready\\r\\n')\n"
    )
    hosts[0].start_line(f"python3 {server}")
    world.events.wait("listens")
    running = hosts.start_all(*TWO, world.script("pass"), env=KEY)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(2, []), (2, [])]
    assert all("is not a Paddock coordinator" in e.err for e in ended)


def test_a_missing_node_is_named_at_the_join_timeout(hosts: Hosts, world: World) -> None:
    """Of 1,000 nodes, which one?"""
    ips = "10.123.0.1,10.123.0.2,10.123.0.3"
    running = hosts.start_all("--ips", ips, "--join-timeout", 2, world.script("pass"), env=KEY)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(124, []), (124, [])]
    assert all("missing 10.123.0.3; gave up after 2 s (--join-timeout)" in e.err for e in ended)


def test_a_missing_rank_is_named_at_the_join_timeout(hosts: Hosts, world: World) -> None:
    """With --rank it is the number that is known."""
    script = world.script("pass")
    running = [
        hosts[i].start(
            "--nnodes", 3, "--master", MASTER, "--join-timeout", 2, "--rank", rank, script, env=KEY
        )
        for i, rank in ((0, 0), (1, 2))
    ]  # fmt: skip
    ended = end_all(running)
    assert [e.code for e in ended] == [124, 124]
    assert all("missing rank 1; gave up" in e.err for e in ended)


def test_no_master_there_is_said_at_the_join_timeout(hosts: Hosts, world: World) -> None:
    """Refused (nobody listens) and silent (no such host) alike; the record says it, too."""
    script = world.script("pass")
    for address in ("10.123.0.1:7000", "10.123.0.99:7000"):
        state = world.folder / address
        ended = hosts[1].start(
            "--nnodes", 2, "--master", address, "--join-timeout", 1, script,
            env={**KEY, "XDG_STATE_HOME": str(state)},
        ).end()  # fmt: skip
        assert (ended.code, ended.left) == (124, [])
        why = f"--master {address}: no coordinator answered within 1 s"
        assert why in ended.err
        (events,) = state.glob("paddock/runs/*/events.jsonl")
        last = json.loads(events.read_text().splitlines()[-1])
        assert (last["state"], last["code"], why in last["why"]) == ("failed", 124, True)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (("--rank", 1), ("--rank", 1), "--rank 1 is taken by node"),
        (("--rank", 1), (), "gives no --rank, the others give a --rank"),
        ((), ("--rank", 1), "gives a --rank, the others give no --rank"),
    ],
)
def test_ranks_given_twice_or_by_some_only_are_refused(
    hosts: Hosts, world: World, first: tuple[object, ...], second: tuple[object, ...], said: str
) -> None:
    """The node that does not fit is told; the others wait for the right one."""
    script = world.script("pass")
    words = ("--nnodes", 3, "--master", MASTER)
    zero = ("--rank", 0) if first else ()
    a = hosts[0].start(*words, *zero, script, env=KEY)
    b = hosts[1].start(*words, *first, script, env=KEY)
    a.wait_for("2 of 3 joined")
    ended = hosts[2].start(*words, *second, script, env=KEY).end()
    assert (ended.code, ended.left) == (2, [])
    assert said in ended.err
    third = ("--rank", 2) if first else ()
    c = hosts[2].start(*words, *third, script, env=KEY)
    assert [e.code for e in end_all([a, b, c])] == [0, 0, 0]


def test_uneven_nodes_are_refused_unless_allowed(hosts: Hosts, world: World) -> None:
    """Collectives would hang with half the ranks missing; if it is meant, it is said."""
    script = world.script("tell('at', RANK, WORLD)")
    for extra, codes in (((), [2, 2]), (("--allow-uneven",), [0, 0])):
        running = [
            hosts[i].start(
                "--nnodes", 2, "--nproc_per_node", n, "--master", MASTER, *extra, script, env=KEY
            )
            for i, n in ((0, 1), (1, 3))
        ]  # fmt: skip
        ended = end_all(running)
        assert [e.code for e in ended] == codes
        if not extra:
            assert all("--allow" in e.err and "Traceback" not in e.err for e in ended)
    assert sorted(e[1:] for e in world.events.all("at")) == [(str(r), "4") for r in range(4)]


def test_without_a_key_a_warning_is_given(hosts: Hosts, world: World) -> None:
    """It works, as Paddle does, and says what it means."""
    ended = end_all(hosts.start_all(*TWO, world.script("pass")))
    assert [e.code for e in ended] == [0, 0]
    assert "no job key" in ended[0].err


def test_a_node_that_cannot_run_the_script_ends_all(hosts: Hosts, world: World) -> None:
    """Its image lacks the program: the others are told, with the reason."""
    program = world.folder / "only-here"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    other = world.folder / "elsewhere"
    other.write_text("#!/no/such/interpreter\n")
    other.chmod(0o755)
    hosts[1].inside("mount", "--bind", str(other), str(program))
    ended = end_all(hosts.start_all(*TWO, program, env=KEY))
    assert [(e.code, e.left) for e in ended] == [(127, []), (127, [])]
    assert failure(ended[0]) == failure(ended[1])
