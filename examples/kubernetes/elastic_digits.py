"""train_fleet.py for a job whose size changes: it saves after every epoch, and goes on from there.

    paddock launch elastic_digits.py

When pods come or go, the launcher starts all ranks again with their new numbers; those that are new
have no checkpoint. So nobody has to share a disk: all ranks say which epoch they have, the newest
one sends its state to the others, and every pod keeps a copy. A shared folder does as well.
"""

import argparse
import os
import socket
import time
from pathlib import Path

import digits
import paddle
import paddle.distributed as dist
from train_fleet import accuracy, batches, resnet, train_epoch

NAME = "digits.checkpoint"


def saved(folder: Path) -> dict:
    """The checkpoint of this pod; epoch 0 without one."""
    path = folder / NAME
    if not path.exists():
        return {"epoch": 0}
    found: dict = paddle.load(str(path))
    return found


def save(folder: Path, state: dict) -> None:
    """Replace the checkpoint whole, or not at all."""
    beside = folder / f".{NAME}.{socket.gethostname()}.{os.getpid()}"
    paddle.save(state, str(beside))
    beside.replace(folder / NAME)


def newest(own: dict, size: int) -> dict:
    """The state of whichever rank is furthest, on every rank."""
    if size == 1:
        return own
    epochs: list[int] = []
    dist.all_gather_object(epochs, own["epoch"])
    source = epochs.index(max(epochs))
    sent = [own if dist.get_rank() == source else None]
    dist.broadcast_object_list(sent, source)
    return sent[0]


def as_arrays(state: dict) -> dict:
    """Tensors as numpy arrays: what can be sent, and read by any Paddle."""
    return {name: x.numpy() if hasattr(x, "numpy") else x for name, x in state.items()}


def main() -> None:
    """Train up to the last epoch, from wherever the job is."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--epochs", type=int, default=10)
    words.add_argument("--dir", type=Path, default=Path("/tmp/checkpoint"), help="of checkpoints")
    words.add_argument("--epoch-seconds", type=float, default=0.0, help="at least so long an epoch")
    options = words.parse_args()
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    options.dir.mkdir(parents=True, exist_ok=True)
    state = newest(saved(options.dir), size)
    print(f"rank {rank} of {size} is up, after epoch {state['epoch']}", flush=True)

    paddle.seed(0)
    data = digits.load()
    model = resnet()
    # More ranks are not a reason for another rate here: the batch of the whole job stays the same.
    optimizer = paddle.optimizer.Adam(3e-3, parameters=model.parameters())
    if state["epoch"]:
        model.set_state_dict(state["model"])
        optimizer.set_state_dict(state["optimizer"])
    parallel = paddle.DataParallel(model)
    loader = batches(data, rank, size)
    is_keeper = os.environ.get("PADDLE_LOCAL_RANK", "0") == "0"  # one of each pod
    for epoch in range(state["epoch"], options.epochs):
        begun = time.monotonic()
        loader.batch_sampler.set_epoch(epoch)
        loss = train_epoch(parallel, optimizer, loader)
        if is_keeper:
            kept = {"model": as_arrays(model.state_dict())}
            kept["optimizer"] = as_arrays(optimizer.state_dict())
            save(options.dir, {"epoch": epoch + 1, **kept})
        print(f"rank {rank} of {size} epoch {epoch + 1} loss {loss:.4f}", flush=True)
        time.sleep(max(0.0, options.epoch_seconds - (time.monotonic() - begun)))
    if rank == 0:
        print(f"accuracy {accuracy(model, data):.3f} on {len(data.test_y)} unseen digits")


if __name__ == "__main__":
    main()
