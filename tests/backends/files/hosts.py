"""A host that answers about files, in this process; and packages to send there."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any

from paddock.backends.node import files
from paddock.backends.node.store import ContentStore
from paddock.backends.node.wire import Wire, WireEnded
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


class Host:
    """A host with a store of its own. spoil: what happens to a body on its way."""

    def __init__(self, folder: Path) -> None:
        self.store = ContentStore(str(folder / "cache" / "blobs"))
        self.asked: list[str] = []
        self.spoil: Callable[[str, bytes], bytes] = lambda _op, body: body

    def ask(self, row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[dict[str, Any], bytes]:
        """As over a channel; whatever is not read of a body would be taken for the next line."""
        self.asked.append(row["op"])
        data = b"".join(body)
        assert len(data) == row["bytes"]
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as answered:
            request.write(json.dumps(row).encode() + b"\n" + self.spoil(row["op"], data))
            request.seek(0)
            wire = Wire(request.fileno(), answered.fileno())
            found = wire.receive_row()
            assert found is not None
            try:
                files.serve(found, wire, self.store)
            except WireEnded as error:
                raise PaddockError("the transfer broke off") from error
            answered.seek(0)
            message = Wire(answered.fileno(), -1).receive()
        assert message is not None
        answer, rest = message
        if "error" in answer:
            raise PaddockError(answer["error"], hint=answer["hint"])
        return answer, rest


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """What is in a directory: by path, kind, mode and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("dir", oct(path.stat().st_mode & 0o777))
        else:
            found[name] = ("file", oct(path.stat().st_mode & 0o777), path.read_bytes())
    return found
