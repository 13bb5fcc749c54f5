"""Makes a server one of a pair: its name, its member, its threads."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import UsageError
from paddock.ps.consistency.replication import NEAR_RECORDS, Member, Role, recovered
from paddock.ps.endpoint import join_endpoint
from paddock.ps.protocol.frames import Header
from paddock.ps.server.feed import Feed
from paddock.ps.server.follower import Follower
from paddock.ps.server.identity import MemberFile
from paddock.ps.server.options import Options
from paddock.ps.server.pair import Pair
from paddock.ps.stream import Stream

if TYPE_CHECKING:
    from paddock.ps.server.recovery import Snapshots
    from paddock.ps.server.serve import Server


def prepare_pair(options: Options, say: Callable[[str], None]) -> MemberFile | None:
    """Before the log is opened; None for a server that keeps none. Raises UsageError."""
    if not options.data_dir:
        return None
    if options.witness and (ca := options.trusted):
        try:
            ssl.create_default_context(cafile=ca)
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(f"--tls-ca {ca}: {error}", hint="certificates in PEM form") from error
    file = MemberFile(Path(options.data_dir), say)
    file.prepare()
    return file


def join_pair(server: Server, options: Options, file: MemberFile) -> None:
    """Give a recovered server its place in a pair."""
    engine, store = server.engine, server.store
    assert engine.log is not None and server.snapshots is not None
    end = engine.log.last
    name = file.open(is_empty=end == 0, is_on_disk=options.ack == "disk")
    is_counting = options.ack == "replica"
    is_first = not options.replica_of and (not store.history or options.promote == "yes")
    member = Member(
        name,
        _endpoint(server, options),
        is_first=is_first,
        near=NEAR_RECORDS if is_counting else -1,
    )
    pair = Pair(
        engine,
        recovered(member, end=end, history=store.history),
        witness=options.witness,
        group=f"{options.job}-{options.index}",
        identity=server.identity,
        serves_alone=not is_counting,
        say=server.say,
    )
    server.pairing = Pairing(server, pair, server.snapshots, file)


def _endpoint(server: Server, options: Options) -> str:
    """Where the other server of the pair reaches this one."""
    return options.advertise or join_endpoint(options.bind, server.port)


class Pairing:
    """The parts of a server that make it one of a pair."""

    def __init__(self, server: Server, pair: Pair, snapshots: Snapshots, file: MemberFile) -> None:
        self.server = server
        self.pair = pair
        self.snapshots = snapshots
        self.file = file
        self.follower = Follower(
            pair,
            snapshots,
            file,
            place=(server.store.server, server.store.servers),
            adopt=self._adopt,
        )
        snapshots.keep_from = pair.keep_from
        pair.changed_role = self._changed_role

    def start(self) -> None:
        """Begin to ask the witness, and to follow whom it names."""
        self.follower.start()
        self.pair.start()

    def stop(self) -> None:
        """Let the other server take over."""
        self.pair.stop()
        self.follower.join()

    def feed(self, stream: Stream, header: Header, body: memoryview) -> None:
        """Serve a replica's connection to its end."""
        Feed(self.pair, self.snapshots, stream).serve(header, body)

    def _adopt(self, server_id: int) -> None:
        """An empty server is its primary's replica: their state has one name."""
        self.server.server_id = f"{server_id:016x}"

    def _changed_role(self) -> None:
        if self.pair.member.role is Role.PRIMARY:
            self.follower.interrupt()
        elif self.server.coordinator is not None:
            self.server.coordinator.let_go()
