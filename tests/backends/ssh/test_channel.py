"""A connection to a host that is not what it should be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from paddock.backends.ssh.channel import Channel, HostError
from paddock.backends.ssh.command import Target

if TYPE_CHECKING:
    from pathlib import Path


def test_what_an_answer_does_not_say_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host's name, not as a crash."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho \'{"need": false}\'\nread line\necho \'{"re": "hello"}\'\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    channel = Channel(Target("h1"))
    try:
        with pytest.raises(HostError, match="h1: its answer does not say 'address'"):
            channel.ask("hello")["address"]
    finally:
        channel.close()


def test_an_answer_that_does_not_go_on_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen in the middle of one, or never meant to end it."""
    ssh = tmp_path / "ssh"
    half = '{"re": "hello", "bytes": 3}'
    ssh.write_text(f"#!/bin/sh\necho '{{\"need\": false}}'\nread line\necho '{half}'\nread line\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    channel = Channel(Target("h1"), answer_seconds=0.2)
    try:
        with pytest.raises(HostError, match="h1: it has not answered"):
            channel.ask("hello")
    finally:
        channel.close()


@pytest.mark.parametrize(
    ("shell", "message", "hint"),
    [
        ("echo welcome", "h1: it answers something else", "~/.bashrc"),
        ('[ "$last" = true ] || echo GPU build 7', "h1: /opt/py prints something", "--interpreter"),
    ],
    ids=["shell", "interpreter"],
)
def test_whoever_prints_before_we_speak_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, message: str, hint: str
) -> None:
    """A silent ~/.bashrc is no help where the wrapper around Python talks."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nfor last; do :; done\n{shell}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(HostError, match=message) as caught:
        Channel(Target("h1", python="/opt/py"))
    assert hint in caught.value.hint
