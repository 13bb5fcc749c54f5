"""What only Slurm does: requeue, arrays, dependencies, and what it says no to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tomllib

from conformance.hosts import BASE
from conformance.labs import Lab, secrets_in
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.slurm import Slurm

SAVES = """
def save(*_):
    time.sleep(0.5)
    say("saved", RANK)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
say("up", os.environ.get("SLURM_RESTART_COUNT", "0"))
"""
FAR = "time.sleep(3600)\n"
ARRAY_OF_CALLS = """
import os
import paddock

def task():
    number = int(os.environ["SLURM_ARRAY_TASK_ID"])
    return number, paddock.rank(), os.environ["PADDOCK_JOB_ID"].rpartition("-")[2]

def fail():
    number = int(os.environ["SLURM_ARRAY_TASK_ID"])
    if number == 10:
        raise KeyError("no such row")
    return number

flags = ["--array", "2,10,3"]
run = paddock.submit(task, site="slurm", nodes=1, nproc=2, flags=flags)
print(run.results(60))
try:
    paddock.submit(fail, site="slurm", nodes=1, nproc=1, flags=flags).results(60)
except paddock.RankFailedError as error:
    print(error.rank, repr(error.__cause__))
"""
SUBMITIT = """
import sys
import paddock.compat.submitit as submitit

def task():
    import os
    names = ("RANK", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "NNODES")
    return [int(os.environ[f"PADDOCK_{name}"]) for name in names]

executor = submitit.AutoExecutor(folder="logs/%j", slurm_python=sys.argv[1])
assert executor.cluster == "slurm"
executor.update_parameters(nodes=2, tasks_per_node=2, cpus_per_task=1, timeout_min=5)
job = executor.submit(task)
print(job.results())
print(job.state)
executor.update_parameters(nodes=1, tasks_per_node=1, name="mapped")
jobs = executor.map_array(abs, [-1, -2])
with executor.batch():
    jobs += [executor.submit(abs, -3), executor.submit(abs, -4)]
print([job.result() for job in jobs])
executor.update_parameters(slurm_partition="nowhere")
try:
    executor.submit(task)
except Exception as error:
    print("invalid partition" in str(error))
"""
CHECKPOINTS = """
import sys
import paddock.compat.submitit as submitit

class Train(submitit.helpers.Checkpointable):
    step = 0

    def __call__(self, word, c):
        import os
        import threading
        print("up from", self.step, flush=True)
        if self.step:
            return [self.step, word, c, submitit.JobEnvironment().job_id,
                    os.environ["SLURM_RESTART_COUNT"]]
        self.step = 4
        threading.Event().wait()

    def checkpoint(self, word, c):
        self.step += 1
        return submitit.helpers.DelayedSubmission(self, word, c=c)

executor = submitit.SlurmExecutor(folder="logs/%j", python=sys.argv[1], max_num_timeout=1)
executor.update_parameters(nodes=2, tasks_per_node=1, time=10, setup=[
    "module() { export PYTHONPATH=$1; }", f"module {sys.argv[2]}",
])
job = executor.submit(Train(), "a b", c="c")
print(job.job_id, job.run_id)
"""
FOUND_AGAIN = """
import sys
import paddock.compat.submitit as submitit

