"""`paddock ps`: every order against running servers, and every bad input."""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.cli.main import run
from paddock.ps.client.client import Client
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec, to_json
from paddock.ps.storage.checkpoint import list_checkpoints, open_checkpoint
from paddock.ps.storage.export import read_npz, read_safetensors
from paddock.ps.storage.serving import Serving
from ps.client.running import Fleet, fleet, free_ports
from schemas import mistakes

WORDS = SparseSpec(
    "words",
    4,
    OptimizerSpec("adagrad", 0.5),
    accessor=AccessorSpec(statistics=True, decay=0.5, delete_score=0.2),
)
BIAS = DenseSpec("bias", 10)
KEYS = np.array([-5, 1, 2, 2**62], np.int64)


@pytest.fixture(scope="module")
def ads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two servers of job "ads" with data; tests of this module read, or set what they read."""
    data = tmp_path_factory.mktemp("data")
    with fleet(2, "--job=ads", data=data) as servers:
        with servers.client(job="ads") as ps:
            train(ps)
        yield servers


def train(ps: Client) -> None:
    """Two tables with something in them."""
    ps.create(WORDS)
    ps.create(BIAS)
    ones = np.ones(len(KEYS), np.float32)
    ps.push("words", KEYS, np.ones((len(KEYS), 4), np.float32), shows=ones, clicks=ones)
    ps.push_dense("bias", np.ones(10, np.float32))
    ps.flush()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `paddock ps WORDS`; its code, standard output and standard error."""

    def order(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["ps", *map(str, words)])
        out, err = capsys.readouterr()
        err = "".join(x for x in err.splitlines(True) if not x.startswith("pserver: "))
        return code, out, err

    return order


def test_status_shows_each_server_and_the_trainers(ads: Fleet, said: Any) -> None:
    """A line per server, then the coordinator's view; the admin itself is no trainer."""
    code, out, err = said("status", "--endpoints", ads.endpoints)
    assert (code, err) == (0, "")
    head, zero, one, *rest = out.splitlines()
    assert head.split()[:4] == ["server", "endpoint", "role", "job"]
    assert zero.split()[:4] == ["0", f"127.0.0.1:{ads.ports[0]}", "primary", "ads"]
    assert one.split()[0] == "1"
    assert rest == ["async, 0 trainers:", "waiting for 1 trainer to join"]


def test_servers_are_found_by_the_log_directory(ads: Fleet, said: Any, tmp_path: Path) -> None:
    """endpoints.log, as paddock launch writes it."""
    text = "PADDLE_TRAINER_ENDPOINTS:\n127.0.0.1:1\nPADDLE_PSERVERS_IP_PORT_LIST:\n"
    servers = "".join(f"127.0.0.1:{port}\n" for port in ads.ports)
    (tmp_path / "endpoints.log").write_text(text + servers)
    code, out, err = said("tables", "--log_dir", tmp_path)
    assert (code, err) == (0, "")
    assert out == said("tables", "--endpoints", ads.endpoints)[1]


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (None, (), "endpoints.log cannot be read: No such file"),
        ("PADDLE_TRAINER_ENDPOINTS:\n127.0.0.1:1\n", (), "endpoints.log names no server"),
        ("", ("--endpoints", "h:1"), "--endpoints and --log-dir are given"),
    ],
)
def test_a_log_directory_without_servers_is_said(
    said: Any, tmp_path: Path, text: str | None, more: tuple[str, ...], message: str
) -> None:
    """Nothing is guessed."""
    if text is not None:
        (tmp_path / "endpoints.log").write_text(text)
    code, _, err = said("status", "--log_dir", tmp_path, *more)
    assert code == 2
    assert message in err


