"""Paddle's fleet names for parameter-server jobs: one script that runs as server or as trainer.

    from paddock.ps import fleet

    fleet.init()                                   # who am I? TRAINING_ROLE, PADDLE_*
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()                         # returns when the job is over
    else:
        client = fleet.init_worker(strategy)
        ...                                        # paddock.ps.torch, .paddle or .jax with client
        fleet.stop_worker()

Starts alike under `paddock launch --server-num N --worker-num M`, under Paddle's operator, and by
hand. Differs from Paddle: dygraph (and torch, and JAX) instead of static graphs, init_worker()
returns the client, and whatever has no effect is refused instead of ignored.

Source of the strategy: paddlepaddle 2.6, fleet/base/distributed_strategy.py (a_sync,
a_sync_configs) and the_one_ps.py: a_sync False is sync; True is async, or geo where k_steps is
above 0.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError, Problem, UsageError
from paddock.ps.client.trainer_config import ProcessRole as Role
from paddock.ps.client.trainer_config import read_role
from paddock.ps.translate import framework_of, spec_of

if TYPE_CHECKING:
    from paddock.ps.adapters.trainer import TrainerBase
    from paddock.ps.client.client import Client

__all__ = ["DistributedOptimizer", "DistributedStrategy", "Fleet", "Role"]

# Names of Paddle's fleet that cannot be had, and what is written instead.
INSTEAD = {
    "save_inference_model": "it writes a static program: fleet.save_persistables(dirname), then "
    "`paddock ps export --checkpoint dirname` for the weights or `paddock ps publish` for "
    "ps.Serving",
    "load_inference_model": "it reads a static program: fleet.load_model(dirname)",
    "save_cache_model": "Paddle's cache of hot rows: `paddock ps publish` makes a version of all "
    "rows that ps.Serving maps",
    "save_dense_params": "fleet.save_persistables(dirname), for all tables",
    "save_one_table": "fleet.save_persistables(dirname), then `paddock ps export --table NAME "
    "--checkpoint dirname`",
    "load_one_table": "`paddock ps import --table NAME`; fleet.load_model(dirname) for all tables",
    "main_program": "a static program: for each batch optimizer.minimize(loss(model(...), label))",
    "startup_program": "a static program: trainer 0's parameters are the first ones",
    "minimize": "optimizer = fleet.distributed_optimizer(...), then optimizer.minimize(loss)",
    "util": "files[fleet.worker_index() :: fleet.worker_num()] for util.get_file_shard(files); "
    "print where fleet.is_first_worker() for util.print_on_rank",
    "worker_endpoints": "trainers do not talk to one another: fleet.server_endpoints()",
    "InMemoryDataset": "a loop of your own, or paddle.io.DataLoader",
    "QueueDataset": "a loop of your own, or paddle.io.DataLoader",
    "UserDefinedRoleMaker": "fleet.init(fleet.Role(is_server, index, server_endpoints, trainers))",
}

# What we act on; half_async and staleness are not Paddle's.
ACTED_ON = {"k_steps": int, "half_async": bool, "staleness": int}
# Paddle's own, about its communicator: there is nothing here that they could change.
WITHOUT_EFFECT = frozenset(
    (
        "max_merge_var_num", "send_queue_size", "independent_recv_thread",
        "min_send_grad_num_before_recv", "thread_pool_size", "send_wait_times",
        "runtime_split_send_recv", "launch_barrier", "heter_worker_device_guard",
        "lr_decay_steps", "use_ps_gpu", "use_gpu_graph",
    )
)  # fmt: skip


@dataclass
class DistributedStrategy:
    """Which of sync, async, geo, half_async or staleness the trainers follow.

    a_sync: False is sync, True (as in Paddle) is async. a_sync_configs: k_steps above 0 is geo
    with that many batches between exchanges; half_async True; staleness N.

    Examples:
        >>> strategy = DistributedStrategy()
        >>> strategy.a_sync_configs = {"k_steps": 100}
        >>> client_options(strategy)
        {'strategy': 'geo', 'geo_step': 100}
    """

    a_sync: bool = True
    a_sync_configs: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses fields that are not there: a misspelt one would be a silent default."""
        if name not in ("a_sync", "a_sync_configs"):
            hint = "a_sync and a_sync_configs; optimizers and tables have specs of their own"
            text = f"DistributedStrategy has no field {name!r} for parameter servers"
            raise UsageError(text, hint=hint)
        if name == "a_sync" and not isinstance(value, bool):
            raise UsageError(f"a_sync is {value!r}", hint="True or False")
        if name == "a_sync_configs":
            value = dict(value)
            _check_configs(value)
        object.__setattr__(self, name, value)


