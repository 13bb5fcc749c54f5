"""A network that loses, repeats, delays, damages and cuts: the tables are as without it."""

from __future__ import annotations

import pytest

from paddock.ps import Client
from paddock.ps.wire.frames import Op
from ps.real.proxy import Fault, Kind, Way, proxied
from ps.real.work import applied, train
from ps.running import inside

pytestmark = pytest.mark.real

SEED, STEPS = 5, 12
# A connection that is silent for a third of it is given up.
TIMEOUT_SECONDS = 3.0
FAULTS: list[tuple[Kind, Way, Op, int, int]] = [
    # kind, way, op, nth, at
    ("cut", "down", Op.PUSH, 3, 0),  # the lost acknowledgement
    ("cut", "down", Op.PUSH_DENSE, 7, 0),
    ("cut", "down", Op.PULL, 5, 0),
    ("cut", "up", Op.PUSH, 3, 0),
    ("cut", "up", Op.PUSH_DENSE, 2, 0),
    ("cut", "down", Op.HELLO, 2, 0),
    ("cut", "down", Op.CREATE, 2, 0),
    ("cut", "down", Op.JOIN, 1, 0),
    ("cut", "down", Op.ARRIVE, 4, 0),
    ("cut", "up", Op.ARRIVE, 4, 0),
    ("cut", "down", Op.LEAVE, 1, 0),
    ("cut in the middle", "up", Op.PUSH, 9, 40),
    ("cut in the middle", "up", Op.PUSH, 9, 64),
    ("cut in the middle", "up", Op.PUSH, 9, 1000),
    ("cut in the middle", "down", Op.PUSH, 9, 1),
    ("cut in the middle", "down", Op.PULL, 9, 64),
    ("cut in the middle", "down", Op.PULL, 9, 700),
    ("cut in the middle", "down", Op.PULL_DENSE, 9, 8000),
    ("cut in the middle", "up", Op.HELLO, 2, 70),
    ("cut in the middle", "down", Op.ARRIVE, 2, 66),
    ("delay", "up", Op.PUSH, 4, 0),
    ("delay", "down", Op.PUSH, 4, 0),
    ("delay", "down", Op.PULL, 4, 0),
    ("delay", "down", Op.ARRIVE, 4, 0),
    ("damage", "up", Op.PUSH, 4, 30),
    ("damage", "up", Op.PUSH, 4, 300),
    ("damage", "down", Op.PUSH, 4, 50),
    ("damage", "down", Op.PULL, 4, 300),
    ("damage", "down", Op.PULL_DENSE, 4, 2),
    ("damage", "down", Op.ARRIVE, 4, 70),
    ("silence", "up", Op.PUSH, 6, 0),
    ("silence", "down", Op.PUSH, 6, 0),
    ("silence", "down", Op.PULL, 6, 0),
    ("silence", "up", Op.PULL_DENSE, 6, 0),
    ("silence", "down", Op.CREATE, 1, 0),
    ("silence", "down", Op.ARRIVE, 6, 0),
    ("silence", "up", Op.ARRIVE, 6, 0),
    ("silence", "down", Op.JOIN, 1, 0),
]
# delay: longer than the client's patience with a connection, so that it comes again too.
DELAY_SECONDS = 2.0


def others(op: Op) -> tuple[str, ...]:
    """Where it is waited for as well. Only sync waits for others; async waits for no rows."""
    if op == Op.ARRIVE:
        return ()
    return ("half_async",) if op in (Op.PULL, Op.PULL_DENSE) else ("async",)


CASES = [(strategy, *fault) for fault in FAULTS for strategy in ("sync", *others(fault[2]))]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[str, str]]:
    """The digests after the same training without faults, by strategy."""
    found = {}
    for strategy in ("sync", "half_async", "async"):
        with inside(2) as endpoints, Client(endpoints, trainer=0, strategy=strategy) as client:
            found[strategy] = train(client, SEED, STEPS)
    return found


@pytest.mark.parametrize(("strategy", "kind", "way", "op", "nth", "at"), CASES)
def test_a_fault_on_the_way_changes_no_bit(
    strategy: str,
    kind: Kind,
    way: Way,
    op: Op,
    nth: int,
    at: int,
    undisturbed: dict[str, dict[str, str]],
) -> None:
    """Two servers, the fault before the first one; every push is applied exactly once."""
    fault = Fault(kind, way, op, nth, at, DELAY_SECONDS)
    with inside(2) as (zero, one), proxied(zero, fault) as proxy:
        with Client(
            [proxy.endpoint, one], trainer=0, strategy=strategy, timeout=TIMEOUT_SECONDS
        ) as client:
            assert train(client, SEED, STEPS) == undisturbed[strategy]
            assert applied(client) == dict.fromkeys(("words", "ads", "top"), STEPS)
        assert fault.happened.is_set()


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_every_push_again_over_another_connection_changes_nothing(
    strategy: str, undisturbed: dict[str, dict[str, str]]
) -> None:
    """Duplicates that come late, in any order, are called repeats."""
    with (
        inside(2) as (zero, one),
        proxied(zero) as proxy,
        Client([proxy.endpoint, one], trainer=0, strategy=strategy) as client,
    ):
        digest = train(client, SEED, STEPS)
        repeated = proxy.replay(SEED)
        assert len(repeated) >= 3 * STEPS and all(repeated)
        assert client.digest() == digest == undisturbed[strategy]
        assert applied(client) == dict.fromkeys(("words", "ads", "top"), STEPS)