def test_status_as_json_has_every_fact(ads: Fleet, said: Any) -> None:
    """For programs."""
    code, out, _ = said("status", "--endpoints", ads.endpoints, "--json")
    assert mistakes("ps-status.json", json.loads(out)) == []
    servers = json.loads(out)["servers"]
    assert code == 0
    assert [one["server"] for one in servers] == [0, 1]
    assert sum(one["rows"] for one in servers) == len(KEYS)
    for one in servers:
        assert one["reachable"] and one["ack"] == "log" and one["lsn"] > 0
        assert one["pid"] == os.getpid() and one["log_bytes"] > 0 and one["connections"] >= 1


def test_status_names_a_server_that_is_not_there(ads: Fleet, said: Any) -> None:
    """The others are shown; exit code not zero."""
    gone = f"127.0.0.1:{free_ports(1)[0]}"
    code, out, err = said("status", "--endpoints", f"{ads.endpoints},{gone}")
    assert code == 125
    assert f"{gone}  unreachable" in out and "primary" in out
    assert err == f"paddock: error: cannot reach server {gone}: connection refused\n"
    code, out, _ = said("status", "--endpoints", f"{ads.endpoints},{gone}", "--json")
    assert code == 125
    assert mistakes("ps-status.json", json.loads(out)) == []
    assert json.loads(out)["servers"][2]["reachable"] is False


def test_status_says_who_is_waited_for(said: Any) -> None:
    """A trainer at a barrier, and one that has not come."""
    with fleet(1, "--num_gradient_servers=2") as servers, servers.client(trainers=2):
        _, out, _ = said("status", "--endpoints", servers.endpoints)
    assert "  trainer 0\n" in out
    assert "waiting for 1 trainer to join" in out


def test_tables_adds_up_over_the_servers(ads: Fleet, said: Any) -> None:
    """Rows and bytes of all, shards of each."""
    code, out, _ = said("tables", "--endpoints", ads.endpoints)
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert lines[1][:4] == ["bias", "dense", "10", "-"]
    assert lines[2][:4] == ["words", "sparse", "4", "4"]
    assert lines[2][-1] == "32+32"
    _, out, _ = said("tables", "--endpoints", ads.endpoints, "--json")
    bias, words = json.loads(out)["tables"]
    assert words["spec"] == json.loads(json.dumps(to_json(WORDS)))
    assert (words["rows"], bias["size"]) == (4, 10)


