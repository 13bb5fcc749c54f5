"""How other nodes get in: the command to copy, and what may keep them out, for the people."""

from __future__ import annotations

from paddock.core.endpoint import join_endpoint
from paddock.local.addresses import bridge_of
from paddock.local.text import copy_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddock.agent.run import Run
    from paddock.core.job import Rendezvous


def invite(run: Run, key: bytes, address: str, port: int) -> None:
    """This node coordinates, and is reached there."""
    rendezvous = run.job.rendezvous
    where = join_endpoint(address, port)
    run.member.reporter.echo("Waiting peer start...")
    if rendezvous.kind == "tcp" and not (rendezvous.host or rendezvous.among):
        run.say_raw(copy_block(_command(where, key)), to_stdout=True)
    if not key:
        text = (
            f"no job key: any program that reaches {where} can take a node's place, or the job; "
            "set PADDOCK_TOKEN (or --token-file) on every node"
        )
        run.member.say("WARNING", text)
    for text in _obstacles(rendezvous, address):
        run.member.say("WARNING", text)


def _obstacles(rendezvous: Rendezvous, address: str) -> Iterator[str]:
    """Why others may not reach this address."""
    if address.startswith("127.") and rendezvous.host not in (address, "localhost"):
        yield (
            f"this node is known to the others as {address}, which only this host can "
            "reach; give its address with --host"
        )
    bridge = bridge_of(address)
    if bridge:
        yield (
            f"{address} belongs to {bridge}, a bridge of containers on this host: other "
            "hosts cannot reach it; give this host's own address with --host"
        )


def _command(endpoint: str, key: bytes) -> str:
    """What starts another node: the same command, with --master and the key.

    Secrets among the words are named, not shown: they have to be set there first.
    """
    import sys

    from paddock.jobfile.shown import shown_words

    words = [word for word in sys.argv[1:] if word != "--master="]  # of a variable that is not set
    line = shown_words(["--master", endpoint, *words["launch" in words[:1] :]])
    needs = "".join(f"# set {name} there first\n" for name in line.needs)
    prefix = f"PADDOCK_TOKEN={key.decode()} " if key else ""
    return f"{needs}{prefix}paddock launch {line.text}"
