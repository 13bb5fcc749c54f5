"""The files of deploy/ on a test's control plane, and jobs there, by the real kubectl."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.control.plane import ControlPlane

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
V1 = DEPLOY / "v1"
CRD = "paddlejobs.batch.paddlepaddle.org"
WAIT_SECONDS_MAX = 60.0


def install(plane: ControlPlane) -> None:
    """Apply deploy/v1 as the documents do, where it is not there already."""
    present = ("get", f"crd/{CRD}", "deployment/paddle-controller-manager", "-n", "paddle-system")
    if plane.kubectl(*present, check=False).returncode != 0:
        plane.kubectl("apply", "-f", V1)
        wait_served(plane)


def expect_soon(what: str, is_true: Callable[[], bool]) -> None:
    """Ask until it is true; fail after a minute."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_true():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS_MAX:g} s: {what}"


def wait_served(plane: ControlPlane) -> None:
    """Wait until jobs can be asked for; a definition is served a moment after it is accepted."""
    plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
    expect_soon("get pdj", lambda: plane.kubectl("get", "pdj", check=False).returncode == 0)


def create(
    plane: ControlPlane, namespace: str, found: dict[str, Any], *words: str
) -> tuple[int, str]:
    """kubectl create of one object: exit code, and all that was said."""
    text = json.dumps(found)
    done = plane.kubectl("create", "-n", namespace, "-f", "-", *words, stdin=text, check=False)
    return done.returncode, done.stdout + done.stderr


def make(plane: ControlPlane, namespace: str, found: dict[str, Any], **status: Any) -> None:
    """A job, with a status."""
    assert create(plane, namespace, found)[0] == 0
    if status:
        set_status(plane, namespace, found["metadata"]["name"], **status)


def set_status(plane: ControlPlane, namespace: str, name: str, **status: Any) -> None:
    """Write a status as the operator does."""
    patch = json.dumps({"status": status})
    words = ("--subresource=status", "--type=merge", "-p", patch)
    plane.kubectl("patch", "pdj", name, "-n", namespace, *words)
