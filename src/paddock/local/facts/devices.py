"""Look for this host's devices: variables first, then paths, a vendor's command only if needed.

paddock/accel has the paths and variables of each vendor; no framework is imported.
"""

from __future__ import annotations

import os

from paddock.accel import (
    DetectedDevices,
    Device,
    accelerator,
    choose_devices,
    found_by_command,
    found_by_paths,
    kind_of_env,
    kind_of_plugin,
    kinds_beside,
    kinds_to_probe,
    needs_command,
    visible_of,
)
from paddock.core.value import replace
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.hosts import Devices
    from paddock.core.job import Job

COMMAND_SECONDS = 10.0


def find_devices(job: Job, env: Mapping[str, str], *, asks_smi: bool = os.name == "nt") -> Devices:
    """The devices this node's workers use; see paddock.accel for the rules.

    asks_smi: nvidia-smi is asked where no path tells (Windows has no /dev). Raises UsageError with
    what is wrong.
    """
    worker = job.role("worker")
    nproc = worker.count if worker else None
    found = DetectedDevices()
    if job.device_kind != "cpu" and job.devices != ("cpu",):
        found = _look(env, job.device_kind)
        if asks_smi and found == DetectedDevices() and job.device_kind in ("", "gpu"):
            found = _ask(DetectedDevices("gpu", is_counted=False), env)
            found = found if found.is_counted else DetectedDevices()
        elif needs_command(found, env, job.devices):
            found = _ask(found, env)
    source = job.sources.get("devices")
    flag = source.name if source is not None and source.name else "--devices"
    chosen = choose_devices(found, env, job.devices, job.device_kind, nproc, flag)
    count = len(chosen.labels)
    if job.host_part[1] > 1 and job.devices is None:
        chosen = _part_of(chosen, job.host_part, env, nproc)
    is_part = len(chosen.labels) < count
    if worker and chosen.kind == "cpu" and not nproc and not job.devices:
        chosen = replace(chosen, count=worker.on_cpu)
    return chosen if job.framework == "paddle" else _narrowed(chosen, env, is_part=is_part)


def _part_of(
    devices: Devices, part: tuple[int, int], env: Mapping[str, str], nproc: int | None
) -> Devices:
    """This node's part of the devices of its host, where srun or mpirun has not already cut them.

    Slurm says how many it gave to all tasks of this host: a task that sees fewer has its own.
    """
    index, parts = part
    count = len(devices.labels)
    together = env.get("SLURM_GPUS_ON_NODE", "")
    if count < 2 or (together.isdigit() and count < int(together)):
        return devices
    each, rest = divmod(count, parts)
    if rest or (nproc or 1) > each:
        raise UsageError(
            f"{parts} tasks share the {count} devices of this host, and each needs {nproc or 1}",
            hint="start one task for each host, or have srun or --devices give each its own",
        )
    mine = slice(index * each, (index + 1) * each)
    return replace(devices, labels=devices.labels[mine], indices=devices.indices[mine])


def _narrowed(devices: Devices, env: Mapping[str, str], *, is_part: bool) -> Devices:
    """Hide the devices that were not chosen, so that device LOCAL_RANK is the right one.

    is_part: those left out are another node's, and hidden wherever they stand.

    Paddle is told an index into the visible list (FLAGS_selected_gpus); PyTorch scripts take
    "cuda:LOCAL_RANK" of that list. Both are right when the list holds the chosen devices only.
    """
    count = len(devices.labels)
    is_right = devices.indices == tuple(range(count)) and not is_part
    if devices.kind == "cpu" or devices.env or is_right:
        return devices
    if not accelerator(devices.kind).is_obeyed:
        return devices
    named = visible_of(devices.kind, env)
    variable = named[0] if named else accelerator(devices.kind).visible[0]
    return replace(
        devices,
        indices=tuple(range(count)),
        env=((variable, ",".join(devices.labels)),),
    )


def _look(env: Mapping[str, str], kind: str) -> DetectedDevices:
    kind = kind or kind_of_plugin(env)
    named = kind_of_env(env, kind)
    if named:
        beside = () if kind else kinds_beside(named)
        own = next((k for k in beside if _traced(k) is not None), named)
        return DetectedDevices(own, is_counted=False)
    for wanted in kinds_to_probe(env, kind):
        found = _traced(wanted)
        if found is not None:
            return found
    # Only the plug-in could tell; the user said that it is there.
    return (
        DetectedDevices(kind, is_counted=False)
        if kind == kind_of_plugin(env) != ""
        else DetectedDevices()
    )


def _traced(kind: str) -> DetectedDevices | None:
    matches = {t.pattern: len(_matching(t.pattern)) for t in accelerator(kind).traces}
    return found_by_paths(kind, matches)


def _ask(found: DetectedDevices, env: Mapping[str, str]) -> DetectedDevices:
    """Run the vendor's command; what the paths said stands when there is none."""
    import subprocess

    known = accelerator(found.kind)
    for argv in known.commands:
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
                env=dict(env),
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            answer = found_by_command(found.kind, done.stdout)
            if answer.kind != "cpu":
                return answer
    if known.fallback and not found.devices:
        count = len(_matching(known.fallback))
        return DetectedDevices(found.kind, tuple(Device(str(number)) for number in range(count)))
    return found


def _matching(pattern: str) -> list[str]:
    """Paths that match; only the last part of a pattern has wildcards.

    glob would import re and fnmatch, several milliseconds on a path where ranks wait.
    """
    folder, _, last = pattern.rpartition("/")
    head, bracket, _ = last.partition("[0-9]")
    head = head.rstrip("*")
    try:
        names = os.listdir(folder or "/")
    except OSError:
        return []
    if not bracket:
        wild = last.endswith("*")
        return [n for n in names if n == last or (wild and n.startswith(head))]
    return [n for n in names if n.startswith(head) and n[len(head) :].isdigit()]
