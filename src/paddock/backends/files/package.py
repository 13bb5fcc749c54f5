"""A user's directory as a package: its entries, and their bytes for the way to a host.

    package = scan(directory, env)                     reads, hashes, refuses
    deliver(ask, package, package.manifest, there)     to a host that answers node/files.py

Files that git and .paddockignore name (ignore.py), .git, .paddock at the top, the logs of jobs that
ran there, Paddock's caches, records and job directories, the files that our own output goes to and
the functions of other submissions (paddock-call-*) are left out; sockets, pipes and devices are
skipped and counted. A file that grows meanwhile is sent as it was listed: its first bytes. One that
another program changes is an error. The home directory and keys (own.py) are refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from paddock.backends.files.hashes import Hashes, key_of
from paddock.backends.files.ignore import (
    OF_GIT,
    OURS,
    IgnoreRule,
    IgnoreRules,
    ignored_by_git,
    read_rules,
    translate,
)
from paddock.backends.files.own import (
    SECRETS,
    home_problems,
    is_job,
    own_folders,
    secret_problem,
)
from paddock.backends.node.files import split_hashes
from paddock.backends.node.manifest import (
    RESERVED,
    PackageEntry,
    PackageManifest,
    changed_problem,
    leads_outside,
    make_manifest,
    raw,
    shown,
)
from paddock.backends.node.place import chunks
from paddock.backends.node.store import CHUNK_BYTES, HEAD_BYTES, frame_head, size_text
from paddock.backends.types import Submission
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.watch.meter import ProgressMeter

# One request to a host: its line, and its body of "bytes" bytes. Gives the answer's, or
# raises PaddockError with the refusal of the host.
Ask = Callable[[Mapping[str, Any], Iterable[bytes]], tuple[Mapping[str, Any], bytes]]

Entries = dict[str, tuple[PackageEntry, os.stat_result]]  # by path
LIMIT_BYTES = 2 << 30
LIMIT_FILES = 100_000
LARGEST_SHOWN = 5
ROUNDS = 3  # of placing: before, after, and once more if a host trimmed its store in between
# Logs of a job that ran here: there they would be told as the new job's own.
OLD_LOGS = re.compile(
    rb"log/(\.paddock|(worker|server|heter)log\.\d+(\.times)?|console(-\d+)?\.log"
    rb"|(endpoints|launcher)\.log|latest|runs/[a-z0-9-]+-[0-9a-f]{4})"
)
CALL_FOLDER = re.compile(rb"paddock-call-[0-9a-f]{8}")  # of a function that paddock.submit sends
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Package:
    """A directory that was read. left_out: how many files and directories were ignored.

    specials: how many sockets, pipes and devices were skipped.
    """

    root: bytes
    manifest: PackageManifest
    left_out: int = 0
    specials: int = 0

    def __str__(self) -> str:
        ignored = f", {self.left_out:,} ignored" if self.left_out else ""
        if self.specials:
            ignored += f", {self.specials:,} socket{'s' * (self.specials != 1)} or pipes skipped"
        total = size_text(self.manifest.total_bytes)
        count = len(self.manifest.files)
        return f"{count:,} file{'s' * (count != 1)}, {total}{ignored}"

    def open(self, entry: PackageEntry) -> int:
        """Return a descriptor of a file of the package. Raises OSError."""
        return os.open(os.path.join(self.root, raw(entry.path)), READ_FLAGS)

    def read(self, entry: PackageEntry) -> bytes:
        """Return the content of a file. Raises UsageError if it has changed since the scan."""
        try:
            data = b"".join(chunks(self.open(entry), entry.size))
        except OSError as error:
            raise UsageError.of([_unreadable(entry.path, error)]) from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise UsageError.of([changed_problem(entry.path)])
        return data

    def frames(self, hashes: Iterable[str], changed: list[str]) -> Iterator[bytes]:
        """Yield contents by their hashes as frames for a host (node/store.py).

        changed: gets the paths of files that have changed. Their frames keep the announced size, so
        that the channel stays in step; the hash does not match, and the host rejects them.
        """
        by_hash = {entry.sha256: entry for entry in self.manifest.files}
        for sha256 in hashes:
            entry = by_hash[sha256]
            yield frame_head(sha256, entry.size)
            seen = hashlib.sha256()
            left = entry.size
            with suppress(OSError):  # it is gone: padding follows, and the hash differs
                for chunk in chunks(self.open(entry), entry.size):
                    seen.update(chunk)
                    left -= len(chunk)
                    yield chunk
            while left:
                padding = bytes(min(left, CHUNK_BYTES))
                left -= len(padding)
                yield padding
            if seen.hexdigest() != sha256:
                changed.append(entry.path)


def code_meter(submission: Submission) -> ProgressMeter:
    """The progress meter of a submission's code; none with --json."""
    return ProgressMeter("reading code", unit=size_text, is_quiet="json" in submission.extra)


