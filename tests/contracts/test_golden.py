"""Every contract, rendered for a few plans, compared with reviewed text files.

PADDOCK_RECORD=1 pytest tests/contracts writes them again; read the difference before committing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contracts.worlds import PLANS
from paddock.contracts import CONTRACTS, contract_names, contracts_of, world_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import Contract, World

GOLDEN = Path(__file__).parent / "golden"
RECORD = os.environ.get("PADDOCK_RECORD") == "1"

# Contract -> plans in its golden file.
SHOWN = {
    "plain": ("1x2-cpu", "heter"),
    "legacy": ("2x2-gpu", "ps-2+2"),
    "paddle": ("1x2-cpu", "2x2-gpu", "2x2-xpu", "2x2-npu", "2x2-dcu", "1x1-4gpu", "2x2-ipv6"),
    "paddle_ps": ("ps-2+2", "heter"),
    "paddock_ps": ("ps-2+2", "heter"),
    "paddle_rpc": ("rpc-1x2",),
    "torch": ("1x2-cpu", "2x2-gpu", "2x2-ipv6", "ps-2+2"),
    "jax": ("1x2-cpu", "2x2-gpu", "1x1-4gpu", "2x2-ipv6"),
    "mpi": ("1x2-cpu", "2x2-gpu"),
}


def render(contract: Contract, world: World) -> str:
    """One block per process, variables sorted."""
    blocks = []
    for proc in world.plan.procs:
        found = contract(world, proc)
        lines = [f"{name}={found[name]}" for name in sorted(found)] or ["(nothing)"]
        blocks.append("\n".join([f"[{proc.name} on {proc.host}]", *lines]))
    return "\n\n".join(blocks)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_contract_gives_the_recorded_environment(name: str) -> None:
    """A variable that changes breaks somebody's script; the change must be seen and wanted."""
    texts = []
    for shown in SHOWN[name]:
        plan = PLANS[shown]
        at = next((f, plan.mode) for f in CONTRACTS if name in contract_names(f, plan.mode))
        contract = contracts_of(*at)[contract_names(*at).index(name)]
        texts.append(f"==== {shown}\n\n{render(contract, world_of(plan))}\n")
    text = "\n".join(texts)
    path = GOLDEN / f"{name}.txt"
    if RECORD:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_contract_has_a_golden_file_and_every_file_a_contract() -> None:
    """A new framework cannot be added without one."""
    used = {n for f in CONTRACTS for p in PLANS.values() for n in contract_names(f, p.mode)}
    assert used == set(SHOWN) == {path.stem for path in GOLDEN.glob("*.txt")}
