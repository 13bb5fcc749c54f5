"""Train with the Trainer of Hugging Face Transformers, which finds the ranks by itself.

    paddock launch --nproc-per-node 2 examples/libraries/hf_trainer_train.py

A GPT-2 of one small layer, made here, learns to count. Every 20 steps there is a checkpoint, and a
restarted job goes on from the last one.
"""

import os
import signal

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FOLDER = os.environ.get("CHECKPOINTS", "checkpoints-hf-trainer")
RANK, ATTEMPT = int(os.environ.get("RANK", "0")), os.environ.get("PADDOCK_ATTEMPT", "0")


class FailOnce(TrainerCallback):
    """Ends rank 1 at the step FAIL_AT, in the first attempt, to see a restart."""

    def on_step_begin(self, args, state, control, **kwargs):
        if (RANK, str(state.global_step), ATTEMPT) == (1, os.environ.get("FAIL_AT"), "0"):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train for 60 steps, less those of the last checkpoint."""
    arguments = TrainingArguments(
        FOLDER, max_steps=60, save_steps=20, logging_steps=10, per_device_train_batch_size=8,
        learning_rate=1e-2, use_cpu=not torch.cuda.is_available(), report_to="none",
        disable_tqdm=True, ddp_find_unused_parameters=False,
    )  # fmt: skip
    print(f"rank {arguments.process_index} of {arguments.world_size} is up", flush=True)
    config = GPT2Config(
        vocab_size=16,
        n_positions=16,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    rows = [torch.arange(start, start + 16) % 16 for start in range(512)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[FailOnce()])
    last = get_last_checkpoint(FOLDER) if os.path.isdir(FOLDER) else None
    if last:
        print(f"rank {RANK} resumes from {os.path.basename(last)}", flush=True)
    trainer.train(resume_from_checkpoint=last)
    loss = trainer.state.log_history[-2]["loss"]
    weights = sum(w.double().abs().sum().item() for w in model.parameters())
    print(f"rank {RANK}: loss {loss:.5f}, weights {weights:.7f}", flush=True)


if __name__ == "__main__":
    main()
