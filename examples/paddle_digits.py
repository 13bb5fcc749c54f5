"""Train a digit classifier on real images with PaddlePaddle, on any number of processes.

    paddock launch --nproc-per-node 2 examples/paddle_digits.py

The 1,797 images (8 x 8, handwritten) ship inside scikit-learn: nothing is downloaded. Nothing here
is about Paddock: the same file runs alone (`python examples/paddle_digits.py`) and under any
launcher that sets Paddle's variables. Rank 0 prints `accuracy 0.97` or better. torch_digits.py
is the same with PyTorch.
"""

import paddle
import paddle.distributed as dist
from paddle import nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

EPOCHS = 15
BATCH = 64  # of the whole job: each of n processes takes 64 / n images a step


def main() -> None:
    """Train on this rank's share of the images; rank 0 measures on images nobody trained on."""
    dist.init_parallel_env()  # reads PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, ...
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world_size} is up", flush=True)
    paddle.seed(0)  # the same first weights everywhere

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels.astype("int64"), test_size=0.2, random_state=0, stratify=labels
    )

    model = paddle.DataParallel(
        nn.Sequential(
            nn.Conv2D(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2D(16, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )
    )
    optimizer = paddle.optimizer.Adam(learning_rate=2e-3, parameters=model.parameters())
    train = paddle.io.TensorDataset([paddle.to_tensor(train_x), paddle.to_tensor(train_y)])
    # Gives each rank its own share of every epoch, shuffled the same way on all.
    sampler = paddle.io.DistributedBatchSampler(train, BATCH // world_size, shuffle=True)
    loader = paddle.io.DataLoader(train, batch_sampler=sampler)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # DataParallel averages the gradients over the ranks here
            optimizer.step()
            optimizer.clear_grad()
            total += float(loss)
        if rank == 0:  # one line that is written over, as a progress bar is
            shown = f"epoch {epoch + 1}/{EPOCHS}  loss {total / len(loader):.4f}"
            print(shown, end="\r" if epoch + 1 < EPOCHS else "\n", flush=True)

    if rank == 0:
        model.eval()
        with paddle.no_grad():
            guess = model(paddle.to_tensor(test_x)).argmax(axis=1).numpy()
        print(f"accuracy {(guess == test_y).mean():.3f} on {len(test_y)} unseen images")


if __name__ == "__main__":
    main()