job = submitit.SlurmJob("logs/%j", sys.argv[1], tasks=[0, 1])
print(job.job_id, submitit.SlurmJob("logs", sys.argv[2]).run_id)
print(job.state)
"""


@pytest.fixture
def lab(slurm: Slurm) -> Lab:
    """Slurm over three hosts."""
    words = ("-b", "slurm", "--root", str(slurm.hosts.shared / "jobs"))
    return Lab("slurm", slurm.hosts, words, is_shared=True)


def on_shared_files(lab: Lab, slurm: Slurm) -> None:
    """Let the site say where jobs are, for programs that do not."""
    site = f'[site.slurm]\nbackend = "slurm"\nroot = "{slurm.hosts.shared}/jobs"\n'
    (lab.project / "paddock.toml").write_text(site, "utf-8")


def until_said(lab: Lab, word: str, count: int) -> None:
    wait_until(lambda: sum(word in line for line in lab.logs()) >= count)


def test_before_the_time_limit_a_job_saves_and_goes_back_into_the_queue(
    lab: Lab, slurm: Slurm
) -> None:
    """--signal=B:TERM comes as scancel --batch sends it; its time is not waited for here."""
    lab.submitted("-n", "2", lab.script(SAVES + FAR))
    until_said(lab, "up 0", 4)
    (number,) = slurm.jobs()
    assert lab.laptop.run(["scancel", "--signal=TERM", "--batch", number]).returncode == 0
    status = lab.until("pending")
    assert status["attempt"] == 1
    until_said(lab, "saved", 4)
    assert not lab.ranks_alive()
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")


def test_a_job_that_does_not_save_is_not_started_again(lab: Lab, slurm: Slurm) -> None:
    """It would be ended at its time limit once more; --requeue always puts it back all the same."""
    script = lab.script("say('up', os.environ.get('SLURM_RESTART_COUNT', '0'))\n" + FAR)
    lab.submitted("-n", "1", "--time", "2", "--grace", "60", script)  # its end is near
    until_said(lab, "up 0", 2)
    (number,) = slurm.jobs()
    words = ["scancel", "--signal=TERM", "--batch"]
    assert lab.laptop.run([*words, number]).returncode == 0
    status = lab.until("failed")
    assert (status["attempt"], status["code"]) == (0, 143)
    assert status["why"].startswith("the time limit is reached, and not all ranks saved")
    lab.submitted("-n", "1", "--requeue", "always", script)
    until_said(lab, "up 0", 2)
    number = next(iter(slurm.jobs()))
    assert lab.laptop.run([*words, number]).returncode == 0
    assert lab.until("pending")["attempt"] == 1
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")


def test_with_requeue_never_a_job_that_saved_fails_all_the_same(lab: Lab, slurm: Slurm) -> None:
    lab.submitted("-n", "1", "--requeue", "never", lab.script(SAVES + FAR))
    until_said(lab, "up 0", 2)
    (number,) = slurm.jobs()
    assert lab.laptop.run(["scancel", "--signal=TERM", "--batch", number]).returncode == 0
    assert lab.until("failed")["attempt"] == 0
    done = lab.submit("-n", "1", "--requeue", "sometimes", lab.script(FAR))
    assert (done.returncode, "always, saved" in done.stderr) == (2, True), done.stderr


def test_scancel_leaves_ranks_their_grace(lab: Lab, slurm: Slurm) -> None:
    """Slurm signals every process of the job, launchers and ranks alike."""
    lab.submitted("-n", "2", lab.script(SAVES + FAR))
    until_said(lab, "up 0", 4)
    (number,) = slurm.jobs()
    assert lab.laptop.run(["scancel", number]).returncode == 0
    status = lab.until("cancelled")
    assert "scancel" in status["why"]
    until_said(lab, "saved", 4)


def test_jobs_of_an_array_are_told_apart(lab: Lab) -> None:
    text = "n = int(os.environ['SLURM_ARRAY_TASK_ID'])\nsay('task', n)\nsys.exit(n == 2)\n"
    lab.submitted("-n", "1", "--array", "1-3%2", lab.script(text))
    status = lab.until("failed")
    states = [(node["name"], node["state"]) for node in status["nodes"]]
    assert states == [("task 1", "succeeded"), ("task 2", "failed"), ("task 3", "succeeded")]
    lines = [line for line in lab.logs() if "] task 3" in line]
    assert len(lines) == 2 and all(line.startswith("[task 3 h") for line in lines)


def test_what_tasks_of_an_array_write_is_their_own(lab: Lab) -> None:
    """Also below directories of the package, and in output/; the package itself is there."""
    for path, text in (("checkpoints/base", "b"), ("output/first", "f"), ("log/mine", "m"),
                       (".hidden", "h")):  # fmt: skip
        (lab.project / path).parent.mkdir(exist_ok=True)
        (lab.project / path).write_text(text)
    text = """
