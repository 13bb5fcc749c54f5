"""Reading what the vendors' tools print. Sources of the captures: golden/README.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.accel import accelerator

GOLDEN = Path(__file__).parent / "golden"
KINDS = ("gpu", "xpu", "dcu", "npu")


@pytest.mark.parametrize(
    ("kind", "capture", "numbers"),
    [
        ("gpu", "nvidia-smi", ["0", "1", "2"]),
        ("gpu", "nvidia-smi-none", []),
        ("xpu", "xpu_smi", ["0", "1"]),
        ("xpu", "xpu_smi-sriov", ["1", "2"]),
        ("dcu", "hy-smi", ["0", "1", "2", "3"]),
        ("dcu", "rocm-smi", ["0", "1"]),
        ("npu", "npu-smi", ["0", "1"]),
    ],
)
def test_a_vendors_listing_gives_its_devices(kind: str, capture: str, numbers: list[str]) -> None:
    """Each device is counted once, whatever tables, service chips or headers stand around it."""
    text = (GOLDEN / f"{capture}.txt").read_text(encoding="utf-8")
    assert [d.number for d in accelerator(kind).parse(text)] == numbers


def test_nvidia_listing_keeps_the_uuids() -> None:
    """--devices GPU-... is resolved through them."""
    text = (GOLDEN / "nvidia-smi.txt").read_text(encoding="utf-8")
    assert accelerator("gpu").parse(text)[2].uuid == "GPU-91aa0c3b-77c1-4d3f-9be2-4a5f9a7c3b03"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", "\n\n", "error: driver not loaded\n", "|\x00|\n0\n", "-,-,-"])
def test_a_tool_that_fails_lists_nothing(kind: str, text: str) -> None:
    """A broken driver prints prose on stdout; that must not become a device or a traceback."""
    assert accelerator(kind).parse(text) == ()


def test_the_later_kunlun_table_is_read_by_its_pci_addresses() -> None:
    """The newer tool prints two rows per device, and the address stands in the first one."""
    text = "|   0  P800 OAM      N/A | 00000000:03:00.0 N/A |   0 |\n| N/A 40C N/A 88W / 400W |\n"
    assert [d.number for d in accelerator("xpu").parse(text)] == ["0"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_accelerator_is_complete(kind: str) -> None:
    """The shell relies on a trace, a command and a variable."""
    found = accelerator(kind)
    assert found.visible and found.traces and found.commands