def test_endpoints_come_from_the_environment(
    ads: Fleet, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where a server's own environment is set."""
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", ads.endpoints)
    monkeypatch.setenv("TRAINING_ROLE", "PSERVER")
    assert said("tables")[0] == 0


def test_save_and_load_go_to_the_named_job(ads: Fleet, said: Any, tmp_path: Path) -> None:
    """Saving reads; loading changes tables, so it needs the right --job."""
    to = ["--endpoints", ads.endpoints]
    code, out, _ = said("save", tmp_path, *to, "--json")
    name = json.loads(out)["name"]
    assert code == 0 and list_checkpoints(tmp_path) == [name]
    assert open_checkpoint(tmp_path).job == "ads"
    code, _, err = said("load", tmp_path, *to)
    assert code == 2 and "is of job 'ads', this job is 'default'" in err
    code, _, err = said("load", tmp_path, *to, "--from-job", "ads")
    assert code == 2 and "this order is for job 'default'" in err and "--job ads" in err
    code, out, _ = said("load", tmp_path, *to, "--job", "ads")
    assert code == 0 and out.startswith(f"loaded {tmp_path / name}: step 1, bias, words")


def test_saved_deltas_are_kept_to_the_number_asked_for(
    ads: Fleet, said: Any, tmp_path: Path
) -> None:
    """--mode delta builds on the newest; --keep counts."""
    to = ["--endpoints", ads.endpoints, "--keep", 1]
    for mode in ("full", "delta", "full"):
        assert said("save", tmp_path, *to, "--mode", mode)[0] == 0
    assert len(list_checkpoints(tmp_path)) == 1


def test_a_snapshot_is_written_by_each_server(ads: Fleet, said: Any) -> None:
    """In its own data directory."""
    code, out, _ = said("snapshot", "--endpoints", ads.endpoints, "--json")
    assert code == 0 and len(json.loads(out)["lsns"]) == 2
    assert ads.data is not None and len(list(ads.data.glob("*/snap-*/manifest.json"))) >= 2


def test_shrink_drops_rows_of_low_score(said: Any) -> None:
    """All sparse tables, unless one is named; the count is told."""
    with fleet(2) as servers, servers.client() as ps:
        train(ps)
        to = ["--endpoints", servers.endpoints]
        told = [said("shrink", *to, "--json")[1] for _ in range(3)]
        assert [json.loads(one)["dropped"]["words"] for one in told] == [0, 0, 4]
        code, _, err = said("shrink", *to, "--table", "bias")
        assert code == 2 and "'bias' is dense" in err
        code, _, err = said("shrink", *to, "--table", "word")
        assert code == 2 and "no table 'word'" in err and "bias, words" in err


def test_an_npz_comes_back_as_it_went(ads: Fleet, said: Any, tmp_path: Path) -> None:
    """Exported, changed, imported: what trainers pull is what the file says."""
    to, path = ["--endpoints", ads.endpoints, "--job", "ads"], tmp_path / "t.npz"
    assert said("export", "--format", "npz", "--out", path, *to)[0] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["t.npz"]
    arrays = read_npz(path)
    assert sorted(arrays["words.keys"].tolist()) == sorted(KEYS.tolist())
    arrays["words.weights"] = np.arange(16, dtype=np.float32).reshape(4, 4)
    arrays["bias.weights"] = np.arange(10, dtype=np.float32)
    np.savez(path, **arrays)
    for table in ("words", "bias"):
        code, out, _ = said("import", "--format", "npz", "--in", path, "--table", table, *to)
        assert code == 0 and out.endswith("given to the servers\n")
    with ads.client(job="ads") as ps:
        ps.create(WORDS)
        ps.create(BIAS)
        assert (ps.pull("words", arrays["words.keys"]) == arrays["words.weights"]).all()
        assert (ps.pull_dense("bias") == arrays["bias.weights"]).all()


def test_safetensors_of_a_checkpoint_needs_no_server(ads: Fleet, said: Any, tmp_path: Path) -> None:
    """Only the tables asked for."""
    said("save", tmp_path / "saved", "--endpoints", ads.endpoints)
    out = tmp_path / "t.safetensors"
    words = ["export", "--format", "safetensors", "--out", out, "--table", "bias"]
    code, told, _ = said(*words, "--checkpoint", tmp_path / "saved", "--json")
    assert code == 0 and json.loads(told)["tables"] == ["bias"]
    assert [*read_safetensors(out)] == ["bias.weights"]
    assert not (tmp_path / "t.safetensors.tmp").exists()


def test_paddles_text_becomes_a_checkpoint_a_job_can_begin_with(said: Any, tmp_path: Path) -> None:
    """An old job's table, line by line; signed keys, shows and clicks kept; and back again.

    Weights go into a running server, too: a single one takes them in the order of the file.
    """
    old = tmp_path / "old"
    old.mkdir()
    lines = "18446744073709551611 0 0 0 3 1 0.5 0.25 1 2 3 0\n7 0 0 0 2 0 0.125 0.25 4 5 6 0\n"
    with gzip.open(old / "part-000-00000.gz", "wt") as file:
        file.write(lines)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(to_json(WORDS)), "utf-8")
    saved = tmp_path / "saved"
    words = ["import", "--format", "paddle", "--rule", "adagrad", "--in", old, "--table", "words"]
    code, out, err = said(*words, "--checkpoint", saved, "--spec", spec, "--job", "ads")
    assert (code, err) == (0, ""), out
    with fleet(1, "--job=ads") as servers, servers.client(job="ads") as ps:
        ps.load(saved)
        ps.create(WORDS)
        rows = [[0.5, 1, 2, 3], [0.125, 4, 5, 6]]
        assert ps.pull("words", [-5, 7]).tolist() == rows
        to = ["--endpoints", servers.endpoints, "--table", "words"]
        ps.set("words", [-5, 7], np.zeros((2, 4), np.float32))
        ps.flush()
        assert said(*words, *to, "--job", "ads")[0] == 0
        assert ps.pull("words", [-5, 7]).tolist() == rows
        form = ["--format", "paddle", "--rule", "naive"]
        assert said("export", *form, "--out", tmp_path / "new", *to)[0] == 0
        code, _, err = said("export", *form, "--out", tmp_path / "new", *to)
        assert code == 2 and "is there already" in err
    text = b"".join(gzip.decompress(p.read_bytes()) for p in (tmp_path / "new").iterdir()).decode()
    assert sorted(text.splitlines()) == [
        "18446744073709551611 0 0 0 3 1 0.5 1 2 3",
        "7 0 0 0 2 0 0.125 4 5 6",
    ]


