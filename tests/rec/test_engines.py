"""A recipe becomes the words of another program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.errors import UsageError
from paddock.rec.config.args import RecArgs
from paddock.rec.engines import command, package_of
from paddock.rec.settings import (
    Cluster,
    EngineKind,
    ModelKind,
    Reading,
    Recipe,
    StrategySpec,
    Task,
    TrainingRun,
)


def recipe(engine: EngineKind, cluster: Cluster | None = None, threads: int = 1) -> Recipe:
    """A recipe of one run of a user's model in /home/me/model."""
    reading = Reading(("/home/me/model/data",), 2, reader="/home/me/model/my_reader.py")
    run = TrainingRun(
        "train", Task.TRAIN, ModelKind.DYGRAPH, "/home/me/model", "/home/me/model/m.py",
        reading=reading, strategy=StrategySpec(threads=threads),
    )  # fmt: skip
    return Recipe(engine, (run,), cluster or Cluster())


def words(found: Recipe, request: RecArgs) -> str:
    """The command on one line."""
    return " ".join(command(found, request, "/home/me/model/config.yaml", "py").words)


def test_single_is_the_worker_program_with_the_same_words() -> None:
    """It takes our place: its exit code is the exit code."""
    request = RecArgs("model", options=(("epochs", "2"),), evaluate=True)
    assert words(recipe(EngineKind.SINGLE), request) == (
        "py -u -m paddock.rec.worker -m model -o epochs=2 --evaluate"
    )


def test_a_local_cluster_is_paddock_launch_with_its_own_servers() -> None:
    """The script is a module, which the launcher need not read to know whose servers they are."""
    found = recipe(EngineKind.LOCAL_CLUSTER, Cluster(servers=2, workers=3), threads=4)
    assert words(found, RecArgs("c.yaml")) == (
        "py -m paddock launch --log_level WARNING --server_num 2 --worker_num 3 --server_script "
        "pserver --max_restart 3 --restart-on signal -m paddock.rec.worker -m c.yaml"
    )
    never = recipe(EngineKind.LOCAL_CLUSTER, Cluster(max_restart=0))
    assert " --max_restart 0 -m " in words(never, RecArgs("c.yaml"))
    assert command(found, RecArgs("c.yaml"), "/c.yaml", "py").env == {
        "OMP_NUM_THREADS": "4", "PADDOCK_PS_STATE": "job",
    }  # fmt: skip


def test_devices_without_servers_are_processes_of_launch() -> None:
    """Gradients are averaged among them."""
    options = {"collective": True, "devices": "0,1"}
    found = recipe(EngineKind.LOCAL_CLUSTER, Cluster(servers=0, workers=2, options=options))
    assert "launch --log_level WARNING --devices 0,1 --nproc_per_node 2 -m" in words(
        found, RecArgs("c.yaml")
    )


def test_a_kubernetes_backend_is_paddock_submit_with_all_it_says() -> None:
    """The folder travels; threads are processors of the pods and of the libraries."""
    cluster = Cluster("kubernetes", "PaddleRec_CTR", 2, 4, "img:1", "4Gi", "10Gi", log_level=1,
                      options={"form": "volcano-job", "namespace": "ml"})  # fmt: skip
    assert words(recipe(EngineKind.CLUSTER, cluster, 3), RecArgs("c/config.yaml")) == (
        "py -m paddock submit -b kubernetes,form=volcano-job,storage=10Gi,namespace=ml "
        "--name paddlerec-ctr --package /home/me/model --image img:1 --memory 4Gi --cpu 3 "
        "--env GLOG_v=1 --env OMP_NUM_THREADS=3 --server_num 2 --worker_num 4 "
        "--server_script pserver -m paddock.rec.worker -m config.yaml"
    )


