"""Files sent to the hosts before the start, and fetched at the end."""

from __future__ import annotations

import itertools
import os
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paddock.backends.backend import Received, Say
from paddock.backends.files.package import Ask, code_meter, scan
from paddock.backends.files.spread import Spread
from paddock.backends.node.manifest import SHOWN_MAX
from paddock.backends.node.store import size_text
from paddock.backends.registry import RegisteredJob
from paddock.backends.ssh.channel import Channel
from paddock.backends.ssh.pool import HostGroup
from paddock.backends.text import clean
from paddock.backends.types import Submission
from paddock.errors import PaddockError


def send_package(
    submission: Submission,
    run: RegisteredJob,
    group: HostGroup,
    base: dict[str, Any],
    parts: Sequence[str],
    addresses: Sequence[str],
    say: Say,
) -> None:
    """Send the package into the job's directory on every host; into a shared one once."""
    meter = code_meter(submission)
    with meter, run.telling(lambda: "reading code"):
        package = scan(
            submission.package, os.environ, program=submission.job.command.program,
            data=submission.data, has_logs=True,
            jobs=submission.site.text("root"),
        )  # fmt: skip
    manifests = [package.manifest] * len(group.channels)
    if submission.data:
        from paddock.backends.files.data import shares

        if any(parts):
            raise PaddockError(
                "--data: the hosts share a file system, so that all would have all files",
                hint="leave it out, and choose files by rank in the script",
            )
        manifests = shares(package.manifest, submission.data, len(group.channels), say)
    say(f"code: {package}")

    alone = [address if not part else "" for address, part in zip(addresses, parts, strict=True)]
    spread, began_at = Spread(package, manifests, alone), time.monotonic()
    meter.begin("sending code")

    sent: dict[str, list[int]] = {}  # by host: bytes that were sent, of all

    def counted(body: Iterable[bytes], share: list[int]) -> Iterator[bytes]:
        for part in body:
            yield part
            meter.add(len(part))
            share[0] += len(part)

    def slowest() -> str:
        shares = [(done / total, host) for host, (done, total) in list(sent.items())]
        share, host = min(shares, default=(0.0, ""))
        return f"waiting for {host}: copying code {int(100 * share)} %" if host else "copying code"

    def asking(channel: Channel) -> Ask:
        def ask(row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[Mapping[str, Any], bytes]:
            if row["op"] == "put":
                meter.add(total=int(row["bytes"]))
                sent[channel.target.login] = share = [0, int(row["bytes"])]
                body = counted(body, share)
            channel.send(body=body, **base, **row)
            return channel.receive()

        return ask

    def send(index: int, channel: Channel) -> int:
        return 0 if parts[index] else spread.send(index, asking(channel))

    with meter, run.telling(slowest):
        total = sum(group.each(send))
    seconds = time.monotonic() - began_at
    group.each(lambda index, channel: spread.end(index, asking(channel)))
    if total:
        say(f"code: {total:,} bytes were sent in {seconds:.1f} s; the rest was there already")


def fetch_into(
    channel: Channel,
    request: Mapping[str, Any],
    folder: Path,
    places: Mapping[str, str],
    received: Received = lambda _count: None,
) -> str:
    """Unpack the tar file of a host below a folder; no entry can lead out of it.

    places: the place in the folder of each requested name, as log -> log/h1. received: told the
    bytes of each part. Returns a text with the number of files and bytes.
    """
    channel.send("fetch", **request)

    class Source:
        """The parts of the tar file, as one file object."""

        rest = b""
        is_over = False

        def read(self, size: int) -> bytes:
            while len(self.rest) < size and not self.is_over:
                row, data = channel.receive()
                self.is_over = row.get("re") != "part"
                self.rest += data
                received(len(data))
                left_out.extend(clean(str(each)) for each in row.get("left_out") or ())
            data, self.rest = self.rest[:size], self.rest[size:]
            return data

    source, host = Source(), channel.target.login
    tops = [str(name).partition("/")[0] for name in request["names"]]
    left_out: list[str] = []
    sizes: dict[str, list[int]] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:  # type: ignore[call-overload]  # read() is all it needs
            # Not filter="data": Python 3.11.2, of Debian 12, has none (it came with 3.11.4).
            tar.extraction_filter = lambda entry, _: entry
            for entry in tar:
                top = entry.name.partition("/")[0]
                entry.name = _placed(entry.name, places)
                if entry.islnk():
                    entry.linkname = _placed(entry.linkname, places)
                if fault := _fault(entry, tops, folder):
                    left_out.append(clean(fault))
                    continue
                (folder / entry.name).parent.mkdir(parents=True, exist_ok=True)  # others do, too
                entry.uid, entry.gid, entry.uname, entry.gname = os.getuid(), os.getgid(), "", ""
                entry.mode = 0o755 if entry.isdir() else entry.mode & 0o755 | 0o600
                tar.extract(entry, folder)
                if entry.isfile():
                    sizes.setdefault(top, []).append(entry.size)
        while not source.is_over:
            source.read(1 << 16)
    except (tarfile.TarError, ValueError, TypeError, OverflowError) as error:
        raise PaddockError(f"{host}: it sends no files: {clean(str(error))}") from error
    except OSError as error:
        where = clean(str(error.filename or folder))
        raise PaddockError(f"{where}: {error.strerror or clean(str(error))}") from error
    if left_out:
        more = f", and {len(left_out) - SHOWN_MAX} more" if len(left_out) > SHOWN_MAX else ""
        raise PaddockError(
            f"{host}: all is here but {'; '.join(left_out[:SHOWN_MAX])}{more}",
            hint="what leads outside, is no file, or went away meanwhile is not brought",
        )
    told = [f"{each}/ {len(n)} files, {size_text(sum(n))}" for each, n in sizes.items()]
    return f"{'; '.join(told)} -> {folder}" if told else "it has no files of this job"


def _placed(name: str, places: Mapping[str, str]) -> str:
    """Return the place of an entry; one that was not requested keeps its name, and is refused.

    >>> _placed("log/train.log", {"log": "log/h1"}), _placed("../log", {"log": "log/h1"})
    ('log/h1/train.log', '../log')
    """
    top, slash, rest = name.partition("/")
    return places.get(top, top) + slash + rest


def _fault(entry: tarfile.TarInfo, asked: Sequence[str], folder: Path) -> str:
    """Return why an entry, which no honest host sends, is not unpacked; "" for any other.

    Source: tarfile's filter "data" (PEP 706); through a link even that may lead outside
    (CVE-2025-4517), so none is followed.
    """
    name = entry.name
    if fault := _path_fault(name, asked, folder):
        return fault
    if entry.issym():
        top = os.path.realpath(folder)
        end = os.path.realpath(os.path.join(top, os.path.dirname(name), entry.linkname))
        down = itertools.dropwhile(lambda part: part == "..", PurePosixPath(entry.linkname).parts)
        # ".." behind a name leads elsewhere once that name is a link, too.
        if os.path.isabs(entry.linkname) or ".." in down or os.path.commonpath((top, end)) != top:
            return f"{name!r} is a link to {entry.linkname!r}, which leads outside"
    elif (folder / name).is_symlink():
        return f"{name!r} leads through a link"
    elif entry.islnk():
        if fault := _path_fault(entry.linkname, asked, folder):
            return fault
        other = folder / entry.linkname
        # Of one that is not there, tarfile would bring what the archive said, unchecked.
        if other.is_symlink() or not other.is_file():
            return f"{name!r} is a link to {entry.linkname!r}, which is no file here"
    elif not entry.isfile() and not entry.isdir():
        return f"{name!r} is no file"
    return ""


def _path_fault(name: str, asked: Sequence[str], folder: Path) -> str:
    parts = PurePosixPath(name).parts
    if parts[:1] == () or parts[0] not in asked:
        return f"{name!r} was not asked for"
    if ".." in parts:
        return f"{name!r} leads outside"
    if any((folder / each).is_symlink() for each in list(PurePosixPath(name).parents)[:-1]):
        return f"{name!r} leads through a link"
    return ""
