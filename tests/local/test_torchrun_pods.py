"""Two pods of Kubeflow Trainer on this machine: no flags, only the variables it sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.jobs import free_port

if TYPE_CHECKING:
    from local.jobs import World


def test_two_pods_with_the_variables_of_kubeflow_are_one_job(world: World) -> None:
    """They were two jobs of one rank each, and both succeeded."""
    port = free_port()
    script = world.script("tell('rank', RANK, os.environ['WORLD_SIZE'])")
    pods = [
        world.start(
            script,
            log_dir=world.folder / f"log{node}",
            env={
                "PET_NNODES": "2",
                "PET_NPROC_PER_NODE": "2",
                "PET_NODE_RANK": str(node),
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": str(port),
            },
        )
        for node in range(2)
    ]
    assert [pod.end().code for pod in pods] == [0, 0]
    assert sorted(world.events.all("rank")) == [("rank", str(r), "4") for r in range(4)]


def test_any_free_port_of_localhost_is_a_job_of_one_node(world: World) -> None:
    """torchtitan's line, which was refused."""
    ended = world.run("--nproc_per_node=2", "--rdzv_backend", "c10d", "--rdzv_endpoint=localhost:0",
                      "--local-ranks-filter", "0", "--role", "rank", "--tee", "3",
                      world.script("print('ready', RANK, os.environ['ROLE_NAME'])"))  # fmt: skip
    assert ended.code == 0
    assert ended.out == "[rank 0] ready 0 rank\n"