def client_options(strategy: DistributedStrategy) -> dict[str, Any]:
    """The keywords of Client that follow from a strategy. Raises UsageError."""
    configs = strategy.a_sync_configs
    steps, lag = configs.get("k_steps", 0), configs.get("staleness")
    wanted = (
        (steps > 0, {"strategy": "geo", "geo_step": steps}),
        (configs.get("half_async"), {"strategy": "half_async"}),
        (lag is not None, {"strategy": "staleness", "staleness": lag}),
        (not strategy.a_sync, {"strategy": "sync"}),
    )
    chosen: list[dict[str, Any]] = [options for is_wanted, options in wanted if is_wanted]
    if len(chosen) > 1:
        names = " and ".join(options["strategy"] for options in chosen)
        text = f"strategies {names} at once (a_sync={strategy.a_sync})"
        raise UsageError(text, hint="choose one")
    return chosen[0] if chosen else {"strategy": "async"}


def _check_configs(configs: Mapping[str, Any]) -> None:
    problems = []
    for name, value in configs.items():
        kind = ACTED_ON.get(name)
        if kind is None and name not in WITHOUT_EFFECT:
            known = ", ".join([*ACTED_ON, *sorted(WITHOUT_EFFECT)])
            problems.append(Problem(f"a_sync_configs: unknown field {name!r}", f"one of {known}"))
        elif kind is not None and not isinstance(value, kind):
            problems.append(Problem(f"a_sync_configs: {name} is {value!r}", kind.__name__))
    if problems:
        raise UsageError.of(problems)
    idle = sorted(WITHOUT_EFFECT & set(configs))
    if idle:
        warnings.warn(f"a_sync_configs: no effect here: {', '.join(idle)}", stacklevel=3)


