"""This module knows what never travels: Paddock's own directories, and the user's private ones.

Directories are compared by inode: the package's path is real, and ~/.cache may be a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from paddock.backends.files.ignore import OURS as IGNORE_FILE
from paddock.backends.node.manifest import RESERVED, shown
from paddock.backends.types import DEFAULT_ROOT
from paddock.errors import Problem
from paddock.local.runs.entry import cache_folder, registry_folder

OURS = IGNORE_FILE.decode()
# Where keys and passwords of a user are. Projects have .docker and .config as well.
SECRETS = (b".ssh", b".aws", b".gnupg", b".kube", b".azure", b".netrc", b".git-credentials")


def own_folders(env: Mapping[str, str], jobs: str) -> list[str]:
    """Return Paddock's directories on this machine: caches, records of runs and sweeps, jobs.

    jobs: the `root` of the site, as on its hosts, which may be this one; "" for the default.
    """
    roots = [os.path.abspath(os.path.expanduser(each)) for each in (DEFAULT_ROOT, jobs) if each]
    return [cache_folder(env), os.path.dirname(registry_folder(env)), *roots]


def is_job(path: bytes) -> bool:
    """Return True for the directory of a job of ours, wherever it is."""
    return os.path.exists(os.path.join(path, RESERVED.encode(), b"job.json"))


def home_problems(root: bytes, env: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem if the package is a home or `/`, and has no .paddockignore that allows it."""
    if os.path.exists(os.path.join(root, IGNORE_FILE)):
        return
    homes = dict.fromkeys((os.path.expanduser("~"), env.get("HOME", "")), "your home directory")
    for name, what in {**homes, "/": "the root of this machine's files"}.items():
        if os.path.isdir(name) and os.path.samefile(root, name):
            hint = f"let --package name the project's directory; a file {OURS} there allows it"
            yield Problem(f"the package is {what}, {shown(name)}: all of it would be sent", hint)
            return


def secret_problem(path: str) -> Problem:
    """Return the problem of a file or directory with the user's keys."""
    what = f"{shown(path)} has your keys or passwords, and would be sent to the hosts"
    return Problem(what, f"name it in {OURS}; a line !{path.rpartition('/')[2]} there sends it")
