"""`paddock rec` on a terminal: how far it is, and the curves that it leaves."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from watched import OnTerminal, left_on

pytestmark = pytest.mark.real
FLAGS = (
    "-m", "paddlerec.models.rank.fm", "-o",
    "train_data_dir=generated:criteo?examples=9000000&seed=1",
    "epochs=1", "print_interval=1", "save_dir=out",
)  # fmt: skip


@pytest.mark.limit(200)
def test_a_terminal_sees_examples_and_loss_and_ctrl_c_leaves_curves(tmp_path: Path) -> None:
    """The line goes away; curves.svg has what was trained."""
    pytest.importorskip("torch")
    command = OnTerminal("rec", *FLAGS, cwd=tmp_path, columns=120)
    line = r"paddock: epoch 0, [\d,]+ of 9,000,000 examples, [\d,]+/s, .* left, loss 0\.\d+, auc 0"
    command.until(lambda text: re.search(line, text), seconds=150)
    code, shown = command.end(signal.SIGINT)
    assert code == 130
    assert left_on(shown)[-1] == "paddock: stopped by Ctrl-C; there is no checkpoint"
    assert not [text for text in left_on(shown) if "of 9,000,000" in text]
    text = (tmp_path / "out" / "curves.svg").read_text()
    assert [name for name in ("loss", "auc", "examples/s") if f">{name}</text>" not in text] == []
