"""The rank that is named is the one that failed first, although its peers fail after it.

8 ranks, one dies, the others die 10-40 ms later of the broken connection. torchrun
names the right one in 4 of 20 runs.
"""

from __future__ import annotations

import random
import re
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import wait_until
from paddock.local.guardian import state_of

if TYPE_CHECKING:
    from local.jobs import World

RANKS = 8
# Each rank holds a TCP connection to the one that will die, as collective libraries do.
CASCADE = """
import random, socket
CULPRIT, HOW, SEED = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def address(endpoint):
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)
there = address(os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[CULPRIT])
random.seed(SEED * 1000 + RANK)
if RANK == CULPRIT:
    family = socket.AF_INET6 if ":" in there[0] else socket.AF_INET
    server = socket.create_server(("", there[1]), family=family, backlog=64)
    peers = [server.accept()[0] for _ in range(WORLD - 1)]
    for peer in peers:
        peer.sendall(b"go")
    time.sleep(random.uniform(0.0, 0.03))
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "raise":
        raise ValueError("loss is nan")
    os._exit(7)
while True:
    try:
        peer = socket.create_connection(there)
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
while peer.recv(100):
    pass
time.sleep(random.uniform(0.01, 0.04))
if HOW == "silent":
    os._exit(1)
raise ConnectionResetError(104, "Connection reset by peer")
"""
CODES = {"exit": 7, "kill": 137, "raise": 1, "silent": 7}


@pytest.mark.alone  # 10 ms decide who was first
@pytest.mark.limit(120)
@pytest.mark.parametrize("how", ["exit", "kill", "raise", "silent"])
def test_the_culprit_of_a_cascade_is_named_in_all_runs(world: World, how: str) -> None:
    """Five runs each, 20 of 20 in all; "silent": the peers leave no words to read."""
    script = world.script(CASCADE)
    dice = random.Random(how)
    wrong = []
    for seed in range(5):
        culprit = dice.randrange(RANKS)
        ended = world.run("--nproc_per_node", RANKS, script, culprit, how, seed)
        named = re.search(r"first failure: rank (\d+) ", ended.err)
        assert named is not None, ended.err
        if (int(named[1]), ended.code) != (culprit, CODES[how]):
            wrong.append((seed, culprit, named[0], ended.code))
    assert wrong == []


def test_a_witness_that_ends_first_is_not_named(world: World) -> None:
    """The culprit may still run its exit handlers when its peers have already gone."""
    text = """
import atexit, socket
port = int(os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].rpartition(":")[2])
if RANK == 0:
    server = socket.create_server(("", port))
    peer, _ = server.accept()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    atexit.register(lambda: (peer.close(), server.close(), time.sleep(0.3)))
    raise ValueError("disk is full")
while True:
    try:
        peer = socket.create_connection(("127.0.0.1", port))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
peer.recv(1)
raise ConnectionResetError(104, "Connection reset by peer")
"""
    ended = world.run("--nproc_per_node", 2, world.script(text))
    assert "first failure: rank 0" in ended.err
    assert "ValueError: disk is full" in ended.err


LOGGED = """
import logging, threading
def upload():
    raise OSError("upload of metrics failed")
def report():
    try:
        upload()
    except OSError:
        logging.exception("metrics are late, training goes on")
if RANK == 0 and ATTEMPT == 0:
"""
HANDLED = {
    "at the top": "    try:\n        upload()\n"
    "    except OSError:\n        logging.exception('late')\n",
    "in a function": "    report()\n",
    "in a thread": "    t = threading.Thread(target=upload)\n    t.start()\n    t.join()\n",
}
GOES_ON = """
    tell("up")
    forever()
if ATTEMPT == 0:
    gate()
    {end}
"""


@pytest.mark.parametrize("place", HANDLED)
def test_a_rank_that_handled_its_exception_is_no_culprit(world: World, place: str) -> None:
    """It trains on in silence; another rank ends with a code that asks for a restart."""
    text = LOGGED + HANDLED[place] + GOES_ON.format(end="sys.exit(77)")
    running = world.start(
        "--nproc_per_node", 2, "--max-restart", 1, "--restart-on", 77, world.script(text)
    )
    world.events.wait("up")
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 0, ended.err
    assert "rank 1" in ended.line("exited with code 77")
    assert "rank 0 " not in ended.err


def test_a_rank_that_we_ended_and_that_leaves_with_1_is_no_culprit(world: World) -> None:
    """It saves and exits with 1 on SIGTERM; an exception that it had handled is just older."""
    end = "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(1))\n"
    text = end + LOGGED + HANDLED["in a function"] + GOES_ON.format(end="sys.exit(77)")
    running = world.start("--nproc_per_node", 2, "--max_restart", 0, world.script(text))
    world.events.wait("up")
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 77
    assert "first failure: rank 1 " in ended.err


def test_a_thread_that_died_does_not_explain_a_lost_peer(world: World) -> None:
    """Rank 0 logged an exception a moment ago, in a function; rank 1 has lost its own server."""
    end = "raise ConnectionResetError(104, 'Connection reset by peer')"
    for place in ("in a function", "in a thread"):
        running = world.start(
            "--nproc_per_node", 2, world.script(LOGGED + HANDLED[place] + GOES_ON.format(end=end))
        )
        world.events.wait("up")
        world.open_gate(1)
        ended = running.end()
        assert "rank 1" in ended.line("first failure: ")


