"""Which ranks the libraries find inside the ranks of other launchers, as environment.md says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from real.conftest import Launch, Need

# What srun, mpirun, jsrun, MVAPICH, SageMaker and AzureML tell their task number 3 of 4.
OUTER = {
    "SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_JOB_NAME": "train", "PMI_RANK": "3", "PMI_SIZE": "4",
    "PMIX_RANK": "3", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "4",
    "JSM_NAMESPACE_RANK": "3", "LSB_JOBID": "5", "SM_TRAINING_ENV": "{}",
    "AZUREML_EXPERIMENT_ID": "x",
}  # fmt: skip
SCRIPT = """\
import json, os
from accelerate import Accelerator
from lightning.fabric import Fabric
from lightning.fabric.utilities.rank_zero import _get_rank

state = Accelerator().state
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
lightning = type(fabric._connector.cluster_environment).__name__
found = {
    "accelerate": [state.process_index, state.num_processes],
    "lightning": [fabric.global_rank, fabric.world_size, lightning, _get_rank()],
    "deepspeed": os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] == os.environ["LOCAL_RANK"],
}
print("found", json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.limit(240)
def test_libraries_find_our_ranks_inside_those_of_other_launchers(
    launch: Launch, need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And Accelerate trains together on a CPU: --devices cpu tells it, the script says nothing."""
    need(modules=["torch", "accelerate", "lightning"])
    for name, text in OUTER.items():
        monkeypatch.setenv(name, text)
    script = tmp_path / "find.py"
    script.write_text(SCRIPT)
    done = launch("--standalone", "--nproc-per-node=2", "--devices=cpu", str(script)).end()
    assert done.code == 0 and done.left == [], done.output
    for rank in (0, 1):
        (found,) = re.findall(r"^found (.*)$", done.log(rank), re.MULTILINE)
        assert json.loads(found) == {
            "accelerate": [rank, 2],
            "lightning": [rank, 2, "TorchElasticEnvironment", rank],
            "deepspeed": True,
        }