class Fleet:
    """The state behind the module's functions: a role, then a client or a server.

    env: where the role is read from.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._role: Role | None = None
        self._client: Client | None = None
        self._strategy: DistributedStrategy | None = None
        self._model: Any = None
        self._optimizer: DistributedOptimizer | None = None
        self._dirname = ""

    def init(
        self,
        role_maker: Any = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
    ) -> None:
        """Reads the role, or takes it. Raises UsageError with all that is missing.

        role_maker: a Role; or a PaddleCloudRoleMaker, which reads the environment, as None does.
        """
        if is_collective:
            raise _collective()
        kind = type(role_maker).__name__
        if isinstance(role_maker, Role):
            self._role = role_maker
        elif role_maker is None or kind == "PaddleCloudRoleMaker":
            self._role = read_role(self._env)
        else:
            hint = INSTEAD["UserDefinedRoleMaker"]
            raise UsageError(f"the role is given by a {kind}", hint=hint)
        self._strategy = strategy

    @staticmethod
    def PaddleCloudRoleMaker(is_collective: bool = False) -> None:
        """For init(), which reads the environment itself; is_collective is init()'s, too."""
        if is_collective:
            raise _collective()

    @property
    def role(self) -> Role:
        """The role. Raises UsageError before init()."""
        if self._role is None:
            raise UsageError("fleet.init() was not called", hint="call it first")
        return self._role

    def is_server(self) -> bool:
        """True when this process is a parameter server."""
        return self.role.is_server

    def is_worker(self) -> bool:
        """True when this process trains."""
        return not self.role.is_server

    def is_first_worker(self) -> bool:
        """True when this is trainer 0, by custom the one that saves and prints."""
        return self.is_worker() and self.role.index == 0

    def worker_index(self) -> int:
        """This trainer's number, from 0."""
        self._must_be("worker", "worker_index()")
        return self.role.index

    def worker_num(self) -> int:
        """How many trainers the job has."""
        return self.role.worker_num

    def server_index(self) -> int:
        """This server's number, from 0."""
        self._must_be("server", "server_index()")
        return self.role.index

    def server_num(self) -> int:
        """How many servers the job has."""
        return len(self.role.server_endpoints)

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """host:port of every server, in order; as one text with commas if asked."""
        found = list(self.role.server_endpoints)
        return ",".join(found) if to_string else found

    def init_server(self, dirname: str | None = None) -> None:
        """Checks that this is a server; run_server() recovers what its data directory holds.

        dirname: a checkpoint, of any number of servers, that all servers begin with where they
        have no state yet; trainers then declare its tables as they were.
        """
        self._must_be("server", "init_server()")
        self._dirname = dirname or ""

    def run_server(self) -> None:
        """Serves in this process until the job is over or a signal ends it.

        Raises PaddockError when the server ended badly.
        """
        self._must_be("server", "run_server()")
        from paddock.ps.server.main import run

        code = run(server_words(self.role, self._dirname), self._env)
        if code:
            raise PaddockError(f"server {self.role.index} ended with code {code}", exit_code=code)

    def init_worker(self, strategy: DistributedStrategy | None = None, **options: Any) -> Client:
        """Connects this trainer. options: further ones of Client, as timeout or token_file."""
        self._must_be("worker", "init_worker()")
        if self._client is not None:
            raise UsageError("init_worker() was called before", hint="fleet.client has the client")
        from paddock.ps.client.client import Client

        self._strategy = strategy or self._strategy or DistributedStrategy()
        self._client = Client(
            self.role.server_endpoints,
            trainer=self.role.index,
            trainers=self.role.worker_num,
            **client_options(self._strategy),
            **options,
        )
        if self._optimizer is not None:
            self._optimizer.begin(self._client)
        return self._client

    @property
    def client(self) -> Client:
        """The trainer's client. Raises UsageError before init_worker()."""
        if self._client is None:
            raise UsageError("there is no client yet", hint="fleet.init_worker() makes it")
        return self._client

    def stop_worker(self) -> None:
        """Everything pushed is acknowledged, then the connections end."""
        client, self._client = self.client, None
        client.close()

    def barrier_worker(self) -> None:
        """Waits for all trainers."""
        self.client.barrier("fleet.barrier_worker")

    def distributed_model(self, model: Any) -> Any:
        """The model itself; distributed_optimizer() then finds its embeddings and parameters."""
        self._model = model
        return model

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | None = None
    ) -> DistributedOptimizer:
        """A torch or Paddle optimizer whose rule runs on the servers: step(), minimize(loss).

        For the dense parameters of the model given to distributed_model(), else for those that the
        optimizer has; embeddings have their own optimizers and are pushed with it. Before or after
        init_worker(); in a server, where scripts of Paddle's call it too, it is of no use. Raises
        UsageError where the servers have no rule with the same numbers.
        """
        if self._client is not None and strategy not in (None, self._strategy):
            text = "distributed_optimizer() got another strategy than init_worker()"
            hint = "the strategy is chosen where the client is made: init_worker(strategy)"
            raise UsageError(text, hint=hint)
        self._strategy = strategy or self._strategy
        self._optimizer = DistributedOptimizer(optimizer, self._model)
        if self._client is not None:
            self._optimizer.begin(self._client)
        return self._optimizer

    def save_persistables(self, dirname: str, mode: int = 0) -> None:
        """Writes a checkpoint of all tables. mode 0: everything; 1: what changed since the last.

        Once for the job: let is_first_worker() call it.
        """
        if mode not in (0, 1):
            hint = "0 everything, 1 changes; Paddle's others have no equal"
            raise UsageError(f"mode is {mode}", hint=hint)
        self.client.save(dirname, mode=("full", "delta")[mode])

    def load_model(self, path: str, mode: int = 0) -> None:
        """Reads a checkpoint into the servers, whatever number of them wrote it."""
        if mode != 0:
            raise UsageError(f"mode is {mode}", hint="0: deltas are found beside the full ones")
        self.client.load(path)

    def shrink(self, threshold: float | None = None) -> int:
        """Drops the rows that their tables' accessors give up. Returns how many."""
        if threshold is not None:
            hint = "Paddle ignores it; the tables say it: AccessorSpec(delete_score=...)"
            raise UsageError(f"threshold is {threshold}", hint=hint)
        tables = self.client.status()[0]["tables"]
        sparse = [str(table["name"]) for table in tables if table["kind"] == "sparse"]
        return sum(map(self.client.shrink, sparse))

    def _must_be(self, role: str, call: str) -> None:
        here = "server" if self.role.is_server else "worker"
        if here != role:
            raise UsageError(f"{call} in a {here}", hint=f"if fleet.is_{role}(): ...")


