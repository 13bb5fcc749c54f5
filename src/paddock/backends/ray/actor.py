"""The actor on a node of Ray: runs the program of backends/node as a subprocess, and passes bytes.

It travels by value, and needs the standard library and Ray only: the cluster has no Paddock. One
that is made in a placement group, a holder, holds the resources of a job, and keeps the session
that has started the job's launcher: whatever ends the actor, the job ends on that node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

CHUNK_BYTES = 1 << 20
READ_SECONDS = 20.0  # of one call
END_SECONDS = 5.0
ROUND_SECONDS = 0.5
UNKEPT_SECONDS = 120.0  # of a holder that nobody calls
ERRORS_BYTES = 1 << 14
ALIVE = ("starting", "running", "stopping")  # as in types.py: this file travels alone
# Names that Ray sets for the devices it has given. Where none were asked for, it sets nothing.
VISIBLE = re.compile(r"VISIBLE_(DEVICES|CORES|CHIPS|MODULES)$|DEVICE_SELECTOR$|^(RBLN|FURIOSA)_DEV")
HIDDEN = {"GPU": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
          "NPU": ("ASCEND_RT_VISIBLE_DEVICES",)}  # fmt: skip


class HeldProgram:
    """A program that answers requests."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Any) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self.errors = process, errors
        self.input, self.output = process.stdin, process.stdout
        self.reading: asyncio.Task[bytes] | None = None
        self.is_kept = False

    async def write(self, data: bytes) -> None:
        self.input.write(data)
        await self.input.drain()

    async def read(self) -> bytes | None:
        """Return what has come, b"" at the end; None when nothing comes for READ_SECONDS."""
        task = self.reading = self.reading or asyncio.ensure_future(self.output.read(CHUNK_BYTES))
        done, _ = await asyncio.wait({task}, timeout=READ_SECONDS)
        if not done:
            return None
        self.reading = None if self.reading is task else self.reading
        return task.result()

    async def ask(self, request: dict[str, Any]) -> Any:
        """Return the answer to a request, which is one line. Raises OSError, ValueError."""
        await self.write(json.dumps(request).encode() + b"\n")
        said = b""
        while b"\n" not in said:
            if not (part := await self.read()):
                raise OSError("the program does not answer")
            said += part
        return json.loads(said.splitlines()[0])

    async def end(self) -> tuple[int, str]:
        """End the program; return its code and its last words."""
        with contextlib.suppress(OSError):
            self.input.close()
        try:
            code = await asyncio.wait_for(self.process.wait(), END_SECONDS)
        except asyncio.TimeoutError:
            self.process.kill()
            code = await self.process.wait()
        with self.errors:
            said = os.pread(self.errors.fileno(), ERRORS_BYTES, 0)
        return code, said.decode("utf-8", "replace")


class NodeActor:
    """The sessions on one node; a holder has but one."""

    def __init__(self, group: str = "") -> None:
        """group: the placement group of a detached job, which is removed unless keep() is called.

        hello() puts that off: its caller may still start the job.
        """
        self._called_at = time.monotonic()
        self._sessions: list[HeldProgram | None] = []
        self._request: dict[str, Any] = {}
        self._is_over = False
        self._asking = asyncio.Lock()
        _be_as_the_raylet()
        if group:
            threading.Thread(target=self._release, args=(group,), daemon=True).start()

    async def hello(self) -> str:
        """Return the Python of Ray's workers here."""
        self._called_at = time.monotonic()
        return sys.executable

    async def open(self, command: str) -> int:
        """Start a program by a shell command; return the session's number."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - HeldProgram.end closes it
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdin=asyncio.subprocess.PIPE, env=environment(),
            stdout=asyncio.subprocess.PIPE, stderr=errors, limit=CHUNK_BYTES,
            cwd=os.path.expanduser("~"), start_new_session=True,
        )  # fmt: skip
        self._sessions.append(HeldProgram(process, errors))
        return len(self._sessions) - 1

    async def write(self, number: int, data: bytes) -> None:
        if (session := self._sessions[number]) is not None and not session.is_kept:
            await session.write(data)

    async def read(self, number: int) -> bytes | None:
        session = self._sessions[number]
        return b"" if session is None or session.is_kept else await session.read()

    async def close(self, number: int) -> tuple[int, str]:
        """End a session, unless the job needs it."""
        session = self._sessions[number]
        if session is None or session.is_kept:
            return 0, ""
        self._sessions[number] = None
        return await session.end()

    async def keep(self, request: dict[str, Any], others: Sequence[str], group: str) -> None:
        """Hold the job's resources until it has ended on all nodes.

        request: the question for its status here. others: names of the other holders.
        """
        assert self._sessions[0] is not None
        self._sessions[0].is_kept, self._request = True, request
        self._watching = asyncio.ensure_future(self._watch(others, group))

    async def is_over(self) -> bool:
        """Return True once the job has ended here: it is asked now."""
        async with self._asking:
            if self._request and not self._is_over:
                session = self._sessions[0]
                assert session is not None
                try:
                    self._is_over = (await session.ask(self._request)).get("state") not in ALIVE
                except (OSError, ValueError):
                    self._is_over = True
            return self._is_over

    async def _watch(self, others: Sequence[str], group: str) -> None:
        import ray

        while not await self.is_over():
            await asyncio.sleep(ROUND_SECONDS)
        for name in others:
            # That of a lost node has gone.
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                while not await ray.get_actor(name).is_over.remote():
                    await asyncio.sleep(ROUND_SECONDS)
        _remove(group)

    def _release(self, group: str) -> None:
        while (left := self._called_at + UNKEPT_SECONDS - time.monotonic()) > 0:
            # sleep: no event tells that the submitter has gone
            time.sleep(left)
        if not self._request:
            _remove(group)


def _remove(group: str) -> None:
    """Remove a placement group; its holders end with it."""
    import ray

    with contextlib.suppress(ValueError):  # another was first
        ray.util.remove_placement_group(ray.util.get_placement_group(group))


def environment() -> dict[str, str]:
    """Return the environment of `ray start` on this node, with the devices that Ray gave us.

    Ray's workers have more: RAY_*, OMP_NUM_THREADS, PYTHONPATH of a runtime environment.
    """
    import ray

    try:
        with open(f"/proc/{os.environ['RAY_RAYLET_PID']}/environ", "rb") as file:
            pairs = [part.partition(b"=") for part in file.read().split(b"\0") if part]
        found = {os.fsdecode(name): os.fsdecode(text) for name, _, text in pairs}
    except (OSError, KeyError):
        found = dict(os.environ)
    env = {name: text for name, text in found.items() if not name.startswith("RAY_")}
    given = ray.get_runtime_context().get_accelerator_ids()
    there: Any = ray.cluster_resources()
    for resource, names in HIDDEN.items():
        if resource in there and not given.get(resource):
            env |= dict.fromkeys(names, "")
    if any(given.values()):
        env |= {name: text for name, text in os.environ.items() if VISIBLE.search(name)}
    return env


def _be_as_the_raylet() -> None:
    """Take back what Ray does to its workers: they are nice, and killed first without memory.

    Source: worker_niceness and worker_oom_score_adjustment, ray/common/ray_config_def.h.
    """
    with contextlib.suppress(OSError, KeyError, ValueError):
        raylet = int(os.environ["RAY_RAYLET_PID"])
        with (
            open(f"/proc/{raylet}/oom_score_adj") as its,
            open("/proc/self/oom_score_adj", "w") as own,
        ):
            own.write(its.read())
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, raylet))
