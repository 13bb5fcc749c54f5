"""Which cluster is chosen, who we say we are, and that a token that is replaced keeps working."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User, UserExec

from kube.scripted import Asked, ScriptedServer, answer, refusal
from paddock.errors import UsageError
from paddock.kube.client import PODS, KubeError
from paddock.kube.connect import TokenFile, find_config
from paddock.kube.http_client import open_client

if TYPE_CHECKING:
    from pathlib import Path

    from lightkube.config.kubeconfig import SingleConfig

POD = {"metadata": {"name": "a"}}


def kubeconfig(folder: Path, *names: str) -> str:
    """A kubeconfig with a context of each name, the first one current."""
    path = folder / "config"
    path.write_text(
        json.dumps({
            "current-context": names[0],
            "clusters": [{"name": n, "cluster": {"server": f"http://{n}:1"}} for n in names],
            "contexts": [{"name": n, "context": {"cluster": n}} for n in names],
        })
    )  # fmt: skip
    return str(path)


def account(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of a Pod's account, and the variables that every Pod has."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "namespace", "ca.crt"):
        (folder / name).write_text(name)
    return str(folder)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of any cluster, with an empty home."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_file_that_is_named_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--kubeconfig is said by the user now; $KUBECONFIG was said some time ago."""
    named = kubeconfig(tmp_path, "named")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    found = find_config(named, account=account(tmp_path, monkeypatch))
    assert found.cluster.server == "http://named:1"


def test_variable_comes_before_the_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with kubectl in a Pod: who sets KUBECONFIG means another cluster than the Pod's."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "variable"))
    found = find_config(account=account(tmp_path, monkeypatch))
    assert found.cluster.server == "http://variable:1"


def test_account_of_the_pod_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The operator runs in a Pod without any file; IPv6 addresses need brackets in a URL."""
    found = find_config(account=account(tmp_path, monkeypatch))
    assert found.cluster.server == "https://[fd00::1]:443"
    assert found.user is not None
    assert found.user.token_file == str(tmp_path / "token")


def test_context_may_be_chosen(tmp_path: Path) -> None:
    """One file often holds several clusters."""
    found = find_config(kubeconfig(tmp_path, "one", "two"), "two")
    assert found.cluster.server == "http://two:1"


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (None, ""),
        ("", ""),
        ("[", ""),
        ("{}", ""),
        ("[1]", ""),
        ('{"clusters": 3}', ""),
        (None, "x"),
    ],
)
def test_no_usable_configuration_says_what_to_give(
    tmp_path: Path, text: str | None, context: str
) -> None:
    """Whatever is wrong with the file, the user reads one sentence and no traceback."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    elif context:
        kubeconfig(tmp_path, "one")
    with pytest.raises(UsageError) as caught:
        find_config(str(path), context)
    assert str(path) in caught.value.message
    assert "--kubeconfig" in caught.value.hint
    assert ("get-contexts" in caught.value.hint) == bool(context)


def test_certificate_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """A kubeconfig that was copied without its files."""
    config = one(Cluster(server="https://a:1", certificate_auth=str(tmp_path / "none")), User())
    with pytest.raises(UsageError) as caught:
        open_client(config)
    assert "credentials" in caught.value.message


def one(cluster: Cluster, user: User | None) -> SingleConfig:
    """That configuration."""
    found = KubeConfig.from_one(cluster=cluster, user=user).get()
    assert found is not None
    return found