def test_published_versions_are_served(ads: Fleet, said: Any, tmp_path: Path) -> None:
    """From running servers, and the next one from a checkpoint."""
    to = ["--endpoints", ads.endpoints]
    code, out, _ = said("publish", tmp_path / "serving", *to)
    assert code == 0 and out.startswith(f"published {tmp_path / 'serving' / 'v-00000001'}")
    with ads.client(job="ads") as ps:
        ps.create(WORDS)
        wanted = ps.pull("words", KEYS)
    serving = Serving(tmp_path / "serving")
    assert (serving.pull("words", KEYS) == wanted).all()
    said("save", tmp_path / "saved", *to)
    assert said("publish", tmp_path / "serving", "--checkpoint", tmp_path / "saved")[0] == 0
    assert serving.refresh()


def test_explain_has_a_sentence_per_strategy(said: Any) -> None:
    """No server is asked."""
    code, out, _ = said("explain", "--json")
    assert code == 0 and [*json.loads(out)] == ["sync", "half_async", "async", "geo", "staleness"]
    assert "3 steps" in said("explain", "staleness", "--staleness", 3)[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats"], "'stats' is not an order of paddock ps"),
        (["status"], "no server is named"),
        (["status", "--endpoints", "here"], "server endpoint 'here'"),
        (["status", "--endpoints", "a:1,a:1"], "a:1 is listed more than once"),
        (["status", "--endpoints", "a:1", "--timeout", "0"], "--timeout is 0"),
        (["status", "--endpoints", "a:1", "--timeout", "soon"], "soon"),
        (["status", "--endpoints", "a:1", "--token-file", "/no"], "token file /no: No such file"),
        (["status", "--endpoints", "a:1", "--tls-ca", "/no"], "--tls-ca /no: no such file"),
        (["status", "now", "--endpoints", "a:1"], "unexpected 'now'"),
        (["save", "--endpoints", "a:1"], "DIRECTORY is not given"),
        (["save", "x", "--mode", "half", "--endpoints", "a:1"], "half"),
        (["save", "x", "--keep", "0", "--endpoints", "a:1"], "--keep is 0"),
        (["export", "--format", "hdf5", "--out", "x"], "hdf5"),
        (["export", "--format", "npz", "--out", "x", "--checkpoint", "/no"], "in /no"),
        (["import", "--format", "npz", "--in", "x", "--table", "t", "--checkpoint", "y"], "--spec"),
        (["explain", "ssp"], "'ssp' is not one of its values"),
        (["explain", "staleness", "--staleness=-1"], "--staleness is -1"),
    ],
)
def test_bad_words_are_one_error(words: list[str], message: str, said: Any) -> None:
    """Exit code 2; nothing on standard output."""
    code, out, err = said(*words)
    assert (code, out) == (2, "")
    assert message in err and err.count("paddock: error:") == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"keys": [1, 1], "weights": np.zeros((2, 4))}, "1 keys are there twice"),
        ({"keys": [1, 2], "weights": np.zeros((2, 3))}, "weights of shape [2, 3]"),
        ({"keys": [1.0, 2.0], "weights": np.zeros((2, 4))}, "not int64"),
        ({"keys": [1], "weights": np.full((1, 4), np.nan)}, "4 weights are NaN or infinite"),
        ({"weights": np.zeros((1, 4))}, "has no array words.keys"),
        ({"keys": [1], "weights": np.zeros((1, 4), np.int32)}, "int32, not floats"),
    ],
)
def test_an_import_that_does_not_fit_changes_nothing(
    arrays: dict[str, Any], message: str, ads: Fleet, said: Any, tmp_path: Path
) -> None:
    """Told before the first row is sent."""
    path = tmp_path / "bad.npz"
    np.savez(path, **{name: np.array(value) for name, value in arrays.items()})
    before = [server.engine.lsn for server in ads.servers]
    to = ["--endpoints", ads.endpoints, "--job", "ads"]
    code, _, err = said("import", "--format", "npz", "--in", path, "--table", "words", *to)
    assert code == 2 and message in err
    assert [server.engine.lsn for server in ads.servers] == before


