"""Submission -> the command line of mpirun, and the files written for it. Pure."""

from __future__ import annotations

import math
import re
import shlex
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.backends.common.planned import bad_names, job_text, making, rows_of
from paddock.backends.flags import foreign
from paddock.backends.node.jobdir import INNER, NOW
from paddock.backends.sites.hostfile import HostLine, hosts_of
from paddock.backends.text import clean
from paddock.backends.types import PlanStep, Submission, SubmissionPlan
from paddock.core.endpoint import join_endpoint
from paddock.errors import Problem, refuse
from paddock.local.guardian import DAEMON_LOST, SUBMITTER_LOST

Kind = Literal["openmpi", "hydra"]

SCRIPT = f"{INNER}/mpirun.sh"
START_FILE = f"{INNER}/start.sh"
PORTS = (20_000, 10_000)  # first, count: below those that Linux gives away (32768)
OF_SERVERS = ("--server_num", "--servers", "--trainers", "--trainer_num", "--worker_num")
TOKEN = "PADDOCK_TOKEN"
UNSHARED = "paddock-unshared "  # how GATE names its host to `complaints`: where else could it?
STOP_MARGIN_SECONDS = 15  # for the launchers' own goodbyes
# The daemons' own default is five minutes.
KEEPALIVE = {"oob_tcp_keepalive_time": "4", "oob_tcp_keepalive_intvl": "2",
             "oob_tcp_keepalive_probes": "3"}  # fmt: skip
# What ssh and a host's shell say in a line for each host (OpenSSH 8 to 10).
OF_A_HOST = re.compile(
    r"^ssh: |Permission denied|Host key verification failed|HOST IDENTIFICATION HAS CHANGED"
    r"|Connection (closed|refused|reset)|command not found"
)
# The words of an mpirun that cannot go on, outside its banners (Open MPI 4 and 5, hydra).
COMPLAINTS = re.compile(
    r"not enough slots|There are not enough|is not installed|unable to |could not|cannot "
    r"|rejected|refuses|unknown option|Unknown option"
)
BANNER = re.compile(r"^[-=]{4,}$\n(.*?)^[-=]{4,}$\n?", re.MULTILINE | re.DOTALL)
DETAIL = re.compile(r"[A-Z][\w ]*: +\S.*")  # "Executable:  train", in a banner
SHOWN_COMPLAINTS = 8
OPEN_MPI = re.compile(r"\(Open MPI\) (\d+)\.(\d+)|\(PRRTE\) (\d+)")
HYDRA = re.compile(r"HYDRA build details:.*?Version:\s*(\d+)\.(\d+)", re.DOTALL)

# The first words on each host: START, if the hosts share the directory it is in.
GATE = f'[ -r "$0" ] && exec sh "$0" "$@"; echo "{UNSHARED}$(uname -n)" >&2; sleep 1; exit 2'
# Then: says what is missing there, in a file with a line for it and one for the hint, or becomes
# the launcher. $1 working directory, $2 Python, $3 directory for what launchers say, but the first
# one; then the launcher's words. Behind " ## ", here and below: the reason of a line.
START = """\
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
error=${0%/*}/error-$rank
no() {
  printf '%s: %s\\n%s\\n' "$(uname -n)" "$1" "$2" >"$error"
  sleep 1 ## mpirun ends all with the first one; each host is to say what it has not
  exit 2
}
[ -n "$rank" ] || no 'mpirun says no rank' 'start it with Open MPI or MPICH'\
 ## a job of several never trains alone in silence
cd "$1" || no "$1 is not there" 'name a workspace that all hosts see'
command -v "$2" >/dev/null || no "there is no $2" 'name a Python of the hosts with --interpreter'
"$2" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  no "$2 is older than Python 3.10" 'name another with --interpreter'
[ ! -e "${0%/*}/program/paddock/ps" ] || "$2" "${0%/*}/program/__main__.py" ready >"$error" ||
  { sleep 1; exit 2; }
: >"${0%/*}/begun-$rank" ## submit comes back when every host has come so far
[ "$rank" = 0 ] || exec >>"$3/console-$rank.log" 2>&1 ## the first launcher tells the story
here=${0%/*} python=$2 launcher=$$
shift 3
stops() {
  while sleep 0.3 && [ -e "/proc/$launcher/exe" ]; do
    [ ! -e "$here/lost" ] || { kill -"$(cat "$here/lost")" "$launcher"; break; }
    [ ! -e "$here/stop" ] || { kill -TERM "$launcher"; break; }
  done
}
if [ "$rank" = 0 ]; then
  (stops </dev/null >/dev/null 2>&1 &) ## the first launcher ends the job, with grace
else
  set -- --tail none "$@"
fi
exec "$python" "$here/program/__main__.py" launch --rank "$rank" "$@"
"""
# What the job daemon runs. mpirun waits for a lost host as long as TCP does, a quarter of an hour,
# and gives processes that it ends one second. So the launchers decide: the first one is told by a
# file to end the job, and when they have a verdict mpirun has to end, too. What the job daemon lost
# is the number of a signal in such a file (local/guardian.py).
SHELL = """\
#!/bin/sh
MPIRUN &
mpirun=$!
here=${0%/*}
trap 'grep -qs NOW "$here/stop" && kill -TERM "$mpirun" || : >>"$here/stop"' TERM ## paddock stop
loses() { echo "$1" >"$here/lost.tmp"; mv "$here/lost.tmp" "$here/lost"; }
trap 'loses DAEMON_LOST' DAEMON_LOST
trap 'loses SUBMITTER_LOST' SUBMITTER_LOST
watch() {
  left=SECONDS
  while sleep 1; do
    [ ! -e "$here/verdict.json" ] || break
    [ ! -e "$here/stop" ] && [ ! -e "$here/lost" ] || [ $((left -= 1)) -gt 0 ] || break
  done
  sleep 5
  kill -TERM "$mpirun"
  sleep 3
  kill -9 "$mpirun"
}
watch >/dev/null 2>&1 & ## mpirun waits for a lost host, the job does not
watch=$!
exec 2>/dev/null
while wait "$mpirun"; code=$?; kill -0 "$mpirun"; do :; done
kill "$watch"
exit "$code"
"""