@pytest.mark.parametrize(
    ("backend", "options", "is_kept"),
    [
        ("ssh", {}, True),
        ("slurm", {"site": "slurm,partition=p"}, True),
        ("kubernetes", {"form": "job"}, True),
        ("kubernetes", {"site": "kubernetes,form=job"}, True),
        ("kubernetes", {"form": "volcano-job"}, False),
        ("kubernetes", {"site": "kubernetes"}, False),
    ],
)
def test_servers_of_a_cluster_keep_their_tables_where_an_attempt_finds_them(
    backend: str, options: dict[str, object], is_kept: bool
) -> None:
    """Workers were started again at batch 0, with empty tables, without a word."""
    for count in (None, 0, 3):
        cluster = Cluster(backend, "job", 2, 2, max_restart=count, options=options)
        said = words(recipe(EngineKind.CLUSTER, cluster), RecArgs("c.yaml"))
        assert ("--env PADDOCK_PS_STATE=job" in said) == (is_kept and bool(count)), count


def test_a_site_is_handed_on_as_it_was_typed() -> None:
    """paddock submit knows its sites."""
    cluster = Cluster("lab", options={"site": "lab,partition=p"})
    assert " submit -b lab,partition=p --package " in words(
        recipe(EngineKind.CLUSTER, cluster), RecArgs("c.yaml")
    )


def test_a_secret_is_not_kept_with_a_submitted_job() -> None:
    """Words of the command are in files of the job, on hosts; a variable's name may be."""
    found = recipe(EngineKind.CLUSTER, Cluster(backend="slurm"))
    request = RecArgs("c.yaml", options=(("fs.passwd", "hunter2"), ("hdfs.ugi", "${UGI}")))
    with pytest.raises(UsageError, match=r"-o fs\.passwd is a secret") as caught:
        words(found, request)
    assert len(caught.value.problems) == 1
    assert "hunter2" not in str(caught.value)
    assert "hdfs.ugi=${UGI}" in words(found, replace(request, options=request.options[1:]))


def test_inside_of_a_cluster_the_worker_runs_whatever_the_engine() -> None:
    """-r WORKER, as PaddleRec's own manifests say."""
    found = recipe(EngineKind.CLUSTER, Cluster("kubernetes"))
    assert words(found, RecArgs("c.yaml", role="WORKER")).startswith("py -u -m paddock.rec.worker")


def test_the_package_holds_what_lies_beside_the_file_too() -> None:
    """A reader one directory above makes that one travel."""
    found = recipe(EngineKind.CLUSTER)
    request = RecArgs("x/config.yaml")
    assert package_of(found, request, "/home/me/x/config.yaml") == ("/home/me", "x/config.yaml")


def test_a_dotted_name_stays_one() -> None:
    """The bundled models travel with the launcher."""
    found = recipe(EngineKind.CLUSTER)
    name = "paddlerec.models.rank.dnn"
    folder = "/x/paddock/rec/models/rank/dnn"
    assert package_of(found, RecArgs(name), f"{folder}/config.yaml") == (folder, name)


def test_a_directory_is_no_dotted_name() -> None:
    """`-m model` has no slash either; the worker finds the file in what travelled."""
    found = package_of(recipe(EngineKind.CLUSTER), RecArgs("model"), "/home/me/model/config.yaml")
    assert found == ("/home/me/model", "config.yaml")


def test_what_is_said_behind_the_file_of_a_backend_is_the_pods() -> None:
    """-b backend.yaml,cpu=300m: it was lost to the number of threads."""
    options = {"form": "job", "cpu": "300m", "memory": "1Gi"}
    found = recipe(
        EngineKind.CLUSTER, Cluster("kubernetes", image="i:1", memory="4Gi", options=options)
    )
    line = words(found, RecArgs("c.yaml"))
    assert "-b kubernetes,form=job,cpu=300m,memory=1Gi " in line and " --image i:1 " in line
    assert "--cpu" not in line and "--memory" not in line


def test_the_name_and_what_it_replaces_are_words_of_submit() -> None:
    """The hint of a name in use says --replace, or another --name."""
    found = recipe(EngineKind.CLUSTER, Cluster("local", job_name="k8s-ctr"))
    assert " --name k8s-ctr " in words(found, RecArgs("c.yaml"))
    request = RecArgs("c.yaml", name="mine", replace=True)
    assert " --name mine --replace --package " in words(found, request)
