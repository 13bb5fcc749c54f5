"""Bytes between a coordinator and a member: JSON lines, a handshake, optional signatures.

No input or output here; hashing and packing only.


    coordinator                                    member
    {"paddock": 2, "job", "nonce", "key"}   ->
                                            <-     {"paddock": 2, "job", "nonce", "mac"}
    {"welcome": true, "uid", "lease", "mac"} ->    (or {"refused", "hint", "code"})
    then envelopes (core/rendezvous/messages.py) both ways, one per line

With a job key both sides prove that they have it (HMAC-SHA256 over both nonces and the job id), and
every later line carries a signature over its direction, its number and its text, so lines can be
neither forged, repeated nor reordered. Without a key nothing is signed. No pickle anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import SERVICES, Host
from paddock.core.job import DEVICE_KINDS
from paddock.core.plan import MAX_PROCS
from paddock.core.rendezvous import messages
from paddock.core.rendezvous.messages import Budget, Envelope, Voters
from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

VERSION = 7
GREETING_LIMIT_BYTES = 4096
LINE_LIMIT_BYTES = 16 << 20
PACKED_FROM_BYTES = 8192  # below, a list of hosts is sent as it is
MAC_HEX = 32
LEASE_SECONDS_MAX = 1e6
SHOWN_LETTERS = 80
WORD_MAX = 1024  # a host's name and its pod's
TEXT_MAX = 8192  # has room for a path
NUMBER_MAX = 1 << 62
ROLES = ("ps", "worker", "heter")
# The numbers that a field of that type may hold (core/value.py); not a number is none of them.
RANGES = {
    "Port": (0, 65_535),
    "OpenPort": (1, 65_535),
    "Count": (0, NUMBER_MAX),
    "AttemptNumber": (-1, 1 << 40),
    "NodeRank": (0, MAX_PROCS),
    "RankOrNone": (-1, MAX_PROCS),
    "ExitCode": (0, 255),
    "SignalNumber": (0, 64),
    "Nanoseconds": (-NUMBER_MAX, NUMBER_MAX),
    "Seconds": (0, NUMBER_MAX),
}

_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_PARTS = (Budget, Exit, Host, Verdict, Voters)
_MESSAGES: tuple[type, ...] = (
    messages.Join, messages.Started, messages.Exited, messages.Stopped, messages.Leave,
    messages.CannotRun, messages.Warn, messages.Stalled, messages.LeaderConflict,
    messages.Heartbeat, messages.Start, messages.Committed, messages.Stop, messages.JobEnded,
    messages.Reject, messages.HandOver, messages.Notice, messages.HeartbeatAck,
)  # fmt: skip
_CLASSES: dict[str, type] = {c.__name__: c for c in (*_MESSAGES, *_PARTS)}
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("str", "Word", "WordOrNone", "VerdictKind", "Loss"), (str,)),
    **dict.fromkeys(("int", *RANGES), (int,)),
    **dict.fromkeys(("float", "Seconds"), (int, float)),
    "bool": (bool,),
    **{c.__name__: (c,) for c in _PARTS},
}


class WireError(PaddockError):
    """The other side does not speak this protocol, or has another key."""


class LineReader:
    """Cuts a byte stream into lines; refuses lines over a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, return the complete lines without their ends. Raises WireError."""
        whole = self._rest + data
        lines = whole.split(b"\n")
        self._rest = lines.pop()
        longest = max((len(line) for line in [*lines, self._rest]), default=0)
        if longest > self.limit_bytes:
            raise WireError(f"a line of over {self.limit_bytes} bytes came")
        return lines


class Signer:
    """Signs or checks the lines of one direction of a connection. No key: passes them on."""

    def __init__(self, session_key: bytes, direction: str) -> None:
        self._key = session_key
        self._direction = direction.encode()
        self._number = 0

    def sign(self, text: bytes) -> bytes:
        """Sign a line, ready to send."""
        return self._mac(text) + text + b"\n" if self._key else text + b"\n"

    def check(self, line: bytes) -> bytes:
        """The text of a line that came. Raises WireError when its signature is wrong."""
        if not self._key:
            return line
        text = line[MAC_HEX:]
        if not hmac.compare_digest(line[:MAC_HEX], self._mac(text)):
            raise WireError("a message with a wrong signature came")
        return text

    def _mac(self, text: bytes) -> bytes:
        self._number += 1
        head = b"%s %d " % (self._direction, self._number)
        return hmac.new(self._key, head + text, hashlib.sha256).hexdigest()[:MAC_HEX].encode()


# ------------------------------------------------------------------- messages


def encode(envelope: Envelope) -> bytes:
    """Encode an envelope as one line of JSON, without the line end."""
    plain = _plain(envelope.message)
    hosts = plain.get("hosts", ())
    if hosts:
        text = json.dumps(hosts, separators=(",", ":")).encode()
        if len(text) >= PACKED_FROM_BYTES:
            plain["hosts"] = _packed(text)
    return json.dumps(
        {"uid": envelope.uid, "in": envelope.attempt, **plain}, separators=(",", ":")
    ).encode()


def decode(text: bytes) -> Envelope:
    """Decode the envelope of a line. Raises WireError; never anything else."""
    try:
        item = _text_checked(text, json.loads(text))
        uid, attempt = item.pop("uid"), item.pop("in")
        if not (_fits(uid, "Word") and _fits(attempt, "AttemptNumber")):
            raise ValueError("it does not say what it belongs to")
        if isinstance(item.get("hosts"), str):
            item["hosts"] = _unpacked(item["hosts"])
        found = _value(item)
    except _UNREADABLE as error:
        raise WireError(f"a message that cannot be read came: {error}") from error
    if type(found) not in _MESSAGES:
        raise WireError("a line that is no message came")
    return Envelope(uid, attempt, found)


def decode_fields(cls: type[T], text: bytes) -> T:
    """The value in JSON of its fields; others are of a later version. Raises WireError."""
    try:
        found = json.loads(text)
        return _made(cls, {name: found[name] for name in cls.__annotations__ if name in found})
    except _UNREADABLE as error:
        raise WireError(f"no {cls.__name__}: {error}") from error


def _text_checked(text: bytes, found: Any) -> Any:
    """Return the parsed JSON, if every string in it is text."""
    if b"\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    return found


def _packed(text: bytes) -> str:
    """The deflated bytes of JSON, as text, for what every member of a large job gets.

    A list of 1,024 hosts becomes 20 times shorter, and with it what is signed and sent.
    """
    import binascii
    import zlib

    return binascii.b2a_base64(zlib.compress(text, 1), newline=False).decode("ascii")


def _unpacked(text: str) -> Any:
    """Undo ``_packed``; ValueError for anything else, and beyond the line limit."""
    import binascii
    import zlib

    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(binascii.a2b_base64(text), LINE_LIMIT_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not reader.eof:
        raise ValueError("a packed list is cut short or too long")
    return _text_checked(plain, json.loads(plain))


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain(x) for x in item]
    if type(item) in _CLASSES.values():
        fields = {n: _plain(getattr(item, n)) for n in type(item).__annotations__}
        return {"t": type(item).__name__, **fields}
    return item


def _value(item: Any) -> Any:
    if isinstance(item, list):
        return tuple(_value(x) for x in item)
    if not isinstance(item, dict):
        return item
    fields = dict(item)
    return _made(_CLASSES[fields.pop("t")], fields)


def _made(cls: type[T], fields: dict[str, Any]) -> T:
    """The value with those fields, all of them of their types."""
    made = {name: _value(content) for name, content in fields.items()}
    for name, wanted in cls.__annotations__.items():
        if name in made and not _fits(made[name], wanted):
            shown = repr(made[name])[:SHOWN_LETTERS]
            raise ValueError(f"{cls.__name__}.{name} is not of type {wanted}: {shown}")
    found = cls(**made)
    fault = _find_fault(found)
    if fault:
        raise ValueError(f"{cls.__name__} of {fault}")
    return found


def _fits(item: object, wanted: str) -> bool:
    """Return True if a value is of the type its field's annotation names."""
    if wanted.endswith(" | None") and item is None:
        return True
    wanted = wanted.removesuffix(" | None")
    kinds = _KINDS.get(wanted)
    if kinds is not None:
        return type(item) in kinds and _is_possible(item, wanted)
    assert wanted.startswith("tuple["), f"no message may have a field of type {wanted}"
    if type(item) is not tuple:
        return False
    inner = wanted[6:-1]
    if not inner.endswith(", ..."):  # written without "..." are only flat tuples
        parts = inner.split(", ")
        return len(item) == len(parts) and all(map(_fits, item, parts))
    one = inner[:-5]
    kinds = _KINDS.get(one)
    if kinds is not None:
        return set(kinds).issuperset(map(type, item)) and all(
            _is_possible(part, one) for part in item
        )
    return all(_fits(part, one) for part in item)