@dataclass(frozen=True)
class Mpirun:
    """An mpirun that was found. major: its major version."""

    path: str
    kind: Kind
    major: int


def read_version(path: str, output: str) -> Mpirun | None:
    """Parse the output of `mpirun --version`; None for an unknown MPI.

    >>> read_version("mpirun", "mpirun (Open MPI) 4.1.4")
    Mpirun(path='mpirun', kind='openmpi', major=4)
    """
    if found := OPEN_MPI.search(output):
        return Mpirun(path, "openmpi", int(found[1] or 5))
    if found := HYDRA.search(output):
        return Mpirun(path, "hydra", int(found[1]))
    return None


def mpirun_rows(
    mpirun: Mpirun,
    hostfile: str,
    count: int,
    *,
    variables: Sequence[str] = (),
    ssh_args: str = "",
    nic: str = "",
    is_root: bool = False,
    more: Sequence[str] = (),
) -> list[tuple[tuple[str, ...], str]]:
    """Return the arguments of mpirun in groups, each with its reason.

    hostfile "": the allocation's hosts. variables: names that the launchers get; their values are
    in mpirun's own environment.
    """
    is_open = mpirun.kind == "openmpi"
    mca, ssh = ("--mca", "plm_rsh_args") if mpirun.major < 5 else ("--prtemca", "plm_ssh_args")
    rows: list[tuple[tuple[str, ...], str]] = [((mpirun.path,), "")]
    if hostfile:
        rows.append((("--hostfile" if is_open else "-f", hostfile), "the hosts of the site"))
    one = ("--map-by", "ppr:1:node") if is_open else ("-ppn", "1")
    rows.append((("-n", str(count), *one), "one launcher on each host"))
    bind = "--bind-to" if is_open else "-bind-to"
    rows.append(((bind, "none"), "the ranks are not bound to the launcher's core"))
    if is_open:
        rows.append((("-x", TOKEN), "the job's key, by name only"))
        rows += [(("-x", name), "--env, by name only") for name in variables]
        why = "a lost host, or a lost mpirun, is noticed"
        rows += [((mca, name, seconds), why) for name, seconds in KEEPALIVE.items()]
        if ssh_args:
            rows.append(((mca, ssh, ssh_args), "how the site's hosts are reached"))
    else:
        names = ",".join((TOKEN, *variables))
        rows.append((("-genvlist", names), "the job's key and --env, by name only"))
    if nic:
        words = (mca, "oob_tcp_if_include", nic) if is_open else ("-iface", nic)
        rows.append((words, "nic of the site"))
    if is_root and is_open:
        rows.append((("--allow-run-as-root",), "you are root, which mpirun refuses otherwise"))
    return [*rows, *(((word,), "mpirun_args of the site") for word in more)]


def complaints(output: str, errors: Iterable[str] = (), start: str = "") -> list[Problem]:
    """Return the problems why nothing was started. said: by mpirun and ssh.

    errors: by START, on its hosts.

    >>> complaints("--- mpirun ---\\n", ["h2: there is no py\\nname one\\n"])
    [Problem('h2: there is no py', 'name one')]
    """
    lines = output.splitlines()
    pairs = [text.partition("\n")[::2] for text in errors if text]
    found = {clean(text): Problem(clean(text), clean(hint.strip())) for text, hint in pairs}
    for line in lines:
        if line.startswith(UNSHARED):
            text = (
                f"{clean(line[len(UNSHARED) :])}: {start} is not there: the hosts do not share it"
            )
            hint = "name a directory that all hosts see with --root, or use -b ssh"
            found[text] = Problem(text, hint)
    if not found:
        found = {text: Problem(text) for text in map(clean, _sentences(output))}
    return [*found.values()][:SHOWN_COMPLAINTS] or [Problem("mpirun ended without a word")]


