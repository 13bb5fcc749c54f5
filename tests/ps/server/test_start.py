"""What a server says when it starts, and what keeps it from starting."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import UsageError
from paddock.ps.server.main import make_server, named_options, ready_line
from paddock.ps.server.options import read_options
from paddock.ps.spec import SparseSpec
from paddock.ps.storage import segment
from paddock.ps.storage.files import DamageError
from paddock.ps.wire import frames
from ps.client.running import ROOT, fleet, free_ports

# Runs a command line of paddock where a module cannot be imported.
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from paddock.cli.main import main
main(sys.argv[2:])
"""


def run_without(module: str, *words: str) -> tuple[int, str]:
    """Exit code and standard error of `paddock WORDS` without a module."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, module, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["pserver", "--port=0"], ["ps", "tables", "--endpoints=a:1"]])
def test_missing_numpy_is_named_with_the_extra(words: list[str]) -> None:
    """Exit code 2, no traceback."""
    code, err = run_without("numpy", *words)
    assert code == 2
    assert err == (
        "paddock: error: the parameter server needs numpy, which is not installed\n"
        "  hint: pip install 'paddock-train[ps]'\n"
    )


def test_help_needs_no_library() -> None:
    """Nor does a mistake in the words."""
    assert run_without("numpy", "ps", "save", "--help") == (0, "")
    assert run_without("numpy", "pserver", "--help") == (0, "")
    assert "is not an order" in run_without("numpy", "ps", "sav")[1]


def test_a_log_of_the_version_before_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed there: the paddock that wrote it can still save its tables."""
    with monkeypatch.context() as before:
        before.setattr("paddock.ps.wire.frames.VERSION", 3)
        before.setattr("paddock.ps.storage.segment._VERSION", 2)
        before.setattr("paddock.ps.storage.snapshot.FORMAT", 2)
        with fleet(1, data=tmp_path) as servers, servers.client() as ps:
            ps.create(SparseSpec("words", 2))
            assert servers.servers[0].snapshots is not None
            servers.servers[0].snapshots.take()
    (directory,) = {path.parent for path in tmp_path.rglob("log-*.bin")}
    names = sorted(path.name for path in directory.iterdir())
    log = b"".join(path.read_bytes() for path in sorted(directory.glob("log-*.bin")))
    options = read_options(["--port=0", f"--data-dir={directory}"], {})
    with pytest.raises(DamageError, match="has format version 2, this paddock reads 3") as refused:
        make_server(options)
    assert "paddock ps save" in refused.value.hint and "--load" in refused.value.hint
    assert sorted(path.name for path in directory.iterdir()) == names
    assert b"".join(path.read_bytes() for path in sorted(directory.glob("log-*.bin"))) == log


def test_who_raises_the_protocols_version_raises_the_logs() -> None:
    """Else records of before look like the torn end of a log, and all of it is cut."""
    assert (frames.VERSION, segment._VERSION) == (4, 3)


def test_the_ready_line_tells_the_place(tmp_path: Path) -> None:
    """Server, address, job, trainers and durability."""
    options = read_options(["--port=0", f"--data-dir={tmp_path}", "--job=ads"], {})
    server = make_server(options)
    line = ready_line(server, options)
    server.stop()
    assert server.engine.log is not None
    server.engine.log.close()
    assert line == (
        f"pserver 0 of 1 is ready on 127.0.0.1:{server.port} (job ads, 1 trainer, ack log)"
    )


def test_a_taken_port_is_one_error() -> None:
    """With the way to find who has it."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}: address already in use") as caught:
            make_server(read_options([f"--port={port}"], {}))
    assert f"sport = :{port}" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--token-file=/no"], "token file /no: No such file"),
        (["--token-file={empty}"], "is empty"),
        (["--tls-cert=/no"], "--tls-cert /no, --tls-key "),
        (["--tls-cert={empty}", "--tls-key={empty}"], "--tls-cert"),
        (["--bind=no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
    ],
)
def test_a_wrong_file_or_address_is_one_error(
    words: list[str], message: str, tmp_path: Path
) -> None:
    """Before the server is ready."""
    empty = tmp_path / "empty"
    empty.write_text("")
    words = [word.format(empty=empty) for word in words]
    with pytest.raises(UsageError, match=message):
        make_server(read_options([f"--port={free_ports(1)[0]}", *words], {}))


def test_a_second_server_in_one_data_directory_is_refused(tmp_path: Path) -> None:
    """Two would write one log."""
    with fleet(1, data=tmp_path) as servers:
        assert servers.servers[0].engine.log is not None
        with pytest.raises(Exception, match=str(tmp_path)):
            make_server(read_options(["--port=0", f"--data-dir={tmp_path / '0'}"], {}))


def test_a_server_that_comes_back_empty_is_refused(tmp_path: Path) -> None:
    """Training on would be training on new tables."""
    with fleet(1) as servers:
        ps = servers.client()
        ps.create(SparseSpec("words", 4))
        servers.stop_one(0)
        servers.restart(0)
        with pytest.raises(Exception, match="came back without its state"):
            ps.pull("words", [1])
        for peer in ps.peers:
            peer.close()


@pytest.mark.parametrize("is_pod", [True, False])
def test_in_a_pod_a_name_that_nobody_knows_yet_is_waited_for(
    is_pod: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pods start before the name server has their names; elsewhere it is a mistake."""
    known, asked = {"127.0.0.1"}, []
    ask = socket.getaddrinfo

    def publish(host: str, *args: Any, **more: Any) -> Any:
        asked.append(host)
        if len(asked) > 5:
            known.add("ps-1.job")
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ask("127.0.0.1", *args, **more)

    monkeypatch.setattr("socket.getaddrinfo", publish)
    monkeypatch.setattr("paddock.ps.server.main.NAME_PAUSE_SECONDS", 0.0)
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if is_pod else {}
    words = ["--port=7164", "--endpoints=ps-0.job:7164,ps-1.job:7164"]
    if not is_pod:
        with pytest.raises(UsageError, match="port 7164 is that of servers 0, 1"):
            named_options(words, env)
        return
    options = named_options(words, env)
    assert (options.index, options.bind) == (1, "ps-1.job")
    assert "waits for the address of ps-0.job, ps-1.job" in capsys.readouterr().err
    # Found by its number, it still needs an address to listen on.
    known.clear()
    asked.clear()
    assert named_options([*words, "--index=1"], env).bind == "ps-1.job" and len(asked) == 6
