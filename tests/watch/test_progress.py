"""Progress read from the lines that training libraries print."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.watch.progress import (
    ProgressReading,
    find_trackers,
    own_profiles,
    read_line,
    read_tail,
)

if TYPE_CHECKING:
    from pathlib import Path

BAR = "█████     "

# library, a line as it prints it, what is read: profile, step, steps, epoch, rate and unit, loss
LINES = [
    ("PaddleNLP 3", "[2026-05-01 10:00:00,123] [    INFO] - loss: 2.13456, learning_rate: 1e-05, "
     "global_step: 10, interval_runtime: 1.234, interval_samples_per_second: 6.7, "
     "progress_or_epoch: 0.02", ("paddlenlp", 10, None, None, 6.7, "samples/s", 2.13456)),
    ("PaddleNLP 2", "global step 100, epoch: 1, batch: 99, loss: 0.23456, speed: 3.20 step/s",
     ("plain", 100, None, None, 3.2, "step/s", 0.23456)),
    ("Paddle Model.fit", "step  20/938 [>....................] - loss: 0.2345 - acc: 0.9123 - "
     "ETA: 5s - 5ms/step", ("paddle", 20, 938, None, None, "", 0.2345)),
    ("PaddleClas", "[2026/10/10 10:10:10] ppcls INFO: [Train][Epoch 1/120][Iter: 10/313]lr: 0.1, "
     "top1: 0.0, CELoss: 6.90, loss: 6.91, batch_cost: 1.2s, ips: 51.2 images/sec, eta: 1:02:03",
     ("paddle", 10, 313, 1.0, 51.2, "images/sec", 6.91)),
    ("PaddleDetection", "[01/01 10:10:10] ppdet.engine INFO: Epoch: [0] [ 20/1250] "
     "learning_rate: 0.0001 loss_cls: 1.09 loss: 3.2 eta: 8:10:11 ips: 12.3 images/s",
     ("paddle", 20, 1250, 0.0, 12.3, "images/s", 3.2)),
    ("PaddleRec", "epoch: 0, batch_id: 10, auc: 0.512, avg_batch_cost: 0.01 sec, "
     "avg_samples: 512.0, ips: 45123.2 ins/s, loss: 0.6931",
     ("paddle", 10, None, 0.0, 45123.2, "ins/s", 0.6931)),
    ("Transformers 4", "{'loss': 2.3014, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, "
     "'epoch': 0.02}", ("huggingface", None, None, 0.02, None, "", 2.3014)),
    ("Transformers 5", "{'loss': '2.301', 'grad_norm': '1.25', 'epoch': '0.02'}",
     ("huggingface", None, None, 0.02, None, "", 2.301)),
    ("tqdm", f" 10%|{BAR}| 50/500 [00:10<01:30,  5.00it/s]",
     ("tqdm", 50, 500, None, 5.0, "it/s", None)),
    ("tqdm, slow", f" 10%|{BAR}| 50/500 [01:10<11:30,  2.00s/it, loss=0.123]",
     ("tqdm", 50, 500, None, 0.5, "it/s", 0.123)),
    ("Lightning", f"Epoch 0:  10%|{BAR}| 94/938 [00:05<00:45, 18.53it/s, v_num=0, "
     "train_loss=0.512]", ("lightning", 94, 938, 0.0, 18.53, "it/s", 0.512)),
    ("Keras 3", "469/938 ━━━━━━━━━━━━━━━━━━━━ 5s 5ms/step - accuracy: 0.9012 - loss: 0.2512",
     ("keras", 469, 938, None, None, "", 0.2512)),
    ("Megatron", " [2026-01-01 00:00:00] iteration        5/  500000 | consumed samples:      160 "
     "| elapsed time per iteration (ms): 500.1 | learning rate: 1.500E-04 | "
     "lm loss: 1.034567E+01 | loss scale: 1.0 |",
     ("megatron", 5, 500000, None, None, "", 10.34567)),
    ("torchtitan", "[rank0]:[titan] 2026-01-01 10:00:00,000 - root - INFO - step:  1  "
     "loss:  8.2145  memory: 10.23GiB(12.3%)  tps: 1,234  mfu: 3.4%",
     ("plain", 1, None, None, 1234.0, "tokens/s", 8.2145)),
    ("nanoGPT", "iter 10: loss 2.3012, time 30.12ms, mfu 1.23%",
     ("plain", 10, None, None, None, "", 2.3012)),
    ("a tutorial", "Epoch [1/5], Step [100/600], Loss: 0.1234",
     ("plain", 100, 600, 1.0, None, "", 0.1234)),
    ("PyTorch's MNIST", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300123",
     ("pytorch-example", 640, 60000, 1.0, None, "", 2.300123)),
    ("plain", "step=10 loss=2.3", ("plain", 10, None, None, None, "", 2.3)),
    ("epochs only", "epoch 3 train loss 0.25 val loss 0.31",
     ("plain", None, None, 3.0, None, "", 0.25)),
    ("JSON", '{"step": 12, "loss": 0.5}', ("plain", 12, None, None, None, "", 0.5)),
    ("glog", "I0101 12:00:00.000000 140 train.py:20] step 5, loss 3e-2, 120.5 examples/s",
     ("plain", 5, None, None, 120.5, "examples/s", 0.03)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "want"), [x[1:] for x in LINES], ids=[x[0] for x in LINES])
def test_the_lines_of_libraries_are_read(line: str, want: tuple[object, ...]) -> None:
    found = read_line(line)
    assert found is not None
    loss = dict(found.values).get("loss")
    got = (found.profile, found.step, found.steps, found.epoch, found.rate, found.rate_unit, loss)
    assert got == want


@pytest.mark.parametrize(
    "line",
    [
        "INFO: step 3 of the installation",
        "step time: 0.5 s",
        "Saving model checkpoint to out/checkpoint-500",
        "epoch",
        "0it [00:00, ?it/s]",
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in step',
        "[rank1]: ValueError: bad batch 7",
        "RuntimeError: loss is nan at step 120, lr 0.1",
        '    raise ValueError(f"batch 3 has 7 rows")',
        "/home/me/train.py:8: UserWarning: step 5 took 3",
    ],
)
def test_other_lines_are_no_progress(line: str) -> None:
    assert read_line(line) is None


def test_a_loss_that_is_no_number_is_read() -> None:
    found = read_line("Epoch: 3, Iteration: 200, Loss: nan")
    assert found is not None and found.step == 200
    assert str(dict(found.values)["loss"]) == "nan"


def test_the_latest_line_counts_also_where_a_bar_redraws_it() -> None:
    bar = f"\r 10%|{BAR}| 1/10 [00:01<00:09,  1.00it/s]\r 20%|{BAR}| 2/10 [00:02<00:08,  1.00it/s]"
    found = read_tail(b"step 1 loss 3\n" + bar.encode())
    assert found == ProgressReading("tqdm", 2, 10, None, 1.0, "it/s", ())
    assert read_tail(b"") is None


def test_a_user_adds_profiles() -> None:
    text = "# mine\nrounds  round (?P<step>[0-9]+) of (?P<steps>[0-9]+)\nbad  (\nempty  x\n"
    own, wrong = own_profiles(text)
    found = read_line("round 3 of 9: error 0.5", own)
    assert found is not None and (found.profile, found.step, found.steps) == ("rounds", 3, 9)
    assert [each.partition(":")[0] for each in wrong] == ["line 3", "line 4"]


@given(st.binary(max_size=3000))
def test_no_bytes_of_a_log_break_the_reader(tail: bytes) -> None:
    found = read_tail(tail)
    assert found is None or found.profile


@given(st.text(alphabet="step iter epoch loss=:0123456789./%|[]<, \t", max_size=400))
def test_no_line_takes_long(line: str) -> None:
    """Patterns must not backtrack without end: the test's own time limit would end it."""
    found = read_line(line)
    assert found is None or found.profile