class DistributedOptimizer:
    """step(), minimize(loss), clear_grad() and zero_grad() of a torch or Paddle optimizer.

    model: whose parameters; None: those of the optimizer. A scheduler of the optimizer's is
    followed, for the dense parameters.
    """

    def __init__(self, optimizer: Any, model: Any = None) -> None:
        self.spec = spec_of(optimizer)
        self.inner = optimizer
        self._model = model
        self._trainer: TrainerBase | None = None

    def begin(self, client: Any) -> None:
        """Gives the servers the first parameters, or takes theirs."""
        adapter = import_module(f"paddock.ps.{framework_of(self.inner)}")
        model = adapter.module_of(self.inner) if self._model is None else self._model
        self._trainer = adapter.Trainer(client, model, optimizer=self.spec)
        if self._trainer.dense is not None:
            self._trainer.dense.vector.rate = adapter.rate_of(self.inner)

    @property
    def trainer(self) -> TrainerBase:
        """The model's Trainer. Raises UsageError before init_worker(), and in a server."""
        if self._trainer is None:
            raise UsageError(
                "the optimizer has no servers: fleet.init_worker() was not called before",
                hint="there is no static program to build, only dygraph: in trainers, after "
                "fleet.init_worker(), for each batch optimizer.minimize(loss)",
            )
        return self._trainer

    def __getattr__(self, name: str) -> Any:
        """Says what is given instead where torch or Paddle ask an optimizer for its state."""
        raise AttributeError(
            f"fleet's optimizer has no {name}: schedulers drive the optimizer that it was made of; "
            "a GradScaler takes the trainer.optimizer of a paddock.ps.torch.Trainer"
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Ends a batch: gradients pushed, the strategy's wait, new values pulled.

        backward() was done, or is by closure(), whose loss is returned.
        """
        loss = None if closure is None else closure()
        self.minimize(None)
        return loss

    def minimize(self, loss: Any) -> None:
        """backward() and step(), Paddle's way."""
        self.trainer.step(loss)
        self.inner._opt_called = True  # Else torch's schedulers warn that step() was not called.

    def clear_grad(self, set_to: object = None, **_: Any) -> None:
        """Drops the gradients that wait, of a batch to be left out; step() clears what it pushed.

        The argument, whether they become zeros or none, changes nothing.
        """
        if self._trainer is not None:
            for table in self._trainer.tables:
                table.forget()
            if self._trainer.dense is not None:
                self._trainer.dense.vector.forget()

    zero_grad = clear_grad


def server_words(role: Role, load: str = "") -> list[str]:
    """The flags of `paddock pserver` for this role; everything else comes from its environment.

    >>> server_words(Role(True, 1, ("10.0.0.1:80", "10.0.0.2:81"), 4))[:2]
    ['--port=81', '--index=1']
    """
    return [
        f"--port={role.endpoint.rpartition(':')[2]}",
        f"--index={role.index}",
        f"--endpoints={','.join(role.server_endpoints)}",
        f"--num_gradient_servers={role.worker_num}",
        "--end-with-trainers=yes",
        *([f"--load={load}"] if load else []),
    ]


def _collective() -> UsageError:
    return UsageError(
        "is_collective=True: this fleet is that of parameter servers",
        hint="from paddle.distributed import fleet, for collective training",
    )


# Paddle's fleet is one object whose methods are the module's functions; so is this.
_fleet = Fleet(os.environ)
_NAMES = tuple(name for name in vars(Fleet) if not name.startswith("_"))


def __getattr__(name: str) -> Any:
    """fleet.init and the others: those of the process's one Fleet."""
    if name in _NAMES:
        return getattr(_fleet, name)
    if name in INSTEAD:
        raise UsageError(f"fleet.{name} is not here", hint=INSTEAD[name])
    raise AttributeError(f"module 'paddock.ps.fleet' has no attribute {name!r}")
