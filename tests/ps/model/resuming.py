"""A trainer whose batches go to several servers, as one hashable value, and every next value of it.

What a server knows of the trainer is the real TrainerOffsets, what the trainer counts the real
Progress. Here are the wires (each server hears in order), and the faults: the trainer dies between
any two frames and is started again, a frame that is on its way arrives or does not, and a
checkpoint is cut, at each server at another moment, and loaded.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from paddock.ps.wire.offsets import OffsetMark, OffsetProgress, TrainerOffsets
from paddock.ps.wire.values import value_from

# What a trainer does: a push of (batch, which) to a server, or a position, which goes to all.
Push = tuple[int, int, int]
SERVERS = 2
POSITION = -1


@dataclass(frozen=True)
class Setting:
    """The code under test, and how many faults may happen.

    batches: of each, the servers of its pushes. fences: a server takes nothing of a life when it
    has heard of the next one. cuts_at_once: a cut has the position and the rows of one moment.
    """

    batches: tuple[tuple[int, ...], ...] = ((0, 1, 1), (1,), (0, 1, 0))
    deaths: int = 2
    loads: int = 0
    fences: bool = True
    cuts_at_once: bool = True
    positions: type[TrainerOffsets] = TrainerOffsets
    progress: type[OffsetProgress] = OffsetProgress


class Server(NamedTuple):
    """wire: (life, what) not arrived yet. saved: its cut, (knows, applied); None before it."""

    knows: str
    applied: tuple[Push, ...] = ()
    wire: tuple[tuple[int, tuple[int, ...]], ...] = ()
    saved: tuple[str, tuple[Push, ...]] | None = None


class World(NamedTuple):
    """at: batch and push that the trainer does next; posts: of a position, where it goes yet."""

    servers: tuple[Server, ...]
    progress: bytes
    life: int = 1
    at: tuple[int, int] = (0, 0)
    posts: tuple[tuple[int, int, int], ...] = ()
    is_dead: bool = False
    deaths: int = 0
    loads: int = 0


class Resuming:
    """All that may happen, within a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def all_for(self, server: int) -> tuple[Push, ...]:
        """What a server applies in the end."""
        return tuple(
            (batch, which, server)
            for batch, servers in enumerate(self.setting.batches)
            for which, one in enumerate(servers)
            if one == server
        )

    def first(self) -> World:
        """Nothing was pushed; the first life has asked where to begin."""
        knows = json.dumps(asdict(self.setting.positions()))
        world = World(tuple(Server(knows) for _ in range(SERVERS)), b"")
        return self.begun(world)

    def positions(self, knows: str) -> TrainerOffsets:
        """What a server knows, as after a restart."""
        positions: TrainerOffsets = value_from(self.setting.positions, json.loads(knows))
        return positions

    def begun(self, world: World) -> World:
        """A life has joined, and asks where its data goes on."""
        servers = world.servers
        if self.setting.fences:
            servers = tuple(server._replace(wire=()) for server in servers)
        marks = [OffsetMark(*self.positions(s.knows).marks(None).get("0", ())) for s in servers]
        progress = self.setting.progress(SERVERS)
        position = progress.begin(marks)
        at = (0 if position is None else position["batch"], 0)
        return world._replace(
            servers=servers, progress=pickle.dumps(progress), at=at, posts=(), is_dead=False
        )

    def after(self, world: World) -> Iterator[tuple[str, World]]:
        """Every next world, with what happened."""
        for number, server in enumerate(world.servers):
            if server.wire:
                (life, what), *rest = server.wire
                arrived = self.arrived(server._replace(wire=tuple(rest)), life, what)
                yield f"server {number} has {what}", with_server(world, number, arrived)
            if self.setting.loads and server.saved is None:
                # The mutation: the trainers' positions are written first, as they are by then.
                applied = server.applied if self.setting.cuts_at_once else None
                saved = server._replace(saved=(server.knows, applied))  # type: ignore[arg-type]
                yield f"server {number} cuts", with_server(world, number, saved)
            if server.saved is not None and server.saved[1] is None:
                late = server._replace(saved=(server.saved[0], server.applied))
                yield f"server {number} copies its rows", with_server(world, number, late)
        if world.is_dead:
            yield "started again", self.begun(world._replace(life=world.life + 1))
        else:
            if world.deaths < self.setting.deaths:
                yield "dies", world._replace(is_dead=True, deaths=world.deaths + 1)
            if world.posts or world.at[0] < len(self.setting.batches):
                yield f"goes on at {world.at}", self.gone_on(world)
        cuts = [s.saved for s in world.servers if s.saved is not None and s.saved[1] is not None]
        if world.loads < self.setting.loads and len(cuts) == SERVERS:
            servers = tuple(Server(knows, applied) for knows, applied in cuts)
            loaded = world._replace(servers=servers, loads=world.loads + 1, life=world.life + 1)
            yield "the checkpoint is loaded", self.begun(loaded)

    def gone_on(self, world: World) -> World:
        """The trainer's next frame; it is on a wire then, or left out."""
        if world.posts:
            (server, number, batch), *rest = world.posts
            world = self.posted(world, server, (POSITION, number, batch))
            return world._replace(posts=tuple(rest))
        progress: OffsetProgress = pickle.loads(world.progress)
        batch, which = world.at
        if which < len(self.setting.batches[batch]):
            server = self.setting.batches[batch][which]
            number = progress.next_frame(server)
            world = world._replace(at=(batch, which + 1))
            if number is not None:
                world = self.posted(world, server, (number, batch, which, server))
        else:
            told = progress.note({"batch": batch + 1})
            posts = tuple((server, progress.number, batch + 1) for server in told)
            world = world._replace(at=(batch + 1, 0), posts=posts)
        return world._replace(progress=pickle.dumps(progress))

    def posted(self, world: World, server: int, what: tuple[int, ...]) -> World:
        one = world.servers[server]
        return with_server(world, server, one._replace(wire=(*one.wire, (world.life, what))))

    def arrived(self, server: Server, life: int, what: tuple[int, ...]) -> Server:
        """The server carries out a frame."""
        positions = self.positions(server.knows)
        if what[0] == POSITION:
            positions.note(0, what[1], {"batch": what[2]})
        else:
            positions.count(0, what[0])
            batch, which, number = what[1:]
            server = server._replace(applied=(*server.applied, (batch, which, number)))
        return server._replace(knows=json.dumps(asdict(positions)))

    def complaint(self, world: World) -> str:
        """What is wrong with a world: a push that is lost, or applied twice."""
        is_over = not world.posts and world.at[0] == len(self.setting.batches) and not world.is_dead
        for number, server in enumerate(world.servers):
            wanted = self.all_for(number)
            if server.applied != wanted[: len(server.applied)]:
                return f"server {number} has applied {server.applied}"
            if is_over and not server.wire and server.applied != wanted:
                return f"server {number} lacks {wanted[len(server.applied) :]}"
        return ""


def with_server(world: World, number: int, server: Server) -> World:
    servers = (*world.servers[:number], server, *world.servers[number + 1 :])
    return world._replace(servers=servers)
