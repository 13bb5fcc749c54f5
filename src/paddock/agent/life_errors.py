"""Why a node's part in a job ends without a verdict (life.py): for the people. Pure."""

from __future__ import annotations

from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.search import Search
    from paddock.core.job import Rendezvous


def lost(text: str, *, is_silent: bool) -> PaddockError:
    """The coordinator is lost, and no other can come."""
    hint = (
        "the network between the nodes, or one of the two hosts, stood still"
        if is_silent
        else "look there: its launcher or its host ended"
    )
    return PaddockError(text, hint=hint, exit_code=EXIT_OWN_FAULT, retryable=True)


def not_found(search: Search) -> PaddockError:
    """Without etcd: neither the one that was lost nor another answers."""
    return PaddockError(
        f"no coordinator was found for {search.seconds:g} s (--elastic_timeout): {search.reason}",
        hint="a majority of the last attempt's nodes has to be there to go on without it",
        exit_code=EXIT_DEADLINE,
    )


def nobody_elected(seconds: float, rendezvous: Rendezvous) -> PaddockError:
    """With etcd."""
    return PaddockError(
        f"no coordinator was elected within {seconds:g} s",
        hint=f"is etcd at {','.join(rendezvous.etcd)} up and reachable?",
        exit_code=EXIT_DEADLINE,
    )


def told_to_stop(signal: int) -> PaddockError:
    """There was nobody to say goodbye to."""
    text = (
        "told to stop while the coordinator was being lost: this node ends, the others hear of it"
    )
    return PaddockError(text, exit_code=EXIT_SIGNAL_BASE + signal)
