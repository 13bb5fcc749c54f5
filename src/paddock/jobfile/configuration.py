"""The configuration block of Paddle's launcher: its names and spellings, values as understood.

Paddle's deployment guide tells its readers to look at it.
"""

from __future__ import annotations

from paddock.core.endpoint import join_endpoint
from paddock.jobfile.flags import FLAGS
from paddock.jobfile.masked import masked_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.command_line import Flag
    from paddock.core.job import Job


def configuration(job: Job) -> tuple[tuple[str, str], ...]:
    """The lines of the block, sorted by name: those of FLAGS that are listed, and the script.

    An absent value prints as Paddle prints its default. max_restart is the number in effect.
    """
    words = job.command.args
    is_ps = job.role("ps") is not None
    rows = {flag.name: _text(flag, job) for flag in FLAGS if flag.is_listed}
    rows["trainer_num" if not is_ps else "nproc_per_node"] = "None"  # both are the workers' number
    rows |= {
        "legacy": "False",
        "master": _master(job),
        "training_script": job.command.program,
        "training_script_args": repr(masked_args(words, len(words))),
    }
    return tuple(sorted(rows.items()))


def _text(flag: Flag, job: Job) -> str:
    values = [job.value_of(path) for path in flag.fields]
    if values[0] in (None, 0, "", (), []) and flag.default in ("", "None"):
        return flag.default
    if values[0] is None:  # "6070 with several --ips", whatever is chosen at the start
        return flag.default.partition(" ")[0]
    texts = [_spelled(value) for value in values]
    return texts[0] if texts[0] == texts[-1] else ":".join(texts)


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return "1" if value else "False"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _master(job: Job) -> str:
    meeting = job.rendezvous
    if meeting.kind == "etcd":
        return "etcd://" + ",".join(meeting.etcd)
    return join_endpoint(meeting.host, meeting.port) if meeting.host and not meeting.ips else "None"