class Tokens:
    """A server that accepts one token, which may change; keeps those that came."""

    def __init__(self, good: str) -> None:
        self.good = good
        self.came: list[str] = []

    async def script(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        """Answer a pod, or 401."""
        self.came.append(asked.headers.get("authorization", "none"))
        accepted = self.came[-1] == f"Bearer {self.good}"
        script = answer(200, POD) if accepted else refusal(401, "Unauthorized", "Unauthorized")
        await script(asked, writer)


def asking(tokens: Tokens, user: User | None, between: Any = lambda: None) -> list[Any]:
    """What two calls of that user gave, with something done between them."""

    async def scenario() -> list[Any]:
        scripted = ScriptedServer(tokens.script)
        listener = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        client = open_client(one(Cluster(server=f"http://127.0.0.1:{port}"), user))
        results: list[Any] = []
        for _ in range(2):
            try:
                results.append((await client.get(PODS, "ml", "a")).metadata.name)
            except KubeError as error:
                results.append(error)
            between()
        await client.close()
        listener.close()
        scripted.hang_up()
        return results

    return asyncio.run(scenario())


def test_token_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """The kubelet writes a new token before the old one expires; nobody restarts the operator."""
    file, tokens = tmp_path / "token", Tokens("one")
    file.write_text("one\n")

    def replace() -> None:
        file.write_text("two\n")
        tokens.good = "two"

    assert asking(tokens, User(token_file=str(file)), replace) == ["a", "a"]
    assert tokens.came == ["Bearer one", "Bearer one", "Bearer two"]


def test_same_token_is_not_sent_twice(tmp_path: Path) -> None:
    """A refused account must not double the load on the server."""
    file, tokens = tmp_path / "token", Tokens("good")
    file.write_text("bad")
    results = asking(tokens, User(token_file=str(file)))
    assert [error.status for error in results] == [401, 401]
    assert tokens.came == ["Bearer bad"] * 2


def test_missing_token_is_an_error_of_the_call(tmp_path: Path) -> None:
    """It is KubeError like all others: the caller tries again, the file may come."""
    results = asking(Tokens("x"), User(token_file=str(tmp_path / "none")))
    assert [error.reason for error in results] == ["Unreachable"] * 2


def test_token_is_read_again_after_a_while(tmp_path: Path) -> None:
    """A token that is accepted although it expired would be reported as stale by the server."""
    now, file = [100.0], tmp_path / "token"
    file.write_text("one")
    auth = TokenFile(str(file), lambda: now[0])

    def sent() -> str:
        request = next(auth.auth_flow(httpx2.Request("GET", "http://a")))
        return str(request.headers["Authorization"])

    assert sent() == "Bearer one"
    file.write_text("two")
    assert sent() == "Bearer one"
    now[0] += 60.0
    assert sent() == "Bearer two"
    file.unlink()
    now[0] += 60.0
    assert sent() == "Bearer two"


def plugin(folder: Path, text: str, version: str) -> User:
    """A user whose token a program prints."""
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    api = f"client.authentication.k8s.io/{version}"
    return User(exec=UserExec(apiVersion=api, command=str(program)))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_token_of_a_plugin_is_used(tmp_path: Path, version: str) -> None:
    """Clouds give kubeconfigs with exec plugins; v1 is what they write since 2021."""
    told = (
        ""
        if version == "v1beta1"
        else 'case "$KUBERNETES_EXEC_INFO" in *v1beta1*) ;; *) exit 1;; esac\n'
    )
    text = told + """echo '{"status": {"token": "from-plugin"}}'"""
    assert asking(Tokens("from-plugin"), plugin(tmp_path, text, version)) == ["a", "a"]


@pytest.mark.parametrize("text", ["exit 3", "echo no json", "echo {}", "echo '{\"status\": {}}'"])
def test_broken_plugin_is_an_error_of_the_call(tmp_path: Path, text: str) -> None:
    """A login that ran out: the operator says so and goes on trying."""
    results = asking(Tokens("x"), plugin(tmp_path, text, "v1beta1"))
    assert [error.reason for error in results] == ["Unreachable"] * 2


def test_configuration_without_a_user_asks_without_credentials() -> None:
    """`kubectl proxy` needs none."""
    tokens = Tokens("x")
    results = asking(tokens, None)
    assert [error.status for error in results] == [401, 401]
    assert tokens.came == ["none"] * 2


def through_proxy(monkeypatch: pytest.MonkeyPatch, address: str, no_proxy: str) -> list[str]:
    """The Host headers that reach a proxy when that API server is asked."""

    async def scenario() -> list[str]:
        scripted = ScriptedServer(answer(200, POD))
        listener = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        client = open_client(one(Cluster(server=f"http://{address}"), None))
        with contextlib.suppress(KubeError):
            await client.get(PODS, "ml", "a")
        await client.close()
        listener.close()
        scripted.hang_up()
        return [asked.headers["host"] for asked in scripted.asked]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("address", "no_proxy", "reached"),
    [
        ("api.invalid:1", "", ["api.invalid:1"]),
        ("127.0.0.1:1", "10.0.0.0/8", ["127.0.0.1:1"]),
        ("127.0.0.1:1", "api.invalid, 127.0.0.0/8", []),
        ("127.0.0.1:1", "127.0.0.1", []),
        ("localhost:1", "localhost", []),
    ],
)
def test_proxy_is_used_unless_it_is_told_not_to(
    monkeypatch: pytest.MonkeyPatch, address: str, no_proxy: str, reached: list[str]
) -> None:
    """A Pod in a company has HTTPS_PROXY set, and NO_PROXY with the cluster's networks."""
    assert through_proxy(monkeypatch, address, no_proxy) == reached