LOG_OF_TRACKERS = """
wandb: View project at https://wandb.ai/me/proj
wandb: View run at https://wandb.ai/me/proj/runs/abc123
wandb: Docs https://docs.wandb.ai/guides
View run gentle-hog-5 at: http://127.0.0.1:5000/#/experiments/0/runs/1a2b
TensorBoard 2.15.1 at http://localhost:6006/ (Press CTRL+C to quit)
COMET INFO: Experiment is live on comet.com https://www.comet.com/ws/general/0123
swanlab: View run at https://swanlab.cn/@me/proj/runs/xyz
Aim UI at http://127.0.0.1:43800
wandb: run https://user:secret@host.example/x/runs/3?apiKey=secret
see https://pytorch.org/docs
"""


def test_the_pages_of_trackers_are_found_without_their_secrets() -> None:
    assert find_trackers(LOG_OF_TRACKERS.encode()) == [
        ("wandb", "https://wandb.ai/me/proj/runs/abc123"),
        ("mlflow", "http://127.0.0.1:5000/#/experiments/0/runs/1a2b"),
        ("tensorboard", "http://localhost:6006/"),
        ("comet", "https://www.comet.com/ws/general/0123"),
        ("swanlab", "https://swanlab.cn/@me/proj/runs/xyz"),
        ("aim", "http://127.0.0.1:43800"),
        ("wandb", "https://host.example/x/runs/3"),
    ]


