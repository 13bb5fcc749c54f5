"""The endpoints of a job's parameter servers, from the log directory of ``paddock launch``."""

from __future__ import annotations

from pathlib import Path

from paddock.errors import UsageError

FILE = "endpoints.log"  # written by local/logs.py
HEADING = "PADDLE_PSERVERS_IP_PORT_LIST:"


def logged_endpoints(log_dir: Path) -> str:
    """host:port of every server, in order, commas between. Raises UsageError."""
    path = log_dir / FILE
    try:
        lines = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            f"{path} cannot be read: {why}",
            hint="--log_dir is the log directory of a job that paddock launch runs",
        ) from error
    if HEADING not in lines:
        raise UsageError(f"{path} names no server", hint="was the job started with --server_num?")
    found = []
    for line in lines[lines.index(HEADING) + 1 :]:
        if line.endswith(":"):
            break  # the next heading
        found.append(line)
    return ",".join(found)