def test_a_service_that_refuses_a_rank_makes_it_no_victim(world: World) -> None:
    """Rank 1 fails first, of its data server; rank 0 misses it and says so in its own words."""
    text = """
import socket
path = os.path.join(os.environ["PADDOCK_RUN_DIR"], "meet")
if RANK == 1:
    peer = socket.socket(socket.AF_UNIX)
    while peer.connect_ex(path):
        time.sleep(0.01)
    tell("met")
    closed = socket.create_server(("127.0.0.1", 0))
    address = closed.getsockname()
    closed.close()
    socket.create_connection(address)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
peer, _ = server.accept()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not peer.recv(1):
    # Which failed first is known once the launcher has read the words of rank 1.
    while "refused" not in open(os.environ["PADDLE_LOG_DIR"] + "/workerlog.1").read():
        time.sleep(0.01)
    time.sleep(0.01)  # more than the difference that counts as none
    raise RuntimeError("no batch came from rank 1")
"""
    ended = world.run("--nproc_per_node", 2, world.script(text))
    assert "rank 1" in ended.line("first failure: "), ended.err
    assert "ConnectionRefusedError" in ended.err


def test_the_last_words_of_a_rank_that_chose_its_exit_code_are_shown(world: World) -> None:
    """Rank 1 logged an exception and handled it, long before it gives up for another reason."""
    text = """
import logging
if RANK == 1:
    try:
        {}["cache"]
    except KeyError:
        logging.exception("no cache yet, building it")
    print("fatal: the loss is NaN since step 812, giving up", flush=True)
    sys.exit(3)
forever()
"""
    ended = world.run("--nproc_per_node", 2, world.script(text))
    assert ended.code == 3
    assert "fatal: the loss is NaN since step 812, giving up\n" in ended.err


def test_the_whole_message_of_an_exception_is_shown(world: World) -> None:
    """And the exception that it was raised from."""
    text = """
if RANK == 1:
    try:
        int("fast")
    except ValueError as error:
        raise ValueError("2 fields are wrong\\n  lr: no number\\nbatch: missing") from error
forever()
"""
    ended = world.run("--nproc_per_node", 2, world.script(text))
    assert "ValueError: 2 fields are wrong\n  lr: no number\nbatch: missing\n" in ended.err
    assert "invalid literal for int() with base 10: 'fast'\n" in ended.err


# A launcher that waits for no output at all when a rank has ended, as if its disk were slow.
IMPATIENT = """
import sys
import paddock.local.ending
paddock.local.ending.EVIDENCE_SECONDS = -1.0
sys.argv[:4] = ["paddock"]
from paddock.cli.main import main
main()
"""


def test_what_was_read_late_is_in_the_verdict(world: World) -> None:
    """200 ranks, or a slow disk: the end of a rank is known before its last words are read."""
    text = """
if RANK == 1:
    gate()
    raise ValueError("label 7 is out of range")
signal.signal(signal.SIGTERM, lambda *_: [tell("told"), gate(), os._exit(0)])
tell("up")
forever()
"""
    running = world.start(
        "--nproc_per_node", 2, world.script(text), before=(sys.executable, "-c", IMPATIENT)
    )
    for word in ("up", "told"):
        world.events.wait(word)
        world.open_gate(1)
    ended = running.end()
    assert "ValueError: label 7 is out of range" in ended.err
    assert "it wrote nothing" not in ended.err
    assert ended.code == 1


def test_a_peer_that_ends_well_is_no_culprit(world: World) -> None:
    """Ranks that finished before the failure did nothing wrong."""
    text = "tell('up', RANK, os.getpid())\nif RANK == 1:\n    gate()\n    sys.exit(9)\n"
    running = world.start("--nproc_per_node", 4, world.script(text))
    pids = {int(rank): int(pid) for _, rank, pid in world.events.wait("up", count=4)}
    # A process loses its environment well before it has ended.
    wait_until(lambda: all(state_of(pids[rank]) == b"Z" for rank in (0, 2, 3)))
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 9
    assert "first failure: rank 1" in ended.err
    assert "stopped by paddock" not in ended.err


def test_a_rank_that_traps_sigterm_and_fails_is_no_culprit(world: World) -> None:
    """What happens after our SIGTERM is our doing, whatever the code."""
    text = """
signal.signal(signal.SIGTERM, lambda n, f: os._exit(99))
tell("up")
if RANK == 2:
    gate()
    sys.exit(4)
forever()
"""
    running = world.start("--nproc_per_node", 4, world.script(text))
    world.events.wait("up", count=4)
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 4
    assert "first failure: rank 2" in ended.err


@pytest.mark.parametrize(
    ("text", "said"), [("def (:", "SyntaxError"), ("import no_such_module", "ModuleNotFoundError")]
)
def test_the_rank_that_is_named_is_the_one_whose_words_are_shown(
    world: World, text: str, said: str
) -> None:
    """All fail alike: rank 0, unless it was stopped before it could say so."""
    path = world.folder / "broken.py"
    path.write_text(text, "utf-8")
    ended = world.run("--nproc_per_node", 4, path)
    before, _, after = ended.err.partition("first failure: rank ")
    assert after, ended.console
    if after.startswith("0 "):
        assert said in ended.out + before and "its output is above" in after, ended.console
    else:
        assert said in after, ended.console