def test_a_users_own_profile_is_wired_and_its_page_of_a_tracker_is_told(tmp_path: Path) -> None:
    """The first line of a log that is longer than the part that is read each second counts."""
    config = tmp_path / "config" / "paddock"
    config.mkdir(parents=True)
    (config / "progress.txt").write_text("# mine\nrounds  round (?P<step>[0-9]+) of\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(config.parent), "HOME": str(tmp_path),
           "XDG_STATE_HOME": str(tmp_path / "state")}  # fmt: skip
    (tmp_path / "t.py").write_text(
        "import time\nprint('wandb: View run at https://wandb.ai/a/b/runs/1')\n"
        "for s in range(30):\n print('x' * 1000)\n print(f'round {s} of 9', flush=True)\n"
        " time.sleep(0.1)\n"
    )

    def paddock(*words: str) -> str:
        argv = [sys.executable, "-m", "paddock", *words]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True,
                              check=False, timeout=60)  # fmt: skip
        return f"{done.returncode}\n{done.stdout}\n{done.stderr}"

    assert paddock("launch", "--devices", "cpu", "t.py").startswith("0\n")
    status = paddock("status", "last")
    assert "  steps: read from the log, lines as of rounds\n" in status
    assert "  wandb: https://wandb.ai/a/b/runs/1\n" in status
    assert "steps: read from the log, lines as of rounds" in paddock("top", "last")
    assert "29 steps" in paddock("bill", "last"), "the last line counts as well"
    (config / "progress.txt").write_text("mine ((\nother nothing\n")
    refused = paddock("launch", "--devices", "cpu", "t.py")
    assert refused.startswith("2\n")
    assert "line 1: missing )" in refused and "line 2: no group" in refused


@pytest.mark.parametrize(
    "line",
    [
        "step 1 loss 2 a" + "1" * 5000 + "/",
        "step 1 loss" + " " * 5000 + "x",
        "step 1 " + "abc " * 1000,
        "step 1 a (" + "a " * 2000,
        "epoch: [1/1] " * 400 + "batch_id",
        "epoch 1 x " * 500 + "loss",
    ],
)  # fmt: skip
def test_a_long_line_is_read_at_once(line: str) -> None:
    """A match keeps all threads of the launcher waiting: some took longer than a test may."""
    reading = read_tail(line.encode())
    assert reading is None or reading.profile in ("plain", "paddle")


def test_colours_are_passed_over() -> None:
    reading = read_tail(b"\x1b[32mstep 5\x1b[0m \x1b[1;31mloss\x1b[0m 0.5\n")
    assert reading is not None
    assert (reading.step, reading.values) == (5, (("loss", 0.5),))


def test_a_rate_that_is_no_number_keeps_the_step() -> None:
    """A history's reader takes no row with such a rate."""
    reading = read_line("step 5, loss: nan, ips: inf")
    assert reading is not None
    assert (reading.step, reading.rate) == (5, None)


@pytest.mark.parametrize("pattern", ["(?P<step>\\d{99999999999})", "(" * 5000 + "(?P<step>.)"])
def test_a_profile_that_python_cannot_read_is_told(pattern: str) -> None:
    profiles, wrong = own_profiles(f"mine {pattern}")
    assert profiles == []
    assert wrong[0].startswith("line 1: ")


@pytest.mark.parametrize(
    ("pattern", "is_wrong"),
    [
        (r"(\w+\s?)+ step (?P<step>\d+)", True),
        (r"(?:(?:a*b)|c){2,} (?P<step>\d+)", True),
        (r"(?:x|(?=(a+)+b))(?P<step>\d+)", True),
        (r"(?:a+,){0,9} round \((?P<step>\d+)\)+ of (?P<steps>[\d+*]*)", False),
        (r"a)(?P<step>1", False),
        (r"(?:a|b)* .*? (?P<step>\d{1,9})", False),
    ],
)  # fmt: skip
def test_a_repeat_in_a_repeat_is_refused(pattern: str, is_wrong: bool) -> None:
    """The launcher stood still for it, and no signal stopped it."""
    profiles, wrong = own_profiles(f"mine {pattern}")
    assert (len(profiles), len(wrong)) == ((0, 1) if is_wrong else (1, 0)), wrong