n = os.environ["SLURM_ARRAY_TASK_ID"]
assert [open(p).read() for p in ("checkpoints/base", "output/first", "log/mine", ".hidden")] == [
    "b", "f", "m", "h"]
for path in ("output/model", "output/first", "checkpoints/model", "new"):
    with open(path, "w") as file:
        file.write(n)
with open("where", "w") as file:
    file.write(os.getcwd())
"""
    lab.submitted("-n", "1", "--nproc_per_node", "1", "--array", "1-3", lab.script(text))
    lab.until("succeeded")
    (folder,) = (lab.hosts.shared / "jobs").iterdir()
    for n in "123":
        for path in ("output/model", "output/first", "checkpoints/model", "new"):
            assert (folder / n / path).read_text() == n
        assert (folder / n / "where").read_text() == str(folder / n)
    assert (folder / "output" / "first").read_text() == "f"
    assert lab.paddock("fetch", "last", "--to", "brought").returncode == 0
    brought = lab.project / "brought"
    assert [(brought / n / "output" / "model").read_text() for n in "123"] == ["1", "2", "3"]
    assert not (brought / "output").exists()


def test_a_package_with_the_directory_of_a_task_is_refused(lab: Lab, slurm: Slurm) -> None:
    (lab.project / "2").mkdir()
    (lab.project / "2" / "data").touch()
    done = lab.submit("-n", "1", "--array", "1-3", lab.script(FAR))
    assert (done.returncode, "2 in the package" in done.stderr) == (2, True), done.stderr
    assert slurm.jobs() == {}
    assert list((lab.hosts.shared / "jobs").iterdir()) == []


def test_functions_of_an_array_return_a_result_for_each_task_and_rank(
    lab: Lab, slurm: Slurm
) -> None:
    """In the order of their numbers; and of the task that fails, its own exception."""
    site = f'[site.slurm]\nbackend = "slurm"\nroot = "{slurm.hosts.shared}/jobs"\n'
    (lab.project / "paddock.toml").write_text(f"{site}interpreter = '{BASE}/bin/python3'\n")
    done = lab.python(ARRAY_OF_CALLS)
    assert done.returncode == 0, done.stderr
    results = [(number, rank, str(number)) for number in (2, 3, 10) for rank in (0, 1)]
    assert done.stdout.splitlines() == [str(results), "0 KeyError('no such row')"]


@pytest.mark.parametrize("line", ["--array=1-2", "#SBATCH --mem=1M -a 1-2 # two", "-a1-2"])
def test_an_array_of_the_site_is_one(lab: Lab, slurm: Slurm, line: str) -> None:
    """A task that is told to end goes back alone; each has a directory."""
    site = f'[site.many]\nbackend = "slurm"\nsbatch_lines = ["{line}"]\n'
    (lab.project / "paddock.toml").write_text(site, "utf-8")
    lab.words = ("-b", "many", "--root", str(lab.hosts.shared / "jobs"))
    text = "n = int(os.environ['SLURM_ARRAY_TASK_ID'])\nn < 2 and sys.exit(0)\n"
    lab.submitted("-n", "1", lab.script(text + SAVES + FAR))
    until_said(lab, "up 0", 2)
    wait_until(lambda: lab.status()["nodes"][0]["state"] == "succeeded")
    array = next(iter(slurm.jobs())).partition("_")[0]
    words = ["scancel", "--signal=TERM", "--batch", f"{array}_2"]
    assert lab.laptop.run(words).returncode == 0
    wait_until(lambda: lab.status()["nodes"][1]["state"] == "pending")
    assert [node["state"] for node in lab.status()["nodes"]] == ["succeeded", "pending"]
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")


def test_a_task_that_is_told_to_end_goes_back_into_the_queue_alone(lab: Lab, slurm: Slurm) -> None:
    """The task that starts last has the array's own number, and that stands for all tasks."""
    text = "n = int(os.environ['SLURM_ARRAY_TASK_ID'])\nn < 3 and sys.exit(0)\n"
    lab.submitted("-n", "1", "--array", "1-3", lab.script(text + SAVES + FAR))
    until_said(lab, "up 0", 2)

    def states() -> dict[str, str]:
        return {node["name"]: node["state"] for node in lab.status()["nodes"]}

    wait_until(lambda: [states().get(f"task {n}") for n in (1, 2)] == ["succeeded"] * 2)
    (number,) = slurm.jobs()
    array = number.partition("_")[0]
    task = f"{array}_3"
    assert lab.laptop.run(["scancel", "--signal=TERM", "--batch", task]).returncode == 0
    wait_until(lambda: states().get("task 3") == "pending")
    assert [states().get(f"task {n}") for n in (1, 2)] == ["succeeded"] * 2
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(143)"])
def test_a_rank_that_ends_as_by_sigterm_has_failed(lab: Lab, end: str) -> None:
    """Nobody asked the job to end: a watchdog or earlyoom did that to one rank."""
    lab.submitted("-n", "1", lab.script(f"say('up')\nRANK == 0 and {end}\n{FAR}"))
    status = lab.until("failed")
    assert (status["attempt"], status["code"]) == (0, 143)
    assert "asked" not in status["why"]