def _sentences(output: str) -> list[str]:
    """Return what mpirun and ssh complain of: a line for each host, else a sentence a banner."""
    outside = [line.strip() for line in BANNER.sub("", output).splitlines()]
    outside = [line for line in outside if line.strip("-=")]
    if of_hosts := [line for line in outside if OF_A_HOST.search(line)]:
        return of_hosts
    if banners := [text for each in BANNER.findall(output) if (text := _sentence(each))]:
        return banners
    whole = [line for line in outside if COMPLAINTS.search(line)] or outside[-3:]
    return [" ".join(whole)] if whole else []


def _sentence(banner: str) -> str:
    """Return what a banner of mpirun says, without its advice.

    >>> _sentence("It was unable to find\\nthe file.\\n\\nIt may be absent.\\n\\nNode: h2\\n")
    'It was unable to find the file. Node: h2'
    """
    parts = [[line.strip() for line in part.splitlines()] for part in banner.split("\n\n")]
    first, *rest = [part for part in parts if any(part)] or [[]]
    if rest and first[-1].endswith(":"):  # what it speaks of
        first += rest.pop(0)
    details = [part for part in rest if all(map(DETAIL.fullmatch, part))]
    return " ".join(word for part in (first, *details) for word in " ".join(part).split())


def ssh_args_of(hosts: Sequence[HostLine], config: str, problems: list[str]) -> str:
    """Return the ssh arguments that mpirun uses: one user and one port for all hosts.

    >>> ssh_args_of((), "/etc/ssh/lab", [])
    '-F /etc/ssh/lab'
    """
    users, ports = {h.user for h in hosts}, {h.port for h in hosts}
    if len(users) > 1 or len(ports) > 1:
        problems.append("mpirun logs in with one user and one port: name others in ~/.ssh/config")
    words = []
    if config:
        words += ["-F", config]
    if users == {*users} - {""} and len(users) == 1:
        words += ["-l", *users]
    if len(ports) == 1 and ports != {0}:
        words += ["-p", *(str(port) for port in ports)]
    if any(" " in word for word in words):
        problems.append(f"mpirun cuts words for ssh at blanks: {config}")
    return " ".join(words)


