"""What a site may say: one table, read by sites.py and by docs/reference/sites.md. Pure.

kind: text (a number is taken too), int, bool, texts (a list, or one text with commas), path (of
this machine, relative to the file it stands in), table, tables (a list of them).
"""

from __future__ import annotations

from dataclasses import dataclass

from paddock.backends.table import EVERY, HOSTED


@dataclass(frozen=True)
class Key:
    """One key of [site.NAME]. is_reference: its name sounds secret, its value is but a name."""

    name: str
    kind: str
    backends: tuple[str, ...]
    help: str
    is_reference: bool = False


# A table reads better than one argument a line.
# fmt: off
KEYS: tuple[Key, ...] = (
    Key("backend", "text", EVERY, f"{', '.join(EVERY[:-1])} or {EVERY[-1]}"),
    Key("interpreter", "text", EVERY, "the Python of the hosts that runs the scripts"),
    Key("root", "text", EVERY, "parent directory of job directories there; ~ is the home there"),
    Key("workspace", "text", EVERY, "a directory that is there already and jobs run in"),
    Key("env", "table", EVERY, "variables of every process, by name; no secrets"),
    Key("hosts", "texts", HOSTED, "host, user@host:port, [host, address]; or a file's name"),
    Key("hostfile", "path", HOSTED, "file with hosts, as Open MPI and PBS write it"),
    Key("user", "text", HOSTED, "user of hosts that name none"),
    Key("port", "int", HOSTED, "ssh port of hosts that name none"),
    Key("ports", "text", HOSTED, "first port of the jobs' processes"),
    Key("port_base", "int", HOSTED, "port where the nodes meet; a free one if absent"),
    Key("nic", "text", HOSTED, "network interface by which the hosts reach one another"),
    Key("paddle_init", "table", HOSTED, "variables PADDLE_INIT_NAME of the trainers, by NAME"),
    Key("identity", "path", ("ssh",), "private key file, as ssh -i"),
    Key("ssh_config", "path", HOSTED, "ssh configuration file, as ssh -F"),
    Key("connect_timeout", "int", ("ssh",), "seconds to wait for a host"),
    Key("mpirun", "text", ("mpi",), "the mpirun to use, a name or a path"),
    Key("mpirun_args", "texts", ("mpi",), "more words of mpirun's own, a list"),
    Key("partition", "text", ("slurm",), "as sbatch --partition"),
    Key("account", "text", ("slurm", "script"), "whom the time is charged to"),
    Key("qos", "text", ("slurm",), "as sbatch --qos"),
    Key("constraint", "text", ("slurm",), "as sbatch --constraint"),
    Key("gres", "text", ("slurm",), "as sbatch --gres"),
    Key("time", "text", ("slurm", "script"), "time limit of a job"),
    Key("nodes", "text", ("slurm",), "as sbatch --nodelist"),
    Key("cpus", "int", ("slurm",), "cores of each node; a core for each process if absent"),
    Key("requeues", "int", ("slurm",), "how often a job that was told to end in time goes on"),
    Key("cluster", "text", ("slurm",), "as sbatch --clusters"),
    Key("sbatch_lines", "texts", ("slurm",), "raw #SBATCH words, a list"),
    Key("bin", "text", ("slurm",), "directory of sbatch and its like"),
    Key("namespace", "text", ("kubernetes",), "namespace of the jobs"),
    Key("context", "text", ("kubernetes",), "context of the kubeconfig"),
    Key("kubeconfig", "path", ("kubernetes",), "kubeconfig file"),
    Key("image", "text", ("kubernetes",), "container image"),
    Key("form", "text", ("kubernetes",), "paddlejob, job or volcano-job"),
    Key("scheduler", "text", ("kubernetes",), "volcano, kueue or coscheduling"),
    Key("queue", "text", ("kubernetes", "script"), "queue of the scheduler"),
    Key("cpu", "text", ("kubernetes",), "cores of each pod"),
    Key("memory", "text", ("kubernetes", "slurm"), "memory of each pod, as 4Gi; of each node"),
    Key("storage", "text", ("kubernetes",), "ephemeral storage of each pod, as 10Gi"),
    Key("gpus", "text", ("kubernetes",), "devices of each pod: a number, or resource=number"),
    Key("server_cpu", "text", ("kubernetes",), "cores of a pod that runs servers only; as cpu"),
    Key("server_memory", "text", ("kubernetes",), "memory of such a pod; as memory"),
    Key("server_gpus", "text", ("kubernetes",), "devices of such a pod; none if absent"),
    Key("volumes", "texts", ("kubernetes",), "claims and where they are mounted: claim:/path"),
    Key("secrets", "texts", ("kubernetes",), "names of Secrets that become variables", True),
    Key("pull_secrets", "texts", ("kubernetes",), "names of Secrets to pull the image with", True),
    Key("node_selector", "table", ("kubernetes",), "labels that nodes must have"),
    Key("tolerations", "tables", ("kubernetes",), "taints that are put up with"),
    Key("service_account", "text", ("kubernetes",), "service account of the pods"),
    Key("priority_class", "text", ("kubernetes",), "priority class of the pods"),
    Key("pod_patch", "path", ("kubernetes",), "YAML that is merged into the pod template"),
    Key("server_num", "int", ("kubernetes",), "servers of a job that does not say how many"),
    Key("trainer_num", "int", ("kubernetes",), "trainers of a job that does not say how many"),
    Key("job_name", "text", ("kubernetes", "script"), "name of jobs that are given none"),
    Key("submit", "text", ("script",), "command that submits job.sh; run in the job's directory"),
    Key("run", "text", ("script",), "words that start node.sh on every node: mpirun ..."),
    Key("status", "text", ("script",), "command that tells how job {id} is"),
    Key("logs", "text", ("script",), "command that prints the output of job {id}"),
    Key("stop", "text", ("script",), "command that ends job {id}"),
    Key("stop_now", "text", ("script",), "command that ends job {id} at once; stop if absent"),
    Key("job_id", "text", ("script",), "regular expression; its group is the id that submit said"),
    Key("states", "table", ("script",), "regular expression of what status says, by state"),
    Key("before_hook", "path", ("script",), "file that becomes before_hook.sh"),
    Key("end_hook", "path", ("script",), "file that becomes end_hook.sh"),
    Key("job_script", "path", ("script",), "template of job.sh"),
    Key("files", "texts", ("script",), "files that go into the job's directory"),
    Key("config", "table", ("script",), "lines of config.ini, which job.sh reads"),
    Key("params", "table", ("script",), "values that commands may name, as {group}"),
    Key("credentials", "texts", ("script",), "names of variables the commands need", True),
)
# fmt: on
BY_NAME = {key.name: key for key in KEYS}


def keys_of(backend: str) -> dict[str, Key]:
    """The keys that a backend's sites may have, by name."""
    return {key.name: key for key in KEYS if backend in key.backends}