def _is_possible(item: Any, wanted: str) -> bool:
    """Return True if a value of the right kind is in the range of its field's type.

    A Word can be part of an environment and of a line for people.
    """
    if wanted in RANGES:
        low, high = RANGES[wanted]
        return bool(low <= item <= high)
    if wanted not in ("Word", "WordOrNone"):
        return True
    is_long = len(item) > WORD_MAX or (not item and wanted == "Word")
    return not is_long and item.isprintable() and " " not in item


def _find_fault(part: object) -> str:
    """The first impossible thing in a message, or in a value of it; "" when there is none."""
    if isinstance(part, messages.Leave):
        if part.lost not in messages.LOSSES:
            return f"a loss of '{part.lost}'"
        return "" if part.signal else "signal 0"
    if isinstance(part, messages.Warn):
        return f"{len(part.text)} letters" if len(part.text) > TEXT_MAX else ""
    if isinstance(part, messages.Start):
        counts = (len(part.hosts), len(part.keys), len(part.listen_ports))
        is_whole = counts[0] and len(set(counts)) == 1
        return "" if is_whole else "{} hosts, {} keys, {} listen ports".format(*counts)
    if isinstance(part, Voters):
        counts = (len(part.keys), len(part.addresses), len(part.listen_ports))
        return (
            ""
            if len(set(counts)) == 1
            else "{} keys, {} addresses, {} listen ports".format(*counts)
        )
    if isinstance(part, messages.HandOver):
        return "" if part.keys else "no keys"
    return _host_fault(part) if isinstance(part, Host) else ""


