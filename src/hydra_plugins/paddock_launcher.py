"""Hydra's launcher plugin `hydra/launcher=paddock`: each point of a multirun is a run of Paddock.

Hydra 1.3 imports every module of hydra_plugins when an app starts, so Paddock is imported late. It
does so before the module has its name in sys.modules: annotations of the dataclass are no texts.
"""

import logging
import os
from dataclasses import dataclass, field
from functools import partial
from time import sleep
from typing import Any, Dict, List, Optional  # noqa: UP035  # OmegaConf reads them

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import (
    JobReturn,
    JobStatus,
    configure_log,
    filter_overrides,
    run_job,
    setup_globals,
)
from hydra.plugins.launcher import Launcher
from omegaconf import OmegaConf, open_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock import Run

log = logging.getLogger(__name__)
POLL_SECONDS = 0.1


@dataclass
class PaddockLauncherConf:
    """hydra.launcher: of paddock.launch, or with a site of paddock.submit.

    nproc: ranks of each point. at_once: points that run at the same time. timeout: of a point, in
    seconds. flags: more flags of `paddock launch` or `submit`.
    """

    _target_: str = "hydra_plugins.paddock_launcher.PaddockLauncher"
    nproc: int = 1
    at_once: int = 1
    site: str = ""
    hosts: Optional[str] = None  # noqa: UP045
    nodes: Optional[int] = None  # noqa: UP045
    devices: Optional[str] = None  # noqa: UP045
    timeout: Optional[float] = None  # noqa: UP045
    max_restarts: Optional[int] = None  # noqa: UP045
    env: Dict[str, str] = field(default_factory=dict)  # noqa: UP006
    flags: List[str] = field(default_factory=list)  # noqa: UP006


ConfigStore.instance().store(
    group="hydra/launcher", name="paddock", node=PaddockLauncherConf, provider="paddock"
)


class PaddockLauncher(Launcher):  # type: ignore[misc]  # Hydra is not here where types are checked
    """Starts the points in order, at_once of them; ends what is left when it is interrupted."""

    def __init__(self, at_once: int, **options: Any) -> None:
        if at_once < 1:
            raise ValueError(f"hydra.launcher.at_once={at_once}: at least one point runs at a time")
        self.at_once, self.options = at_once, options

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Take what Hydra gives each launcher."""
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def launch(self, job_overrides: "Sequence[Sequence[str]]", initial_job_idx: int) -> list[Any]:
        """Run the points; a failed one has status FAILED and the error as its value."""
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        log.info(f"Launching {len(job_overrides)} jobs with paddock")
        started: list[tuple[Run, Any]] = []
        try:
            for number, overrides in enumerate(job_overrides, initial_job_idx):
                while sum(not run.is_done() for run, _ in started) >= self.at_once:
                    sleep(POLL_SECONDS)
                config = self._config(overrides, number)
                run = self._start(config, overrides)
                log.info(f"\t#{number} : {' '.join(filter_overrides(overrides))} : {run.id}")
                started.append((run, config))
            return [_job_return(run, config) for run, config in started]
        except BaseException:
            for run, _ in started:
                run.stop()
            for run, _ in started:
                run.wait(check=False)
            raise

    def _config(self, overrides: "Sequence[str]", number: int) -> Any:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        return config

    def _start(self, config: Any, overrides: "Sequence[str]") -> "Run":
        import paddock
        from paddock.api.launch import SHOWN, Label

        options = {key: value for key, value in self.options.items() if value not in (None, "")}
        flags = [*options.pop("flags", ())]
        options["env"] = dict(options.pop("env", {}))
        options["name"] = Label(config.hydra.job.name)
        args = (self.hydra_context, self.task_function, config, Singleton.get_state())
        point = partial(_run_point, *args)
        setattr(point, SHOWN, " ".join([options["name"], *filter_overrides(overrides)]))
        if "site" in options:
            return paddock.submit(point, flags=flags, **options)
        sweep = config.hydra.sweep
        flags += ["--log-dir", os.path.join(str(sweep.dir), str(sweep.subdir), "log")]
        return paddock.launch(point, flags=flags, quiet=self.at_once > 1, **options)


def _run_point(context: Any, function: Any, config: Any, state: Any) -> Any:
    """Run the app in a rank, as Hydra runs a job. Rank 0 writes .hydra; each has a log file."""
    __tracebackhide__ = True
    import paddock

    Singleton.set_state(state)
    setup_globals()
    if rank := paddock.rank():
        with open_dict(config):
            config.hydra.output_subdir = None
            logs = OmegaConf.to_container(config.hydra.job_logging, resolve=False)
            for name, handler in (logs or {}).get("handlers", {}).items():
                if path := handler.get("filename"):
                    stem, ending = os.path.splitext(path)
                    config.hydra.job_logging.handlers[name].filename = f"{stem}.{rank}{ending}"
    done = run_job(
        hydra_context=context, task_function=function, config=config,
        job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
    )  # fmt: skip
    if done.status == JobStatus.FAILED:
        raise done._return_value  # a rank that fails ends the others
    return done if rank == 0 else None


def _job_return(run: "Run", config: Any) -> Any:
    import paddock

    try:
        return run.result
    except paddock.RunFailedError as error:
        cfg = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        overrides = OmegaConf.to_container(config.hydra.overrides.task)
        done = JobReturn(overrides, cfg, config, os.getcwd(), config.hydra.job.name)
        done.status = JobStatus.FAILED
        done.return_value = error.with_traceback(None)
        return done
