"""Look for this host's devices: variables first, then paths, a vendor's command only if needed.

What to look for and what it means is in paddock/accel; no framework is imported.
"""

from __future__ import annotations

from paddock.accel import (
    Device,
    Devices,
    Found,
    accelerator,
    choose_devices,
    found_by_command,
    found_by_paths,
    kind_of_backend,
    kind_of_env,
    kinds_beside,
    kinds_to_probe,
    needs_command,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND_SECONDS = 10.0


def detect(
    env: Mapping[str, str],
    requested: tuple[str, ...] | None,
    kind: str,
    nproc: int | None,
    flag: str = "--devices",
) -> Devices:
    """The devices this node's workers use. Raises UsageError with what is wrong."""
    if kind == "cpu" or requested == ("cpu",):
        return choose_devices(Found(), env, requested, kind, nproc)
    found = _look(env, kind)
    if needs_command(found, env, requested):
        found = _ask(found, env)
    return choose_devices(found, env, requested, kind, nproc, flag)


def _look(env: Mapping[str, str], kind: str) -> Found:
    kind = kind or kind_of_backend(env)
    named = kind_of_env(env, kind)
    if named:
        beside = () if kind else kinds_beside(named)
        own = next((k for k in beside if _traced(k) is not None), named)
        return Found(own, is_counted=False)
    for wanted in kinds_to_probe(env, kind):
        found = _traced(wanted)
        if found is not None:
            return found
    # Only the plug-in could tell; the user said that it is there.
    return Found(kind, is_counted=False) if kind == kind_of_backend(env) != "" else Found()


def _traced(kind: str) -> Found | None:
    matches = {t.pattern: len(_matching(t.pattern)) for t in accelerator(kind).traces}
    return found_by_paths(kind, matches)


def _ask(found: Found, env: Mapping[str, str]) -> Found:
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
        return Found(found.kind, tuple(Device(str(number)) for number in range(count)))
    return found


def _matching(pattern: str) -> list[str]:
    """Paths that match; only the last part of a pattern has wildcards.

    glob would import re and fnmatch, several milliseconds on a path where ranks wait.
    """
    import os

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