def scan(
    directory: str,
    env: Mapping[str, str],
    *,
    program: str = "",
    data: str = "",
    has_logs: bool = False,
    jobs: str = "",
) -> Package:
    """Read a directory. Raises UsageError with every entry that cannot be sent.

    program: of the job; if it is in a paddock-call-*, this one is sent although it is ignored.
    data: a glob; files that it matches are sent although they are ignored. has_logs: the package
    becomes the job's directory, in which log/ is a directory. jobs: where the site's jobs have
    their directories; none of them is sent if it is on this machine.
    """
    root = os.path.realpath(os.fsencode(directory))
    if not os.path.isdir(root):
        what = "is no directory" if os.path.exists(root) else "does not exist"
        raise UsageError(f"the package {shown(directory)} {what}")
    walk = _Walk(root, env, _data_patterns(data), os.fsencode(program.partition("/")[0]))
    refuse([*home_problems(root, env)])
    walk.run(own_folders(env, jobs))
    found = walk.found
    _check_limits(directory, found)
    links = {e.path: e.target for e, _ in found.values() if e.kind == "link"}
    for path in links:
        if leads_outside(path, links):
            what = f"the link {shown(path)} leads outside of the package, or round in a circle:"
            hint = "copy what it leads to into the package, or name it in .paddockignore"
            walk.problems.append(Problem(f"{what} {shown(links[path])}", hint))
    if has_logs and "log" in found and found["log"][0].kind == "file":
        what = "log is a file, and the job's logs go into a directory of that name"
        walk.problems.append(Problem(what, "rename it, or name it in .paddockignore"))
    hashes = Hashes(root, env)
    entries = []
    for entry, status in found.values():
        try:
            entries.append(_hashed(root, entry, status, hashes))
        except UsageError as error:
            walk.problems += error.problems
    hashes.keep()
    refuse(walk.problems)
    return Package(root, make_manifest(entries), len(walk.left_out), walk.specials)


def left_behind(
    directory: str, env: Mapping[str, str], *, program: str = "", data: str = "", jobs: str = ""
) -> list[str]:
    """Return what scan() leaves out, in order; a directory that is ignored whole ends with "/".

    Reads no file but those with rules: a plan of many files must not take long.
    """
    root = os.path.realpath(os.fsencode(directory))
    walk = _Walk(root, env, _data_patterns(data), os.fsencode(program.partition("/")[0]))
    walk.run(own_folders(env, jobs))
    return sorted(map(_text, walk.left_out))


def deliver(
    ask: Ask,
    package: Package,
    manifest: PackageManifest,
    directory: str,
    take: Callable[[list[str]], None] | None = None,
) -> int:
    """Make a directory on a host. Returns how many bytes had to be sent. Raises PaddockError.

    manifest: the package's, or one host's share of it. take: lets the host get missing
    contents from another host first; it is called once.
    """
    packed = manifest.pack()
    sent = 0
    for _ in range(ROUNDS + (take is not None)):
        request = {"op": "place", "directory": directory, "bytes": len(packed)}
        row, body = ask(request, [packed])
        if row.get("placed"):
            return sent
        hashes = split_hashes(body)
        if not hashes or not manifest.blobs.keys() >= set(hashes):
            raise PaddockError("the host asks for files that it was not told of")
        if take is not None:
            take(hashes)
            take = None
            continue
        sent += _put(ask, package, hashes)
    raise PaddockError("the host loses files as fast as they come: is its cache being emptied?")


