"""Problems of data and checkpoints are found before anything starts.

Workers would find them too, each by itself, seconds later. Only for runs on this machine: in a
cluster paths are those of its hosts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from paddock.command_line import nearest
from paddock.data.assign import assign
from paddock.data.chunks import Chunk
from paddock.data.files import blocks, find_files, is_elsewhere
from paddock.errors import Problem, UsageError
from paddock.ps.strategies import updates_behind
from paddock.rec.online import online_of
from paddock.rec.report import check_events
from paddock.rec.settings import EngineKind, ModelKind, Reading, Recipe, Task, TrainingRun

HEAD_BYTES = 1 << 16
LINES_MAX = 100
# Updates that a gradient may be behind, as a mean: async with two workers is 5, and was harmless
# wherever it was measured (docs/benchmarks.md); with four it ended a model.
BEHIND_MAX = 5
# Their steps shrink with the gradient; those of all other rules divide by its size.
SHRINKING = ("sgd", "momentum")


def preflight(recipe: Recipe) -> list[str]:
    """Warnings about the data. Raises UsageError with all problems."""
    has_servers = recipe.engine is not EngineKind.SINGLE and recipe.cluster.servers > 0
    refused = [no for run in recipe.runs if (no := not_dynamic(run, has_servers=has_servers))]
    if refused:
        raise UsageError.of(refused)
    late = far_behind(recipe) if has_servers else []
    if recipe.engine is EngineKind.CLUSTER:
        return late
    workers = 1 if recipe.engine is EngineKind.SINGLE else recipe.cluster.workers
    found: list[Problem] = []
    written: list[str] = []  # where a run before it may have made what a run begins with
    for run in recipe.runs:
        is_online = run.task is Task.TRAIN and online_of(run.config, run.name) is not None
        for reading in (run.reading, run.test):
            if reading is not None and not (is_online and reading is run.reading):
                try:
                    is_dygraph = run.contract is ModelKind.DYGRAPH
                    # Some data sets want directories: of images, one for each class.
                    if not (is_dygraph and all(map(_has_entries, reading.paths))):
                        files = find_files(reading.paths)
                        # Others than bundled models may read every workers-th batch.
                        is_bundled = run.contract is ModelKind.BUNDLED
                        if reading.assignment != "dynamic" and is_bundled:
                            assign(files, workers)
                except UsageError as error:
                    found += error.problems
        judged = run.evaluate_from if run.task is Task.EVALUATE else None
        for word, path in (("warm_start", run.warm_start), ("infer_load_path", judged)):
            is_made = path is None or any(path.startswith(made) for made in written)
            if path is not None and not is_made and not os.path.isdir(path):
                hint = f"-o {word}=DIR, a directory that a run has saved into"
                found.append(Problem(f"{word}: no checkpoint in {path!r}", hint))
        try:
            if run.event_directory is not None:
                check_events(run.event_directory)
        except UsageError as error:
            found += error.problems
        written += [run.saving.directory] if run.saving.directory else []
    if found:
        raise UsageError.of(list(dict.fromkeys(found)))
    readings = [one for run in recipe.runs for one in (run.reading, run.test) if one is not None]
    odd = dict.fromkeys(line for reading in readings for line in odd_slots(reading))
    return [*late, *odd]


def far_behind(recipe: Recipe) -> list[str]:
    """A warning for each training whose gradients may be so late that the model learns nothing.

    A rule as Adam's makes its first steps at the full rate, whatever the gradient is. Late ones
    repeat a step that was done already: layers overshoot, and units that are 0 for all examples
    have no gradient that would bring them back.
    """
    workers, lines = recipe.cluster.workers, []
    for run in recipe.runs:
        rule = str(run.hyper.get("optimizer.class", "Adam"))
        behind = updates_behind(run.strategy.name, workers) or 0
        if run.task is not Task.TRAIN or behind <= BEHIND_MAX or rule.lower() in SHRINKING:
            continue
        near = updates_behind("half_async", workers) or 0
        other = "half_async" if near <= BEHIND_MAX else "sync"
        lines.append(
            f"run {run.name!r}: in {run.strategy.name} with {workers} workers a gradient is up to "
            f"{behind} updates behind on average; with {rule} a model may overshoot in its first "
            f"batches and learn nothing more (auc 0.5), in {other} at most "
            f"{updates_behind(other, workers)}: -o strategy={other}"
        )
    return lines


def gone_with_pods(recipe: Recipe) -> list[str]:
    """That what worker 0 saves is removed with its pod."""
    cluster = recipe.cluster
    if cluster.backend != "kubernetes":
        return []
    volumes = cluster.options.get("volumes")
    texts = list(map(str, volumes)) if isinstance(volumes, list) else str(volumes or "").split(";")
    mounts = [text.split(":")[1] for text in texts if ":" in text and not text.endswith(":ro")]
    if "volumes=" in str(cluster.options.get("site", "")):
        return []
    saved = [d for run in recipe.runs if run.task is Task.TRAIN
             for d in (run.saving.directory, run.saving.export_directory) if d]  # fmt: skip
    lost = [d for d in saved if not any(f"{d}/".startswith(f"{m.rstrip('/')}/") for m in mounts)]
    if not lost:
        return []
    names = ", ".join(dict.fromkeys(lost))
    return [
        f"{names}: worker 0's pod writes this on its own disk, which is removed with the pod; to "
        "keep it, mount a volume (-b BACKEND,volumes=CLAIM:/out) and save there "
        "(-o save_dir=/out/model)"
    ]


def odd_slots(reading: Reading) -> list[str]:
    """Declared slots that the first lines lack, where those have slots that are not declared.

    The end of the epoch tells it of all lines, and by then a model has learnt from padding.
    """
    declared = (*reading.sparse_slots, *dict(reading.dense_slots))
    here = [path for path in reading.paths if not is_elsewhere(path)]
    if reading.reader != "slots" or reading.pipe_command or not declared or not here:
        return []
    file = find_files(here)[0].path
    lines = next(blocks(Chunk(file), HEAD_BYTES), b"").splitlines()[:LINES_MAX]
    seen = Counter(name for line in lines for name in {w.partition(b":")[0] for w in line.split()})
    found = {name.decode("utf-8", "replace"): times for name, times in seen.items()}
    known = Counter({slot: found.pop(slot, 0) for slot in declared})
    if not found or all(known.values()):
        return []
    from paddock.data.formats.format import Coverage  # numpy, which a host that submits may lack

    told = Coverage(len(lines), known, Counter(found)).warnings()
    return [f"the first lines of {file}: {line}" for line in told]


def not_dynamic(run: TrainingRun, *, has_servers: bool) -> Problem | None:
    """Why a run cannot have `assignment: dynamic`; None where it can, or does not ask."""
    if run.task is not Task.TRAIN or run.reading is None or run.reading.assignment != "dynamic":
        return None
    if not has_servers:
        return Problem(
            f"run {run.name!r}: assignment is dynamic, and there are no servers, which give out "
            "the data",
            "engine local_cluster or cluster with server_num; or assignment: blocks",
        )
    if online_of(run.config, run.name) is not None:
        return Problem(
            f"run {run.name!r}: assignment is dynamic, and it learns pass by pass as data come",
            "assignment: size deals out each pass when it is there",
        )
    return None


def _has_entries(path: str) -> bool:
    return os.path.isdir(path) and any(not name.startswith(".") for name in os.listdir(path))


def missing_data(runs: Sequence[TrainingRun], key_of: Callable[[str], str]) -> Iterator[Problem]:
    """A problem for each path that does not exist, or is a directory without files."""
    sides = [("reading", run) for run in runs if run.task is Task.TRAIN]
    for side, run in [*sides, *(("test", run) for run in runs)]:
        reading = run.reading if side == "reading" else run.test
        for path in reading.paths if reading is not None else ():
            if is_elsewhere(path) or any(c in path for c in "*?["):
                continue
            is_there = os.path.exists(path)
            if is_there and (not os.path.isdir(path) or os.listdir(path)):
                continue
            key = key_of(f"{side}.data")
            if not is_there:
                parent = os.path.dirname(path)
                names = os.listdir(parent) if os.path.isdir(parent) else []
                hint = nearest(os.path.basename(path), names, f"-o {key}=DIR")
                if run.contract is ModelKind.BUNDLED:
                    hint = f"paddock data generate makes some; or -o {key}=DIR"
                yield Problem(f"{key}: {path} does not exist", hint)
            else:
                what = f"{key}: {path} is an empty directory"
                yield Problem(what, "put files there, or name another")
