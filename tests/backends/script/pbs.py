"""A PBS that is a few lines of shell: qsub runs the script at once, qstat and qdel know its pid.

Written after the manual pages of OpenPBS 20 (qsub(1B), qstat(1B), qdel(1B)) and the lines that its
users quote; no PBS could be had here to capture them from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "pbs-1"
COMMANDS = {
    "qsub": """\
start=$PWD; cd "$(dirname "$0")" || exit 1
for script; do :; done; script=$start/$script
if [ "${PBS_QUEUE_IS_FULL:-}" ]; then
  echo 'qsub: Maximum number of jobs already in queue' >&2; exit 38
fi
n=$(($(cat number 2>/dev/null || echo 1000) + 1)); echo "$n" >number
(setsid sh "$script" >"$n.out" 2>&1 </dev/null & echo $! >"$n.pid"; wait $!; echo $? >"$n.code") \\
  >/dev/null 2>&1 &
echo "$@" >"$n.words"
echo "$n.pbs-1"
""",
    "qstat": """\
cd "$(dirname "$0")" || exit 1
for job; do :; done
n=${job%%.*}
[ "${PBS_SERVER_IS_DOWN:-}" = "" ] || { echo 'Connection refused' >&2; exit 111; }
[ -e "$n.words" ] || { echo "qstat: Unknown Job Id $job" >&2; exit 153; }
state=R; [ ! -e "$n.code" ] || state=F
printf 'Job Id: %s\\n    Job_Name = train\\n    job_state = %s\\n' "$job" "$state"
[ ! -e "$n.code" ] || printf '    Exit_status = %s\\n' "$(cat "$n.code")"
""",
    "qdel": """\
cd "$(dirname "$0")" || exit 1
n=${1%%.*}
[ -e "$n.pid" ] || { echo "qdel: Unknown Job Id $1" >&2; exit 153; }
pid=$(cat "$n.pid")
# Its session may not have begun: setsid(1) is about to.
until kill -TERM -"$pid" 2>/dev/null; do kill -0 "$pid" || exit; done
""",
}
PROFILE = r"""
[site.pbs]
backend = "script"
submit = "qsub -N {name} -q {queue} -l select={nnodes} job.sh"
status = "qstat -fx {id}"
stop = "qdel {id}"
job_id = '^(\d+)\.'
queue = "batch"
config = {GREETING = "two words"}

[site.pbs.states]
pending = 'job_state = [QHWT]'
running = 'job_state = [RB]'
stopping = 'job_state = E'
succeeded = '(?s)job_state = F.*Exit_status = 0\b'
failed = 'job_state = F'
lost = 'Unknown Job Id'
"""


def install(folder: Path) -> None:
    """Put the commands into a folder that goes on PATH."""
    folder.mkdir()
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