def _put(ask: Ask, package: Package, hashes: list[str]) -> int:
    changed: list[str] = []
    blobs = package.manifest.blobs
    size = sum(HEAD_BYTES + blobs[each] for each in hashes)
    try:
        ask({"op": "put", "bytes": size}, package.frames(hashes, changed))
    except PaddockError as error:
        if changed:
            raise UsageError.of([changed_problem(path) for path in changed]) from error
        raise
    return size


@dataclass
class _Walk:
    """The walk of a directory: every entry that is not ignored, by path, and its status."""

    root: bytes
    env: Mapping[str, str]
    data: list[re.Pattern[bytes]]
    program: bytes = b""  # the first name of its path
    found: Entries = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: list[bytes] = field(default_factory=list)
    specials: int = 0
    by_git: set[bytes] = field(default_factory=set)
    own_output: set[tuple[int, int]] = field(default_factory=set)  # device and inode

    def run(self, own: Sequence[str]) -> None:
        """Fill `found`; stop early far beyond the limits. own: Paddock's directories."""
        output: tuple[int | str, ...] = (1, 2)
        for file in (*output, *own):  # they change with each printed line
            with suppress(OSError):  # it is closed
                status = os.stat(file)
                self.own_output.add((status.st_dev, status.st_ino))
        passed: Entries = {}  # ignored, but data may be below
        todo = [(b"", IgnoreRules(), False, False)]
        while todo and len(self.found) <= 2 * LIMIT_FILES:
            base, rules, is_passed, has_git = todo.pop()
            try:
                listing = sorted(os.scandir(os.path.join(self.root, base)), key=lambda e: e.name)
            except OSError as error:
                self.problems.append(_unreadable(_text(base.rstrip(b"/")), error))
                continue
            names = {each.name for each in listing}
            if not base or b".git" in names:  # git does not look into a repository within one
                found = ignored_by_git(os.path.join(self.root, base))
                has_git = found is not None
                self.by_git.update(base + each for each in found or ())
            rules = _rules_of(self.root, base, names - {OF_GIT} if has_git else names, rules)
            for each in listing:
                path = base + each.name
                if each.name == b".git" or path == RESERVED.encode():
                    continue
                is_directory = each.is_dir(follow_symlinks=False)
                name = path + b"/" if is_directory else path
                verdict = rules.verdict(path, is_directory=is_directory)
                is_ignored = is_passed or verdict
                if is_ignored is None:
                    is_ignored = name in self.by_git
                if CALL_FOLDER.fullmatch(path.partition(b"/")[0]):
                    is_ignored = path.partition(b"/")[0] != self.program
                is_data = self._may_be_data(path, is_directory=is_directory)
                if OLD_LOGS.fullmatch(path) or (is_ignored and not is_data):
                    if not is_passed:
                        self.left_out.append(name)
                    continue
                entry = self._entry(path, each)
                if entry is None:
                    continue
                is_own = (entry[1].st_dev, entry[1].st_ino) in self.own_output
                if is_own or (is_directory and is_job(each.path)):
                    self.left_out.append(name)
                    continue
                if each.name in SECRETS and not is_ignored and verdict is None:
                    self.problems.append(secret_problem(entry[0].path))
                    continue
                if is_directory:
                    (passed if is_ignored else self.found)[entry[0].path] = entry
                    todo.append((path + b"/", rules, is_ignored, has_git))
                    continue
                for at, byte in enumerate(entry[0].path):
                    if byte == "/" and entry[0].path[:at] in passed:
                        self.found[entry[0].path[:at]] = passed[entry[0].path[:at]]
                self.found[entry[0].path] = entry

    def _may_be_data(self, path: bytes, *, is_directory: bool) -> bool:
        if not self.data:
            return False
        if not is_directory:
            return self.data[-1].fullmatch(path) is not None
        depth = path.count(b"/")
        return depth < len(self.data) - 1 and self.data[depth].fullmatch(path) is not None

    def _entry(
        self, path: bytes, each: os.DirEntry[bytes]
    ) -> tuple[PackageEntry, os.stat_result] | None:
        text = _text(path)
        try:
            status = each.stat(follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if kind == stat.S_IFREG:
                return PackageEntry(text, "file", mode, status.st_size), status
            if kind == stat.S_IFDIR:
                return PackageEntry(text, "dir", mode), status
            if kind == stat.S_IFLNK:
                return PackageEntry(text, "link", target=_text(os.readlink(each.path))), status
        except OSError as error:
            self.problems.append(_unreadable(text, error))
            return None
        self.specials += 1
        return None


def _data_patterns(data: str) -> list[re.Pattern[bytes]]:
    """Return the pattern of the glob, after the patterns of the directories that lead there."""
    parts = raw(data).strip(b"/").split(b"/") if data else []
    heads = [b"/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return [translate(head) for head in heads]


def _rules_of(root: bytes, base: bytes, names: set[bytes], above: IgnoreRules) -> IgnoreRules:
    rules: list[IgnoreRule] = []
    for name in (OF_GIT, OURS):  # in this order: ours has the last word
        if name not in names:
            continue
        try:
            with open(os.open(os.path.join(root, base, name), READ_FLAGS), "rb") as file:
                rules += read_rules(file.read())
        except OSError:
            continue  # a link or a directory of that name: git passes over it, too
    return IgnoreRules(base, tuple(rules), above) if rules else above


def _hashed(
    root: bytes, entry: PackageEntry, status: os.stat_result, hashes: Hashes
) -> PackageEntry:
    """Return the entry with its content's hash. Raises UsageError when it changes meanwhile."""
    if entry.kind != "file":
        return entry
    sha256 = hashes.find(status)
    if sha256 is None:
        try:
            path = os.path.join(root, raw(entry.path))
            seen = hashlib.sha256()
            for chunk in chunks(os.open(path, READ_FLAGS), entry.size):
                seen.update(chunk)
            after = os.stat(path, follow_symlinks=False)
        except FileNotFoundError as error:  # since it was listed
            raise UsageError.of([changed_problem(entry.path)]) from error
        except OSError as error:
            raise UsageError.of([_unreadable(entry.path, error)]) from error
        is_same = key_of(after) == key_of(status)
        has_grown = os.path.samestat(after, status) and after.st_size > status.st_size
        if not is_same and not has_grown:
            raise UsageError.of([changed_problem(entry.path)])
        sha256 = seen.hexdigest()
        if is_same:
            hashes.remember(after, sha256)
    return PackageEntry(entry.path, "file", entry.mode, entry.size, sha256)


def _check_limits(directory: str, found: Mapping[str, tuple[PackageEntry, os.stat_result]]) -> None:
    sizes = {e.path: e.size for e, _ in found.values() if e.kind == "file"}
    total = sum(sizes.values())
    if total <= LIMIT_BYTES and len(found) <= LIMIT_FILES:
        return
    if total > LIMIT_BYTES:
        what = f"{size_text(total)}; the limit is {size_text(LIMIT_BYTES)}"
        rows = sorted(sizes.items(), key=lambda row: -row[1])[:LARGEST_SHOWN]
        largest = ", ".join(f"{shown(path)} ({size_text(size)})" for path, size in rows)
    else:
        what = f"{len(found):,} files and directories; the limit is {LIMIT_FILES:,}"
        counts: dict[str, int] = {}
        for path in found:
            head = path.rpartition("/")[0] or "."
            counts[head] = counts.get(head, 0) + 1
        many = sorted(counts.items(), key=lambda row: -row[1])[:LARGEST_SHOWN]
        largest = ", ".join(f"{shown(path)} ({count:,})" for path, count in many)
    raise UsageError(
        f"the package {shown(directory)} has {what}; the largest: {largest}",
        hint="name in .paddockignore what the job does not need, or put it on the hosts once and"
        " use --workspace",
    )


def _unreadable(path: str, error: OSError) -> Problem:
    return Problem(
        f"{shown(path) if path else 'the package'} cannot be read: {error.strerror}",
        "make it readable, or name it in .paddockignore",
    )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
