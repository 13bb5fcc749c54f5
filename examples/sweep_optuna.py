"""Optuna chooses the points, Paddock runs them: each trial is a job of two ranks.

    python examples/sweep_optuna.py                    12 trials, two at once
    python examples/sweep_optuna.py --trials 20        8 more: the study goes on

The study is in study.db (SQLite), which Optuna itself writes: a script that was killed goes on
where it was, and machines that see a database server (--storage postgresql://...) share a study.
"""

from __future__ import annotations

import argparse

import optuna

import paddock


def train(lr: float, momentum: float, steps: int = 40) -> float:
    """Run in each rank: minimise (x - 3)^2 and return the last loss. Put your training here."""
    x = velocity = 0.0
    for step in range(steps):
        velocity = momentum * velocity - lr * 2 * (x - 3 - paddock.rank())
        x += velocity
        paddock.report(step=step, loss=(x - 3 - paddock.rank()) ** 2)
    return (x - 3 - paddock.rank()) ** 2


def objective(trial: optuna.Trial) -> float:
    """A trial: one run. A rank that fails raises, and Optuna marks the trial as failed."""
    lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
    momentum = trial.suggest_float("momentum", 0.0, 0.95)
    name = f"trial-{trial.number}"
    with paddock.launch(train, lr, momentum, nproc=2, name=name, quiet=True) as run:
        trial.set_user_attr("run", run.id)  # paddock logs RUN, paddock report RUN
        return max(run.results())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=12, help="of the study, all calls together")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--storage", default="sqlite:///study.db")
    given = parser.parse_args()
    study = optuna.create_study(
        study_name="demo", storage=given.storage, load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=0),
    )  # fmt: skip
    done = len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
    study.optimize(
        objective, max(0, given.trials - done), n_jobs=given.at_once,
        catch=(paddock.RankFailedError,),
    )  # fmt: skip
    best = study.best_trial
    print(f"{len(study.trials)} trials, the best is {best.user_attrs['run']}: {best.params}")


if __name__ == "__main__":
    main()
