"""backend.yaml in both layouts, and what of it cannot be honoured."""

from __future__ import annotations

import pytest

from paddock.rec.settings import EngineKind
from rec.config.conftest import Bench
from rec.config.test_golden import BACKEND, FLAT


def words(backend: str = "backend.yaml") -> list[str]:
    """A command line that submits."""
    return ["-m", "two", "-b", backend, "-o", "engine=cluster"]


def test_both_layouts_say_the_same(bench: Bench) -> None:
    """With `engine:` above all, and flat."""
    bench.put({"backend.yaml": BACKEND, "flat.yaml": FLAT})
    first, second = (bench.resolve(*words(name)).cluster for name in ("backend.yaml", "flat.yaml"))
    assert (first.backend, first.servers, first.workers) == ("kubernetes", 2, 2)
    assert (first.image, first.memory, first.storage, first.log_level) == (
        "hub.example/ctr/paddlerec:alpha", "4Gi", "10Gi", 0,
    )  # fmt: skip
    assert (second.servers, second.workers, second.cpus) == (3, 4, "8")
    assert second.options == {"namespace": "ml", "form": "paddlejob"}


def test_worker_num_is_trainer_num_and_they_must_agree(bench: Bench) -> None:
    """PaddleRec's page calls it so, its code did not read it."""
    bench.put({"backend.yaml": BACKEND.replace("trainer_num: 2", "worker_num: 5")})
    assert bench.resolve(*words()).cluster.workers == 5
    bench.put({"backend.yaml": BACKEND.replace("storage:", "worker_num: 5\n    storage:")})
    assert "worker_num is 5, and trainer_num is 2 (backend.yaml:8)" in bench.problems(*words())


def test_words_behind_the_file_and_o_change_what_it_says(bench: Bench) -> None:
    """As -b of paddock submit, and as every other key."""
    bench.put({"backend.yaml": BACKEND})
    recipe = bench.resolve(*words("backend.yaml,form=paddlejob,namespace=x"), "server_num=7")
    assert recipe.cluster.options == {"form": "paddlejob", "namespace": "x"}
    assert (recipe.cluster.servers, recipe.cluster.workers) == (7, 2)


@pytest.mark.parametrize(("text", "told"), [
    ("backend: PaddleCloud\nsubmit: {ak: x, sk: y}", "submit.ak is not supported | export it"),
    ("backend: PaddleCloud\nconfig: {fs_ugi: 'a,b'}\nsubmit: {}", "config.fs_ugi holds a secret"),
    ("backend: MPI\nsubmit: {hpc: /x}", "submit.hpc is not supported | that queue is not public"),
    ("backend: k9s\nsubmit: {}", "there is no backend 'k9s' | did you mean 'k8s'?"),
    ("engine:\n  submit: {}", "no backend is named"),
])  # fmt: skip
def test_what_cannot_be_honoured_names_its_replacement(bench: Bench, text: str, told: str) -> None:
    """And no secret is repeated."""
    bench.put({"backend.yaml": text})
    found = bench.problems(*words())
    assert told in found
    assert "'x'" not in found


def test_a_key_of_the_backend_that_nothing_reads_is_a_warning(bench: Bench) -> None:
    """`mermory`, as the page's explanation spells it."""
    bench.put({"backend.yaml": BACKEND.replace("memory:", "mermory:")})
    odd, gone = bench.resolve(*words()).warnings
    assert odd == ("backend.yaml:10: nothing reads engine.submit.mermory; did you mean 'memory'?")
    assert "on its own disk, which is removed with the pod" in gone


def test_a_backend_beside_another_engine_is_not_used_and_that_is_told(bench: Bench) -> None:
    """PaddleRec ignored it silently."""
    bench.put({"backend.yaml": BACKEND})
    recipe = bench.resolve("-m", "two", "-b", "backend.yaml", "-o", "engine=single")
    assert "the engine is single, so -b backend.yaml is not used" in recipe.warnings[0]


def test_a_backend_alone_submits_a_file_that_names_no_engine(bench: Bench) -> None:
    """PaddleRec 2.x has no word for it."""
    bench.put({"backend.yaml": BACKEND})
    assert bench.resolve("-m", "two", "-b", "backend.yaml").engine.value == "cluster"


def test_what_only_pods_have_is_told_where_there_are_none(bench: Bench) -> None:
    """The file of a cluster starts a job on this machine, too; nothing is dropped in silence."""
    bench.put({"backend.yaml": BACKEND.replace('"k8s"', '"local"')})
    found = bench.resolve(*words())
    cluster = found.cluster
    assert cluster.backend == "local"
    assert {cluster.image, cluster.memory, cluster.storage} == {None}
    for key in ("docker_image", "memory", "storage"):
        assert any(f"{key} is for pods, and backend local has none" in w for w in found.warnings)


def test_a_job_has_the_name_and_replaces_the_one_that_the_words_say(bench: Bench) -> None:
    """As the hint of a name in use tells; a run that is not submitted has no name."""
    bench.put({"backend.yaml": BACKEND})
    assert bench.resolve(*words(), "--name", "mine", "--replace").engine is EngineKind.CLUSTER
    told = bench.problems("-m", "two", "-o", "engine=single", "--replace")
    assert "--replace: for a job that is submitted, and the engine is single" in told
