"""One script that is a server or a trainer, as Paddle's environment says; PyTorch computes.

    paddock launch --server-num 2 --worker-num 2 examples/ps/fleet_script.py --strategy sync

The same file works as the command of a PaddleJob's ps and worker containers, and by hand:

    export PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:7164 PADDLE_TRAINERS_NUM=1
    TRAINING_ROLE=PSERVER POD_IP=127.0.0.1 PADDLE_PORT=7164 python examples/ps/fleet_script.py &
    TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=0 python examples/ps/fleet_script.py; kill %1
"""

import argparse

import criteo_like

from paddock.ps import fleet


def strategy_of(options: argparse.Namespace) -> fleet.DistributedStrategy:
    """What --strategy asks for, in Paddle's words; half_async and staleness are not Paddle's."""
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = options.strategy != "sync"
    configs = {
        "geo": {"k_steps": 100},
        "half_async": {"half_async": True},
        "staleness": {"staleness": options.staleness},
    }
    strategy.a_sync_configs = configs.get(options.strategy, {})
    return strategy


def train() -> None:
    """What a trainer does; a server needs no torch."""
    import torch
    from report import Report
    from wide_deep_torch import WideDeep

    options = criteo_like.options(__doc__)
    client = fleet.init_worker(strategy_of(options))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = fleet.distributed_model(WideDeep(client, options))
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=options.lr))
    report = Report(options)
    for batch in criteo_like.batches(options):
        ids, dense, label = map(torch.from_numpy, batch)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(ids, dense), label)
        optimizer.minimize(loss)
        report.batch(loss.item, len(label))

    ids, dense, label = criteo_like.test_set(options)

    def score() -> object:
        optimizer.trainer.dense.pull()
        model.eval()
        with torch.no_grad():
            return model(torch.from_numpy(ids), torch.from_numpy(dense)).numpy()

    report.end(client, score, label)
    fleet.stop_worker()


if __name__ == "__main__":
    fleet.init()
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        train()