def _host_fault(host: Host) -> str:
    if host.device_kind not in DEVICE_KINDS:
        return f"device kind {host.device_kind!r}"
    if len(host.device_labels) != len(host.device_indices):
        return "devices without an index each"
    for role, stage, count in host.slots:
        if role not in ROLES or not 0 <= stage <= MAX_PROCS or not 0 <= count <= MAX_PROCS:
            return f"{count} processes of role {role!r}, stage {stage}"
    if len(host.ports) != host.nprocs or len(host.service_ports) != len(SERVICES):
        return f"{len(host.ports)} ports for {host.nprocs} processes"
    return ""


# ------------------------------------------------------------------ handshake


def prove(key: bytes, who: str, job_id: str, server_nonce: str, member_nonce: str) -> str:
    """The proof that ``who`` ("coordinator" or "member") has the key; "" without a key."""
    if not key:
        return ""
    text = "\0".join(("paddock", who, job_id, server_nonce, member_nonce))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def session_key(key: bytes, server_nonce: str, member_nonce: str) -> bytes:
    """The key that signs the lines of one connection; b"" without a job key."""
    if not key:
        return b""
    text = f"paddock session\0{server_nonce}\0{member_nonce}"
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def greeting(job_id: str, nonce: str, *, has_key: bool) -> bytes:
    return _line({"paddock": VERSION, "job": job_id, "nonce": nonce, "key": has_key})