def test_a_job_comes_after_one_that_succeeds_and_never_after_one_that_fails(lab: Lab) -> None:
    good = lab.submitted("-n", "3", lab.script("time.sleep(1)\n"))
    after = lab.submitted("-n", "3", "--after", good, lab.script("say('then')\n", "then.py"))
    assert lab.status(after)["state"] == "pending"
    lab.until("succeeded", job=after)
    bad = lab.submitted("-n", "3", lab.script("time.sleep(1)\nsys.exit(3)\n"))
    never = lab.submitted("-n", "3", "--after", bad, lab.script("say('then')\n", "then.py"))
    words = ("-n", "3", "--after", f"{bad}:any", lab.script("say('then')\n", "then.py"))
    anyhow = lab.submitted(*words)
    lab.until("failed", job=bad)
    lab.until("cancelled", job=never)
    lab.until("succeeded", job=anyhow)


def test_a_sweep_is_a_job_for_each_point(lab: Lab) -> None:
    """Slurm gets all of them, each with a directory below the sweep's; the failed one is told."""
    text = "lr = os.environ['PADDOCK_SWEEP_LR']\nsay(lr, sys.argv[1:])\nsys.exit(lr == '2')\n"
    words = ("-n", "1", "--name", "s", "--sweep", "lr=1:3:1", lab.script(text))
    done = lab.paddock("submit", *lab.words, "--nproc_per_node", 1, *words)
    assert done.returncode == 1, done.stderr
    assert "3 runs on slurm, 3 at once" in done.stderr
    states = [line.split()[1] for line in done.stdout.splitlines()[1:]]
    assert states == ["succeeded", "failed", "succeeded"]
    (sweep,) = (lab.hosts.shared / "jobs").iterdir()
    assert sorted(each.name[:-5] for each in sweep.iterdir()) == ["s-lr1", "s-lr2", "s-lr3"]


def test_what_slurm_says_no_to_leaves_nothing(lab: Lab, slurm: Slurm) -> None:
    """Exit code 2, the option named, no directory, no job, no entry."""
    script = lab.script(FAR)
    for words, part in (
        (("--partition", "nope"), "invalid partition specified: nope"),
        (("--constraint", "nope"), "Invalid feature"),
        (("--gres", "gpu:8"), "generic resource"),
        (("--time", "soon"), "--time"),
        (("--array", "1-x"), "array"),
        (("--after", "slurm://hosts/99999"), "does not know it"),
        (("--after", "slurm://other/1"), "goes to cluster hosts"),
    ):
        done = lab.submit("-n", "1", *words, script)
        assert (done.returncode, part in done.stderr) == (2, True), done.stderr
    assert slurm.jobs() == {}
    assert list((lab.hosts.shared / "jobs").iterdir()) == []


def test_without_slurm_here_one_error_says_so(lab: Lab) -> None:
    words = ("-b", "slurm,bin=/nope", "--root", str(lab.hosts.shared / "jobs"))
    done = lab.paddock("submit", *words, "-n", "1", lab.script(FAR))
    assert done.returncode == 2
    assert "scontrol is not in /nope" in done.stderr
    assert not (lab.hosts.shared / "jobs").exists()


