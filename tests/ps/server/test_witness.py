"""The witness's shell: registers on the disk, one process at a time, and the names of logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import PaddockError
from paddock.ps.replication import log_identity
from paddock.ps.replication.lease import LeaseReply, LeaseRequest, LeaseVerb
from paddock.ps.replication.log_identity import MemberFile
from paddock.ps.replication.witness import Witness, request_body
from paddock.ps.storage.files import read_json, write_json
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.values import value_from


def order(ask: LeaseVerb, server: int, *, version: int = 0, **facts: Any) -> dict[str, Any]:
    """An order as it comes over the wire."""
    request = LeaseRequest(ask, server, facts.pop("term", 0), version, 0.5, **facts)
    found: dict[str, Any] = json.loads(request_body("job/1-0", request))
    return found


def reply_from(answer: dict[str, Any]) -> LeaseReply:
    """The witness's answer, as it comes back over the wire."""
    reply: LeaseReply = value_from(LeaseReply, json.loads(json.dumps(answer)))
    return reply


def test_a_grant_survives_the_witness(tmp_path: Path) -> None:
    """After its restart nobody else is let in for a lease time, and the term goes on."""
    now = 100.0
    witness = Witness(tmp_path, lambda: now)
    granted = reply_from(witness.answer(order(LeaseVerb.TAKE, 7, is_first=True, endpoint="a:1")))
    assert granted.granted and granted.register.term == 1
    added = witness.answer(order(LeaseVerb.ADD, 7, term=1, version=1, peer=8))
    assert reply_from(added).register.in_sync == (7, 8)
    witness.close()

    witness = Witness(tmp_path, lambda: now)
    early = reply_from(witness.answer(order(LeaseVerb.TAKE, 8, version=2)))
    assert not early.granted and early.register.endpoint == "a:1"
    now = 102.0
    late = reply_from(witness.answer(order(LeaseVerb.TAKE, 8, version=2, endpoint="b:2")))
    assert late.granted and (late.register.term, late.register.in_sync) == (2, (8,))
    witness.close()


def test_a_renewal_writes_nothing_to_the_disk(tmp_path: Path) -> None:
    """There are several a second."""
    witness = Witness(tmp_path, lambda: 1.0)
    witness.answer(order(LeaseVerb.TAKE, 7, is_first=True))
    (path,) = tmp_path.glob("witness-*.json")
    path.unlink()
    renewed = reply_from(witness.answer(order(LeaseVerb.RENEW, 7, term=1, version=1)))
    witness.close()
    assert renewed.granted and not path.exists()


def test_two_witnesses_may_not_keep_one_register(tmp_path: Path) -> None:
    """Each would grant it."""
    first, second = Witness(tmp_path), Witness(tmp_path)
    first.open()
    with pytest.raises(PaddockError, match="in use by another witness"):
        second.answer(order(LeaseVerb.TAKE, 7, is_first=True))
    first.close()


def test_a_damaged_register_grants_nothing(tmp_path: Path) -> None:
    """A forgotten holder would be let in beside its successor."""
    witness = Witness(tmp_path)
    witness.answer(order(LeaseVerb.TAKE, 7, is_first=True))
    witness.close()
    (path,) = tmp_path.glob("witness-*.json")
    path.write_text(path.read_text().replace('"term": 1', '"term": 0'))
    again = Witness(tmp_path)
    with pytest.raises(PaddockError, match="checksum"):
        again.answer(order(LeaseVerb.TAKE, 9, is_first=True))
    again.close()


def test_a_register_of_the_version_before_is_read(tmp_path: Path) -> None:
    """There a term was an epoch; the next one is above it."""
    witness = Witness(tmp_path, clock=lambda: 0.0)
    witness.answer(order(LeaseVerb.TAKE, 7, is_first=True))
    witness.close()
    (path,) = tmp_path.glob("witness-*.json")
    stored, _ = read_json(path, "register")
    write_json(path, {**{n: v for n, v in stored.items() if n != "term"}, "epoch": 5})
    again = Witness(tmp_path, clock=lambda: 100.0)
    reply = again.answer(order(LeaseVerb.TAKE, 7, version=stored["version"]))
    again.close()
    assert reply["granted"] and reply["register"]["term"] == 6


@pytest.mark.parametrize(
    "change", [{"group": ""}, {"ask": "give"}, {"server": "x"}, {"term": None}]
)
def test_what_is_no_request_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """And leaves no file."""
    witness = Witness(tmp_path)
    with pytest.raises(RequestError, match="no request"):
        witness.answer({**order(LeaseVerb.TAKE, 7, is_first=True), **change})
    assert not list(tmp_path.glob("witness-*.json"))


@pytest.mark.parametrize(
    ("is_clean", "is_on_disk", "is_rebooted", "is_kept"),
    [
        (False, False, False, True),
        (False, False, True, False),
        (True, False, True, True),
        (False, True, True, True),
    ],
)
def test_a_log_keeps_its_name_unless_it_may_lack_records(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_clean: bool,
    is_on_disk: bool,
    is_rebooted: bool,
    is_kept: bool,
) -> None:
    """kill -9 loses nothing; a machine that went down may have."""
    said: list[str] = []
    file = MemberFile(tmp_path, said.append)
    name = file.open(is_empty=True, is_on_disk=is_on_disk)
    if is_clean:
        file.close()
    if is_rebooted:
        monkeypatch.setattr(log_identity, "boot_id", lambda: "another")
    again = MemberFile(tmp_path, said.append)
    assert (again.open(is_empty=False, is_on_disk=is_on_disk) == name) is is_kept
    assert bool(said) is not is_kept


@pytest.mark.parametrize("case", ["killed", "emptied", "rebooted"])
def test_an_empty_log_has_its_name_while_nothing_can_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A primary that dies before its first record comes back as itself; else nobody may serve."""
    segment = tmp_path / "log-00000000000000000001.bin"
    file = MemberFile(tmp_path, lambda line: None)
    file.prepare()
    segment.write_bytes(b"x")
    name = file.open(is_empty=True, is_on_disk=False)
    if case == "emptied":
        segment.unlink()
    if case == "rebooted":
        monkeypatch.setattr(log_identity, "boot_id", lambda: "another")
    again = MemberFile(tmp_path, lambda line: None)
    again.prepare()
    assert (again.open(is_empty=True, is_on_disk=False) == name) is (case == "killed")


def test_a_log_that_was_being_replaced_is_removed(tmp_path: Path) -> None:
    """Half of the primary's state is nobody's; a witness's registers stay."""
    (tmp_path / "log-00000000000000000001.bin").write_bytes(b"x")
    (tmp_path / "snap-00000000000000000005").mkdir()
    (tmp_path / "witness-a.json").write_text("{}")
    said: list[str] = []
    file = MemberFile(tmp_path, said.append)
    name = file.open(is_empty=False, is_on_disk=False)
    file.write(is_whole=False)
    again = MemberFile(tmp_path, said.append)
    again.prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member.json", "witness-a.json"]
    assert again.open(is_empty=True, is_on_disk=False) != name
    assert len(said) == 1
