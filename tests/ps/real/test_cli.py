"""`paddock pserver` and `paddock ps` as processes, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddock.ps.client.client import Client
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.storage.export import read_npz
from ps.client.running import ROOT, processes

pytestmark = pytest.mark.real
KEYS = np.arange(1000)


def paddock(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`paddock ps WORDS`, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "paddock", "ps", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_day_in_the_life_of_two_servers(tmp_path: Path) -> None:
    """Train, look, save, shrink the log, kill -9, load elsewhere, export, publish."""
    with processes(2, tmp_path / "data", "--job=ads") as servers:
        env = {"PADDLE_PSERVERS_IP_PORT_LIST": servers.endpoints, "PADDLE_JOB_ID": "ads"}
        with Client(servers.endpoints, trainer=0, job="ads") as ps:
            ps.create(SparseSpec("words", 8, OptimizerSpec("adagrad", 0.1)))
            ps.push("words", KEYS, np.ones((1000, 8), np.float32))
            ps.flush()
            wanted = ps.pull("words", KEYS)
            digest = ps.digest()
            status = json.loads(paddock("status", "--json", env=env).stdout)["servers"]
            assert sum(one["rows"] for one in status) == 1000
            assert status[0]["trainers"]["members"][0]["trainer"] == 0
        assert paddock("save", str(tmp_path / "saved"), env=env).returncode == 0
        assert paddock("snapshot", env=env).returncode == 0
        servers.kill(1)
        down = paddock("status", env=env)
        assert down.returncode != 0 and servers.endpoints.split(",")[1] in down.stderr
        assert down.stderr.count("\n") == 1
        servers.start(1)
        with Client(servers.endpoints, trainer=0, job="ads") as ps:
            ps.create(SparseSpec("words", 8, OptimizerSpec("adagrad", 0.1)))
            assert ps.digest() == digest
    with processes(3, tmp_path / "more", "--job=ads") as servers:
        env["PADDLE_PSERVERS_IP_PORT_LIST"] = servers.endpoints
        loaded = paddock("load", str(tmp_path / "saved"), env=env)
        assert loaded.returncode == 0, loaded.stderr
        out = tmp_path / "words.npz"
        assert paddock("export", "--format", "npz", "--out", str(out), env=env).returncode == 0
        arrays = read_npz(out)
        order = np.argsort(arrays["words.keys"])
        assert (arrays["words.weights"][order] == wanted).all()
        published = paddock("publish", str(tmp_path / "serving"), "--json", env=env)
        assert json.loads(published.stdout)["version"] == "v-00000001"


def test_a_server_without_numba_says_that_it_is_slower(tmp_path: Path) -> None:
    """Before it is ready; its content is the same."""
    digests = []
    for name, env in (("with", {}), ("without", {"PADDOCK_PS_NUMBA": "0"})):
        with processes(1, tmp_path / name, env=env) as servers:
            with Client(servers.endpoints, trainer=0) as ps:
                ps.create(SparseSpec("words", 8, OptimizerSpec("adagrad", 0.1)))
                ps.push("words", KEYS, np.ones((1000, 8), np.float32))
                digests.append(ps.digest())
            servers.running[0].terminate()
            _, err = servers.running[0].communicate()
        assert ("numba is off (PADDOCK_PS_NUMBA=0): this server runs on numpy" in err) == bool(env)
    assert digests[0] == digests[1]


def test_a_witness_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    """One line when ready, exit code 0; a second one in its directory is refused."""
    command = [sys.executable, "-m", "paddock", "ps", "witness", "--port=0"]
    command += ["--data-dir", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    witness = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert witness.stdout is not None
    assert "witness is ready on 127.0.0.1:" in witness.stdout.readline()
    second = paddock("witness", "--port=0", "--data-dir", str(tmp_path))
    assert second.returncode == 125 and "in use by another witness" in second.stderr
    witness.terminate()
    witness.communicate(timeout=10)
    assert witness.returncode == 0
