"""Links and files in the working directory of a host, as users of the old cluster tool expect.

    DIR/log/train.log, ...       links to the logs, in the job's directory and in --workspace
    DIR/nodefile, cluster.json   this host's node rank, and all nodes (main.py writes them)

In --workspace they are the last job's; deleting a job removes only its own. Standard
library only.
"""

from __future__ import annotations

import os
from contextlib import suppress

from paddock.backends.node.jobdir import read_json

# Source: "Check the results of the cluster training", PaddlePaddle 0.10: $workspace/log.
LINKS = {
    "train.log": "workerlog.0",
    "server.log": "serverlog.0",
    "paddle_trainer.INFO": "workerlog.0",
    "paddle_pserver2.INFO": "serverlog.0",
}


def link_logs(logs: str, folder: str) -> None:
    """Link a job's logs into a folder, by their old names; the user's files stay as they are."""
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        return
    for link, name in LINKS.items():
        path = os.path.join(folder, link)
        target = name if folder == logs else os.path.join(logs, name)
        with suppress(FileExistsError):  # the user's, or of another job that starts there just now
            if _is_ours(path, name):  # of the job before
                with suppress(FileNotFoundError):
                    os.unlink(path)
            os.symlink(target, path)


def _is_ours(path: str, name: str) -> bool:
    """Return True if the path is a link to a job's log."""
    try:
        return os.readlink(path).endswith(f"/log/{name}")
    except OSError:
        return False


def clean(directory: str, place: str) -> None:
    """Remove a job's links and files from a workspace, unless they are a later job's already."""
    logs = os.path.join(directory, "log")
    folder = os.path.join(place, "log")
    for link, name in LINKS.items():
        path = os.path.join(folder, link)
        with suppress(OSError):
            if os.readlink(path) == os.path.join(logs, name):
                os.unlink(path)
    with suppress(OSError):  # it is not there, or has files of another user
        os.rmdir(folder)
    cluster = os.path.join(place, "cluster.json")
    if (read_json(cluster) or {}).get("job") == os.path.basename(directory):
        for path in (cluster, os.path.join(place, "nodefile")):
            with suppress(FileNotFoundError):
                os.unlink(path)