def test_servers_listed_in_another_order_are_refused(ads: Fleet, said: Any) -> None:
    """Rows would go to servers that do not own them."""
    backwards = ",".join(reversed(ads.endpoints.split(",")))
    code, _, err = said("tables", "--endpoints", backwards)
    assert code == 2 and "is server 1 of 2, here it is listed as 0 of 2" in err
    code, _, err = said("tables", "--endpoints", ads.endpoints.split(",")[0])
    assert code == 2 and "is server 0 of 2, here it is listed as 0 of 1" in err


def test_a_token_is_asked_for_and_checked(said: Any, tmp_path: Path) -> None:
    """The right one, none, and a wrong one."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret")
    wrong.write_text("guess")
    with fleet(1, f"--token-file={right}") as servers:
        to = ["--endpoints", servers.endpoints]
        assert said("status", *to, "--token-file", right)[0] == 0
        code, _, err = said("status", *to)
        assert code == 2 and "asks for a token" in err
        code, _, err = said("tables", *to, "--token-file", wrong)
        assert code == 2 and "token is not" in err


def test_a_server_that_says_nothing_is_named(said: Any) -> None:
    """It listens, and is stopped or hung."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        for order in ("status", "tables"):
            code, _, err = said(order, "--endpoints", endpoint, "--timeout", 0.2)
            assert code == 125 and f"{endpoint}: no answer came in time" in err


def test_an_admin_is_no_trainer(said: Any) -> None:
    """It neither joins nor is waited for: the coordinator never hears of it."""
    with fleet(1) as servers:
        to = ["--endpoints", servers.endpoints]
        assert said("status", *to)[0] == 0
        assert said("tables", *to)[0] == 0
        assert servers.servers[0].coordinator is not None
        assert servers.servers[0].coordinator.group is None


def test_a_shard_moves_and_comes_back(said: Any) -> None:
    """Content stays; rebalance makes the servers even again."""
    with fleet(2) as servers, servers.client() as ps:
        train(ps)
        wanted = ps.digest()
        to = ["--endpoints", servers.endpoints]
        code, out, err = said("move", *to, "--table", "words", "--shard", 3, "--to", 1)
        assert code == 0 and "words: shard 3 from server 0 to 1" in out, err
        assert ps.digest() == wanted
        assert json.loads(said("tables", *to, "--json")[1])["tables"][1]["servers"]["1"] == 33
        code, out, _ = said("rebalance", *to, "--json")
        assert code == 0 and len(json.loads(out)["moved"]["words"]) == 1
        assert said("rebalance", *to)[1] == "bias: nothing to move\nwords: nothing to move\n"
        assert ps.digest() == wanted
        code, _, err = said("move", *to, "--table", "words", "--shard", 3, "--to", 7)
        assert code == 2
        code, _, err = said("rebalance", *to, "--job", "news")
        assert code == 2 and "this order is for job 'news'" in err