def plan_of(
    submission: Submission,
    mpirun: Mpirun,
    folder: str,
    cwd: str,
    *,
    is_root: bool = False,
    is_allocated: bool = False,
) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError with every problem.

    folder: the job's directory. cwd: the working directory of ranks. Without hosts mpirun takes
    those of its allocation (is_allocated), or this machine.
    """
    site, job = submission.site, submission.job
    problems: list[str] = []
    hosts = hosts_of(site)[: job.nnodes_max]
    count = job.nnodes_max
    if job.nnodes_min != job.nnodes_max:
        problems.append("mpirun starts a fixed number of launchers: write -n N")
    if hosts and count > len(hosts):
        problems.append(f"-n {count} is more than the {len(hosts)} hosts of {site.name}")
    ssh_args = ssh_args_of(hosts, site.text("ssh_config"), problems)
    hostfile = f"{folder}/{INNER}/hostfile" if hosts else ""
    names = [name for name, _ in submission.env]
    file = f"{folder}/{INNER}/launch.json"
    words = [*_own_words(submission, hosts, folder, problems), *submission.flags]
    words += ["-f", file] if submission.file else submission.script
    python = site.text("interpreter") or "python3"
    start = f"{folder}/{START_FILE}"
    rows = mpirun_rows(
        mpirun, hostfile, count, variables=names, ssh_args=ssh_args, nic=site.text("nic"),
        is_root=is_root, more=_more(submission),
    )  # fmt: skip
    rows.append((("sh", "-c", GATE), "says so where the hosts share nothing"))
    rows.append(((start, cwd, python, f"{folder}/log"), "working directory, Python, logs"))
    rows.append((tuple(words), "words of paddock launch"))
    refuse([*map(Problem, problems), *bad_names(submission)])
    lines = [shlex.join(group) for group, _ in rows]
    seconds = str(math.ceil(job.grace_seconds) + STOP_MARGIN_SECONDS)
    values = {"DAEMON_LOST": DAEMON_LOST, "SUBMITTER_LOST": SUBMITTER_LOST, "NOW": NOW,
              "SECONDS": seconds}  # fmt: skip
    shell, why = _explained(re.sub("|".join(values), lambda found: str(values[found[0]]), SHELL))
    # The user's own words last: they may hold " ## ", too.
    files = {f"{folder}/{SCRIPT}": shell.replace("MPIRUN", " \\\n  ".join(lines), 1)}
    files[start], reasons = _explained(START)
    files[f"{folder}/{INNER}/job.json"] = job_text(submission)
    why |= reasons
    for at, (line, (_, reason)) in enumerate(zip(lines, rows, strict=True), 1):
        text = f"{line} \\" if at < len(lines) else f"{line} &"
        why |= {text.splitlines()[-1].strip(): reason} if reason else {}
    if hosts:
        slots = ":" if mpirun.kind == "hydra" else " slots="
        text = "".join(f"{h.target}{slots}{max(h.slots, 1)}\n" for h in hosts)
        files[hostfile] = text
        why |= dict.fromkeys(text.splitlines(), site.sources.get("hosts", "hosts of the site"))
    if submission.file:
        files[file] = submission.file
    what = making(submission, folder, "the launcher")
    steps = (
        PlanStep("here", f"{what}; the hosts must see it"),
        PlanStep("here", "start", tuple(word for group, _ in rows for word in group)),
    )
    targets = [host.target for host in hosts] or ["chosen by mpirun"] * count
    devices = ",".join(job.devices or ()) or "found there"
    cannot = foreign("mpi", submission.extra)
    if not (hosts or is_allocated):
        cannot += ("no hosts are named, so that all runs on this machine: --hosts, --hostfile",)
    return SubmissionPlan(rows_of(submission, targets, devices), steps, files, cannot, why)


def _explained(text: str) -> tuple[str, dict[str, str]]:
    """Return a script, and the reasons of its lines."""
    lines = [line.partition(" ## ")[::2] for line in text.splitlines()]
    return "".join(f"{line}\n" for line, _ in lines), {line.strip(): w for line, w in lines if w}


def port_of(run_id: str) -> int:
    """Return the rendezvous port of the launchers: another one for each job.

    >>> PORTS[0] <= port_of("train-3f2a") < sum(PORTS)
    True
    """
    return PORTS[0] + zlib.crc32(run_id.encode()) % PORTS[1]


def _own_words(
    submission: Submission, hosts: Sequence[HostLine], folder: str, problems: list[str]
) -> list[str]:
    site, job = submission.site, submission.job
    words = ["--nnodes", str(job.nnodes_max)]
    if hosts or job.nnodes_max == 1:
        words.append("--ignore_env")  # everything is said here
    if len(hosts) > 1 and job.nnodes_max > 1:
        port = int(site.text("port_base", "0") or 0) or port_of(submission.run_id)
        words += ["--master", join_endpoint(hosts[0].reached_at, port)]
    words += ["--job_id", submission.run_id, "--log_dir", f"{folder}/log/{{node}}"]
    words += ["--record", f"{folder}/{INNER}"]
    if submission.is_detached:
        words += ["--tail", "none"]  # the console is not watched: paddock logs has it all
    if site.text("ports"):
        words += ["--start_port", site.text("ports")]
    for name, text in site.table("paddle_init").items():
        words += ["--env", f"PADDLE_INIT_{name}={text}"]
    return words + _servers(submission, hosts, problems)


def _servers(submission: Submission, hosts: Sequence[HostLine], problems: list[str]) -> list[str]:
    """Return the flags of --servers-on; even: hosts 0, 2, 4, ... as PaddleRec's mpirun had it."""
    wish = submission.extra.get("servers_on", "")
    if not wish:
        return []
    if any(flag.partition("=")[0].replace("-", "_").replace("__", "--", 1) in OF_SERVERS
           for flag in submission.flags):  # fmt: skip
        problems.append("--servers-on names the servers: leave out --servers, --server-num, ...")
    names = [host.target for host in hosts]
    chosen = names[::2] if wish == "even" else [each.strip() for each in wish.split(",")]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        problems.append(f"--servers-on {', '.join(unknown)}: not among the hosts")
    if not hosts or len(chosen) == len(names):
        problems.append("--servers-on leaves no host for trainers")
    port = submission.site.text("ports") or str(port_of(submission.run_id) + 1)
    servers = [join_endpoint(h.reached_at, port) for h in hosts if h.target in chosen]
    trainers = [join_endpoint(h.reached_at, port) for h in hosts if h.target not in chosen]
    return ["--servers", ",".join(servers), "--trainers", ",".join(trainers)]


def _more(submission: Submission) -> tuple[str, ...]:
    found = submission.site.options.get("mpirun_args", ())
    if isinstance(found, str):
        return tuple(shlex.split(found))
    assert isinstance(found, (list, tuple))
    return tuple(str(each) for each in found)