def test_a_state_that_cannot_be_asked_is_unknown(lab: Lab, slurm: Slurm) -> None:
    """And a submission to a controller that is down leaves nothing."""
    script = lab.script(FAR)
    lab.submitted("-n", "1", script)
    lab.until_up(2)
    lab.hosts.controller.kill()
    text = slurm.conf.read_text()
    slurm.conf.write_text(text.replace("MessageTimeout=5", "MessageTimeout=1"))  # what they wait
    assert lab.status()["state"] == "unknown"
    done = lab.submit("-n", "1", script)
    assert done.returncode == 2, done.stderr
    assert len(list((lab.hosts.shared / "jobs").iterdir())) == 1


def test_a_lost_registry_is_found_again(lab: Lab) -> None:
    """Also of jobs that have ended: their directories tell."""
    lab.submitted("-n", "1", lab.script("say('done')\n"))
    lab.until("succeeded")
    job = lab.submitted("-n", "1", "--name", "mine", lab.script(FAR))
    lab.until_up(2, job)
    lab.laptop.run(["rm", "-r", ".local/state/paddock"])
    site = lab.laptop.home / ".config" / "paddock"
    site.mkdir(parents=True)
    (site / "sites.toml").write_text(
        f'[site.here]\nbackend = "slurm"\nroot = "{lab.hosts.shared}/jobs"\n'
    )
    assert lab.paddock("list", "--discover", "here").returncode == 0
    assert lab.status("mine")["state"] == "running"
    assert lab.paddock("stop", "--now", "mine").returncode == 0


def test_no_process_of_the_nodes_shows_the_key_or_a_value(lab: Lab) -> None:
    """Command lines are for everybody to read."""
    lab.submitted("-n", "1", "--env", "SECRET=hush-hush", lab.script(SAVES + FAR))
    until_said(lab, "up 0", 2)
    seen = b""
    for host in lab.hosts:
        for pid in host.pids():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    seen += file.read()
            except OSError:
                continue
    assert b"train.py" in seen and b"hush-hush" not in seen


def test_a_job_that_is_stopped_while_it_waits_leaves_no_value(lab: Lab) -> None:
    """Its script, which would remove the file of --env, never runs."""
    first = lab.submitted("-n", "1", lab.script(FAR))
    words = ("-n", "1", "--after", first, "--env", "SECRET=hush-hush")
    waiting = lab.submitted(*words, lab.script(FAR, "later.py"))
    folder = lab.hosts.shared / "jobs" / waiting_id(lab, waiting) / ".paddock"
    assert "hush-hush" in (folder / "env").read_text()
    assert lab.paddock("stop", waiting).returncode == 0
    lab.until("cancelled", job=waiting)
    assert not secrets_in(lab.folders(), "hush-hush")
    assert not (folder / "token").exists()


def waiting_id(lab: Lab, job: str) -> str:
    """The name of a job's directory."""
    return str(lab.status(job)["id"])


def test_init_writes_the_sites_that_answer_and_they_work_at_once(lab: Lab, slurm: Slurm) -> None:
    """Slurm with its partition, hosts of ~/.ssh/config but those that are silent; one is used."""
    config = lab.laptop.home / ".ssh" / "config"
    config.write_text(f"Host h1 h2 h9 *.far\n{config.read_text()}")
    folder = lab.project
    done = lab.paddock("init", "--yes")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 hosts of ~/.ssh/config answer; not h9" in done.stderr
    written = tomllib.loads((folder / "paddock.toml").read_text())
    assert written["defaults"] == {"site": "slurm"}
    assert written["site"]["slurm"] == {"backend": "slurm", "partition": "main"}
    assert written["site"]["hosts"] == {"backend": "ssh", "hosts": ["h1", "h2"]}
    lab.words = ("--root", str(slurm.hosts.shared / "jobs"))
    lab.submitted("-n", "2", lab.script("say('up')\n"))
    lab.until("succeeded")
    assert len(slurm.jobs()) <= 1
    lab.words = ("-b", "hosts")
    lab.submitted(lab.script("say('up')\n"))
    assert lab.until("succeeded")["backend"] == "ssh"


