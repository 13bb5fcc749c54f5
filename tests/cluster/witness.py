"""Writes down every pod that a namespace has had, whatever happens to the API server meanwhile."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.control.plane import ControlPlane

PATH = r"{.metadata.uid} {.metadata.name} {.metadata.labels.batch\.paddlepaddle\.org/attempt}"
PAUSE_SECONDS = 0.1


class Witness:
    """kubectl get pods --watch, again whenever it ends; a context manager."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        """Nothing is watched yet."""
        self._plane = plane
        self._words = ["kubectl", "get", "pods", "-n", namespace, "--watch", "-o",
                       f'jsonpath={PATH}{{"\\n"}}']  # fmt: skip
        self._is_over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen: dict[str, tuple[str, str]] = {}  # uid: (pod, attempt)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join(10.0)

    def twice(self) -> dict[tuple[str, str], int]:
        """What was made more than once in one attempt: (pod, attempt) and how often."""
        made = list(self.seen.values())
        return {each: made.count(each) for each in made if made.count(each) > 1}

    def _watch(self) -> None:
        while not self._is_over.is_set():
            with subprocess.Popen(
                self._words, env=self._plane.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            ) as process:  # fmt: skip
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    uid, name, attempt = [*line.split(), "", ""][:3]
                    self.seen[uid] = (name, attempt)
            self._is_over.wait(PAUSE_SECONDS)
