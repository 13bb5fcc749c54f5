"""The lines for people on how other nodes join: the command to copy, and obstacles."""

from __future__ import annotations

from paddock.core.endpoint import join_endpoint
from paddock.local.facts.addresses import bridge_of
from paddock.local.report.text import copy_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from paddock.agent.leadership.leadership import OwnLauncher
    from paddock.core.job import Rendezvous

# The flags that differ between the nodes of a job.
OWN_FLAGS = ("master", "rank", "host")
COMMANDS_MAX = 8


def invite(run: OwnLauncher, key: bytes, address: str, port: int) -> None:
    """Print that this node leads, at this address, and how the others join."""
    rendezvous = run.job.rendezvous
    where = join_endpoint(address, port)
    run.member.reporter.echo("Waiting peer start...")
    if rendezvous.kind == "tcp" and not (rendezvous.host or rendezvous.among):
        run.say_raw(
            copy_block(_commands(rendezvous.node_rank, run.job.nnodes_max, where, key)),
            to_stdout=True,
        )
    if not key:
        text = (
            f"no job key: any program that reaches {where} can take a node's place, or the job; "
            "set PADDOCK_TOKEN (or --token-file) on every node"
        )
        run.member.say("WARNING", text)
    for text in _obstacles(rendezvous, address):
        run.member.say("WARNING", text)


def _obstacles(rendezvous: Rendezvous, address: str) -> Iterator[str]:
    """The reasons why other nodes may not reach this address."""
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


def _commands(rank: int | None, nnodes: int, endpoint: str, key: bytes) -> str:
    """The commands that start the other nodes: the same, with --master and the key.

    A node that was given a rank invites each of the others by its own.
    """
    import sys

    words = [word for word in sys.argv[1:] if word != "--master="]  # of a variable that is not set
    words = words["launch" in words[:1] :]
    if rank is None:
        return _command(["--master", endpoint, *_common(words)], key)
    others = [number for number in range(nnodes) if number != rank]
    lines = [
        _command(["--master", endpoint, "--node-rank", str(number), *_common(words)], key)
        for number in others[:COMMANDS_MAX]
    ]
    if len(others) > COMMANDS_MAX:
        lines.append(f"# the same for each other node, up to --node-rank {others[-1]}")
    return "\n".join(lines)


def _common(words: Sequence[str]) -> list[str]:
    """The arguments of this launch that hold for every node."""
    from paddock.command_line import read_line
    from paddock.jobfile.flags import LAUNCH

    line = read_line(words, LAUNCH, has_script=True)
    flags = [w for one in line.flags if one.flag.name not in OWN_FLAGS for w in one.words]
    is_cut = "--" in words[: len(words) - len(line.rest)][-1:]
    return [*flags, *["--"][:is_cut], *line.rest]


def _command(words: Sequence[str], key: bytes) -> str:
    """The command line; secrets in it are named, not shown: they have to be set there first."""
    from paddock.jobfile.masked import shown_args

    line = shown_args(words)
    needs = "".join(f"# set {name} there first\n" for name in line.needs)
    prefix = f"PADDOCK_TOKEN={key.decode()} " if key else ""
    return f"{needs}{prefix}paddock launch {line.text}"
