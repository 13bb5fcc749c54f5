"""Call a function in N ranks, ROUNDS times: `python calls.py SIDE NPROCS ROUNDS`; one JSON line.

Each side in its own words, in a Python of its own. A row for each call: seconds until the function
ran in the last rank, and until its results, or the end where a launcher returns none, were here.
"""

import json
import os
import sys
import tempfile
import time


def now(_number=0):
    """What the ranks run: it imports nothing that is not there."""
    return time.monotonic()


def with_paddock(nprocs):
    """Return a call; it imports what it needs, as everything of paddock does."""
    import paddock

    return lambda: paddock.launch(now, nproc=nprocs, quiet=True).results()


def with_submitit(nprocs):
    """The local executor."""
    import submitit

    executor = submitit.AutoExecutor(folder=tempfile.mkdtemp(), cluster="local")
    executor.update_parameters(tasks_per_node=nprocs, timeout_min=5)
    return lambda: executor.submit(now).results()


def with_accelerate(nprocs):
    """notebook_launcher forks this process and returns nothing: ranks write when they ran."""
    from accelerate import notebook_launcher

    folder = tempfile.mkdtemp()

    def rank():
        with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
            file.write(str(now()))

    def call():
        notebook_launcher(rank, num_processes=nprocs)
        return [float(open(os.path.join(folder, str(n))).read()) for n in range(nprocs)]

    return call


def with_ray(nprocs):
    """TorchTrainer, on a cluster of this machine that runs already."""
    import ray.train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(log_to_driver=False, include_dashboard=False, num_cpus=nprocs + 2)
    folder = tempfile.mkdtemp()

    def rank(config):
        at = now()
        with open(os.path.join(folder, str(ray.train.get_context().get_world_rank())), "w") as file:
            file.write(str(at))

    def call():
        scale = ScalingConfig(num_workers=nprocs)
        TorchTrainer(rank, scaling_config=scale, run_config=RunConfig(storage_path=folder)).fit()
        return [float(open(os.path.join(folder, str(n))).read()) for n in range(nprocs)]

    return call


def with_monarch(nprocs):
    """New processes for each call, which end with this one."""
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def train(self):
            return now()

    def call():
        ranks = this_host().spawn_procs(per_host={"ranks": nprocs}).spawn("trainer", Trainer)
        return [value for _, value in ranks.train.call().get().items()]

    return call


def main(side, nprocs, rounds):
    call = globals()[f"with_{side}"](int(nprocs))
    rows = []
    for _ in range(int(rounds)):
        began = time.monotonic()
        values = call()
        rows.append((max(values) - began, time.monotonic() - began))
    sys.stdout.write(f"\n{json.dumps(rows)}\n")
    sys.stdout.flush()
    os._exit(0)  # some peers end for seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
