"""Did you mean? Imported only when an error is being reported."""

from __future__ import annotations

import difflib

from paddock.jobfile.flags import BY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LAUNCH_HELP = "see paddock launch --help"
# What other launchers call it: mpirun(1), srun(1), accelerate, deepspeed, horovodrun.
FOREIGN = {
    "n": "nproc_per_node",
    "np": "nproc_per_node",
    "N": "nnodes",
    "nodes": "nnodes",
    "ntasks": "nproc_per_node",
    "num_processes": "nproc_per_node",
    "num_proc": "nproc_per_node",
    "num_gpus": "nproc_per_node",
    "num_machines": "nnodes",
    "num_nodes": "nnodes",
    "machine_rank": "rank",
    "hosts": "ips",
    "hostfile": "ips",
    "main_process_ip": "master",
    "include": "devices",
    "x": "env",
    "o": "log_dir",
    "v": "log_level",
}


def nearest_flags(word: str) -> str:
    """A hint for an unknown flag.

    >>> nearest_flags("--nnoddes"), nearest_flags("--hostfile")
    ('did you mean --nnodes?', 'did you mean --ips?')
    """
    name = word.lstrip("-").replace("-", "_")
    if name in FOREIGN:
        return f"did you mean --{FOREIGN[name]}?"
    if name in BY_NAME:  # -nnodes
        return f"did you mean --{name}?"
    found = difflib.get_close_matches(name, list(BY_NAME), n=3, cutoff=0.7)
    if not found:
        return LAUNCH_HELP
    return f"did you mean {' or '.join('--' + f for f in found)}?"


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a bad word out of a set.

    >>> nearest("colective", ("collective", "ps", "ps-heter", "rpc"))
    "did you mean 'collective'?"
    """
    names = list(known)
    found = difflib.get_close_matches(word.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    if found:
        return f"did you mean '{next(n for n in names if n.lower() == found[0])}'?"
    return otherwise or f"choose one of {', '.join(names)}"