def read_greeting(line: bytes, job_id: str, key: bytes) -> str:
    """The coordinator's nonce. Raises WireError when this is not our coordinator."""
    found = _object(line)
    if found.get("paddock") != VERSION or not isinstance(found.get("nonce"), str):
        raise WireError(
            "the program there is not a Paddock coordinator of this version",
            hint="choose another --master port, or the same Paddock version on every node",
        )
    if found.get("job") != job_id:
        raise WireError(
            f"the coordinator there runs job '{found.get('job')}', this node has job '{job_id}'",
            hint="give both the same --job-id, or another --master port",
        )
    if bool(found.get("key")) != bool(key):
        there, here = ("has a", "no") if found.get("key") else ("has no", "a")
        raise WireError(
            f"the coordinator {there} job key, this node has {here} key",
            hint="set the same PADDOCK_TOKEN (or --token-file) on every node",
        )
    return str(found["nonce"])


def answer(key: bytes, job_id: str, server_nonce: str, nonce: str) -> bytes:
    mac = prove(key, "member", job_id, server_nonce, nonce)
    return _line({"paddock": VERSION, "job": job_id, "nonce": nonce, "mac": mac})


def read_answer(line: bytes, key: bytes, job_id: str, server_nonce: str) -> str:
    """The member's nonce. Raises WireError with the reason to refuse it."""
    found = _object(line)
    nonce = found.get("nonce")
    if found.get("paddock") != VERSION or not isinstance(nonce, str) or not 8 <= len(nonce) <= 128:
        raise WireError("not a Paddock member of this version")
    if found.get("job") != job_id:
        raise WireError(
            f"this coordinator runs job '{job_id}', not '{found.get('job')}'",
            hint="give both the same --job-id, or another --master port",
        )
    if not hmac.compare_digest(
        str(found.get("mac", "")).encode(),
        prove(key, "member", job_id, server_nonce, nonce).encode(),
    ):
        raise WireError(
            "the job key is wrong", hint="set the same PADDOCK_TOKEN (or --token-file) everywhere"
        )
    return nonce


def welcome(
    key: bytes, job_id: str, server_nonce: str, nonce: str, uid: str, lease_seconds: float
) -> bytes:
    """The coordinator's acceptance, with its own proof."""
    mac = prove(key, "coordinator", job_id, server_nonce, nonce)
    return _line({"welcome": True, "uid": uid, "lease": lease_seconds, "mac": mac})


def refusal(error: PaddockError) -> bytes:
    return _line({"refused": error.message, "hint": error.hint, "code": error.exit_code})


def read_welcome(
    line: bytes, key: bytes, job_id: str, server_nonce: str, nonce: str
) -> tuple[str, float]:
    """Job uid and lease in seconds. Raises WireError when refused or when the proof is wrong."""
    found = _object(line)
    if "refused" in found:
        code = found.get("code")
        raise WireError(
            f"refused by the coordinator: {found['refused']}",
            hint=str(found.get("hint", "")),
            exit_code=code if isinstance(code, int) and 0 <= code <= 255 else 2,
        )
    wanted = prove(key, "coordinator", job_id, server_nonce, nonce)
    lease = found.get("lease")
    if (
        found.get("welcome") is not True
        or not isinstance(lease, (int, float))
        or not 0 < lease < LEASE_SECONDS_MAX  # this way round, NaN is refused too
    ):
        raise WireError("the coordinator's answer cannot be read")
    if not hmac.compare_digest(str(found.get("mac", "")).encode(), wanted.encode()):
        raise WireError("the coordinator does not have this job's key")
    return str(found.get("uid", "")), float(lease)


def _line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WireError(
            "the program there is not a Paddock coordinator or member",
            hint="is the --master port taken by another program? choose another port",
        )
    return found