def test_submitit_code_runs_on_slurm(lab: Lab, slurm: Slurm) -> None:
    """Two tasks on each of two nodes, four jobs of one name, and a job beyond the partition."""
    on_shared_files(lab, slurm)
    done = lab.python(SUBMITIT, BASE / "bin" / "python3")
    assert done.returncode == 0, done.stderr
    expected = [[rank, rank // 2, rank % 2, 4, 2] for rank in range(4)]
    assert done.stdout.splitlines() == [str(expected), "COMPLETED", "[1, 2, 3, 4]", "True"]


def test_a_callable_of_submitit_goes_on_from_its_checkpoint(lab: Lab, slurm: Slurm) -> None:
    """Told to end in time, rank 0 calls checkpoint(); what it returns is for the next attempt.

    The other rank, on another node, ends when that is saved. The job has one number throughout.
    """
    on_shared_files(lab, slurm)
    slurm.hosts.install()  # for the ranks, by a line of setup
    done = lab.python(CHECKPOINTS, slurm.hosts.packages / "bin/python3", slurm.hosts.shared / "lib")
    assert done.returncode == 0, done.stderr
    number, run_id = done.stdout.split()
    assert [*slurm.jobs()] == [number]
    until_said(lab, "up from 0", 2)
    words = ["scancel", "--signal=TERM", "--batch", number]
    assert lab.laptop.run(words).returncode == 0
    assert lab.until("pending")["attempt"] == 1
    done = lab.python(FOUND_AGAIN, number, run_id)
    assert (done.stdout.split(), done.returncode) == ([number, run_id, "PENDING"], 0), done.stderr
    place = slurm.hosts.shared / "jobs" / run_id
    (saved,) = place.glob("paddock-call-*/checkpoint")
    loaded = "import pickle, sys; each, *words = pickle.load(open(sys.argv[1], 'rb'))"
    done = lab.python(f"{loaded}; print(each.step, *words)", saved)
    assert done.stdout == "5 ('a b',) {'c': 'c'}\n", done.stderr
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")


def test_a_checkpoint_that_returns_nothing_is_not_put_back(lab: Lab, slurm: Slurm) -> None:
    """As submitit has it; the job fails, and the log says why."""
    on_shared_files(lab, slurm)
    slurm.hosts.install()
    text = CHECKPOINTS.replace("return submitit.helpers.DelayedSubmission(self, word, c=c)", "pass")
    text = text.replace("time=10", "time=10, signal_delay_s=3")
    done = lab.python(text, slurm.hosts.packages / "bin/python3", slurm.hosts.shared / "lib")
    assert done.returncode == 0, done.stderr
    until_said(lab, "up from 0", 2)
    (number,) = slurm.jobs()
    words = ["scancel", "--signal=TERM", "--batch", number]
    assert lab.laptop.run(words).returncode == 0
    assert lab.until("failed")["attempt"] == 0
    until_said(lab, "checkpoint() returned None", 1)


def test_lines_of_setup_run_before_the_ranks(lab: Lab, slurm: Slurm) -> None:
    """In bash; what they do to the shell harms no job."""
    text = 'say("setup", os.environ["WORD"], os.path.basename(os.getcwd()))\n'
    lines = 'set -eu\njob=x; code=3; trap - TERM\nsource /dev/null\ncd /\nexport WORD="it\'s, a=b"'
    lab.submitted("-n", "2", "--setup", lines, lab.script(text))
    status = lab.until("succeeded")
    until_said(lab, f"setup it's, a=b {status['id']}", 4)
    for line, code in (("exit 0", 1), ("set -e\nfalse", 1), ("exit 7", 7), ("if true", 2)):
        lab.submitted("-n", "1", "--setup", line, lab.script(text))
        status = lab.until("failed")
        assert (status["why"], status["code"]) == ("a line of setup ended the job", code)
    done = lab.laptop.run(["ls", str(slurm.hosts.shared / "jobs" / status["id"] / ".paddock")])
    assert "token" not in done.stdout.split()
