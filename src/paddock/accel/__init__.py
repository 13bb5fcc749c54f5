"""The devices (GPU, XPU, NPU, ...) of a node's processes. Pure; the I/O is in facts/devices.py.

gpu, dcu, xpu, npu   one accelerator each
plugins              devices that Paddle knows as plug-ins

An accelerator is one file with one value, KNOWN: names, the traces it leaves in the file system,
the command that lists it, a parser. To add one: write the file, name it in PROBE_ORDER and
ENV_ORDER, record real output under tests/accel/golden, add a row to the docs. Devices that Paddle
knows as plug-ins are rows of one table, plugins.py.

The shell asks, in this order, and stops at the first answer:
1. kind_of_env: the visible-devices variables; no file is touched.
2. for each of kinds_to_probe, its traces; found_by_paths turns matches into devices.
3. where needs_command says so, the accelerator's commands, the first that exists;
   found_by_command reads its output; without one, its fallback pattern is counted.
Then choose_devices decides.
"""

from __future__ import annotations

from paddock.core.hosts import Devices
from paddock.core.job import PLUGIN_KINDS
from paddock.core.value import value
from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROCM_AS_GPU = ("gpu", "dcu")  # asked for, found: see kinds_to_probe
# Traces looked for, commonest first.
PROBE_ORDER = ("gpu", "npu", "xpu", "dcu", *PLUGIN_KINDS)
# Variables looked at, as Paddle does: distributed/launch/context/device.py, 3.3.1.
ENV_ORDER = (*PLUGIN_KINDS, "npu", "xpu", "gpu", "dcu")
SHARED_VARIABLE = "CUDA_VISIBLE_DEVICES"  # the run times of several kinds obey it
PLUGIN_VARIABLE = "PADDLE_XCCL_BACKEND"  # Paddle: the type of plug-in device that is meant


@value
class DeviceTrace:
    """A path that exists when devices do. counts: one match per device."""

    pattern: str
    counts: bool = True


@value
class Device:
    """A device as its vendor's tool lists it; number in the tool's own counting."""

    number: str
    uuid: str = ""


@value
class Accelerator:
    """The properties of a kind of device.

    visible: the variables that hide devices, the deciding one first. commands: argv tuples, the
    first that can be run is used; parse reads its output. fallback: pattern counted when there is
    a trace but no command. is_obeyed: the vendor's run time is known to obey the deciding variable.
    """

    title: str
    visible: tuple[str, ...] = ()
    traces: tuple[DeviceTrace, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    fallback: str = ""
    is_obeyed: bool = True
    parse: Callable[[str], tuple[Device, ...]] = lambda _output: ()


@value
class DetectedDevices:
    """The devices found. is_counted False: only a variable named the kind, nothing was asked."""

    kind: str = "cpu"
    devices: tuple[Device, ...] = ()
    is_counted: bool = True


def accelerator(kind: str) -> Accelerator:
    """The Accelerator of a kind; only its file is imported.

    >>> accelerator("npu").visible[0]
    'ASCEND_RT_VISIBLE_DEVICES'
    """
    assert kind in PROBE_ORDER, kind
    is_plugin = kind in PLUGIN_KINDS
    name = "plugins" if is_plugin else kind
    known = __import__(f"paddock.accel.{name}", fromlist=("KNOWN",)).KNOWN
    found: Accelerator = known[kind] if is_plugin else known
    return found


def kind_of_env(env: Mapping[str, str], kind: str = "") -> str:
    """The kind whose visible-devices variable lists devices, "" when none does.

    kind: the one asked for, "" for any. CUDA_VISIBLE_DEVICES alone means gpu, also where no GPU
    shows: containers and WSL2 hide the usual traces. "all" says no more than no variable.

    >>> kind_of_env({"XPU_VISIBLE_DEVICES": "1,3"}), kind_of_env({"CUDA_VISIBLE_DEVICES": ""})
    ('xpu', '')
    """
    for known in (kind,) if kind else ENV_ORDER:
        named = visible_of(known, env)
        own = [v for v in accelerator(known).visible if v != SHARED_VARIABLE and env.get(v)]
        if named and named[1] and (kind or known == "gpu" or own):
            return known
    return ""


def kind_of_plugin(env: Mapping[str, str]) -> str:
    """The plug-in device that PADDLE_XCCL_BACKEND names, "" when it names none we know.

    >>> kind_of_plugin({"PADDLE_XCCL_BACKEND": "mlu"}), kind_of_plugin({})
    ('mlu', '')
    """
    named = env.get(PLUGIN_VARIABLE, "")
    return named if named in PLUGIN_KINDS else ""


def kinds_beside(kind: str) -> tuple[str, ...]:
    """The plug-in kinds whose traces tell that the variable taken for ``kind``'s is theirs."""
    others = PLUGIN_KINDS if kind == "gpu" else ()
    return tuple(k for k in others if SHARED_VARIABLE in accelerator(k).visible)


def kinds_to_probe(env: Mapping[str, str], kind: str) -> tuple[str, ...]:
    """The kinds to look for, best first: the one asked for, or all that no variable hides.

    >>> kinds_to_probe({"CUDA_VISIBLE_DEVICES": ""}, "")[:3], kinds_to_probe({}, "xpu")
    (('npu', 'xpu', 'mlu'), ('xpu',))
    """
    # torch.cuda, hence torchrun's "gpu", also means ROCm devices.
    wanted = ROCM_AS_GPU if kind == "gpu" else (kind,) if kind else PROBE_ORDER
    return tuple(k for k in wanted if (visible_of(k, env) or ("", None))[1] != ())


def visible_of(kind: str, env: Mapping[str, str]) -> tuple[str, tuple[str, ...] | None] | None:
    """The deciding variable and its list; None as list means all; None when no variable is set.

    As CUDA reads it, the list ends before the first invalid entry, so "-1" hides everything.

    >>> visible_of("gpu", {"CUDA_VISIBLE_DEVICES": "4, 5,-1,6"})
    ('CUDA_VISIBLE_DEVICES', ('4', '5'))
    >>> visible_of("gpu", {"CUDA_VISIBLE_DEVICES": "all"}), visible_of("gpu", {})
    (('CUDA_VISIBLE_DEVICES', None), None)
    """
    for variable in accelerator(kind).visible:
        if variable not in env:
            continue
        text = env[variable].strip()
        if text == "all":
            return variable, None
        labels: list[str] = []
        for word in text.split(","):
            label = word.strip()
            if not label or label.startswith("-") or label in ("none", "void", "NoDevFiles"):
                break
            labels.append(label)
        return variable, tuple(labels)
    return None


def found_by_paths(kind: str, matches: Mapping[str, int]) -> DetectedDevices | None:
    """The devices by their traces: None without any; a count where one match is one device.

    matches: pattern -> number of paths that exist.

    >>> found_by_paths("gpu", {"/dev/nvidia[0-9]*": 2}).devices
    (Device(number='0', uuid=''), Device(number='1', uuid=''))
    """
    for trace in accelerator(kind).traces:
        number = matches.get(trace.pattern, 0)
        if number:
            # A container that was given /dev/nvidia2 alone calls it number 0.
            devices = tuple(Device(str(at)) for at in range(number)) if trace.counts else ()
            return DetectedDevices(kind, devices, is_counted=trace.counts)
    return None


def found_by_command(kind: str, output: str) -> DetectedDevices:
    """The devices that the vendor's command lists; "cpu" when it lists none."""
    devices = accelerator(kind).parse(output)
    return DetectedDevices(kind, devices) if devices else DetectedDevices()


def needs_command(
    found: DetectedDevices, env: Mapping[str, str], requested: tuple[str, ...] | None
) -> bool:
    """True when only the vendor's command can tell: no count, or a label no list explains.

    >>> needs_command(DetectedDevices("gpu", (Device("0"),)), {}, ("GPU-5a",))
    True
    >>> found = DetectedDevices("gpu", is_counted=False)
    >>> needs_command(found, {"CUDA_VISIBLE_DEVICES": "4,5"}, ("5",))
    False
    """
    if found.kind == "cpu":
        return False
    labels = (visible_of(found.kind, env) or ("", None))[1]
    strange = [word for word in _words(requested) or () if word not in (labels or ())]
    if labels:
        return bool(strange) and any(map(_is_uuid, (*labels, *strange)))
    return not found.is_counted or any(map(_is_uuid, strange))


def choose_devices(
    found: DetectedDevices,
    env: Mapping[str, str],
    requested: tuple[str, ...] | None,
    kind: str,
    nproc: int | None,
    flag: str = "--devices",
) -> Devices:
    """Decide the devices of one node, by the rules of Paddle's launcher.

    requested: --devices, absolute labels; None or ("all",): every visible one; ("cpu",): none.
    kind: what the job asks for, "" for whatever is there. nproc: --nproc-per-node. flag: what the
    user calls --devices. Raises UsageError with every problem found.

    >>> four = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    >>> choose_devices(DetectedDevices("gpu", is_counted=False), four, ("5", "7"), "", None).indices
    (1, 3)
    """
    words = _words(requested)
    if kind == "cpu" or words == ("cpu",) or (found.kind == "cpu" and not words and not kind):
        count = nproc or (len(words) if words and words != ("cpu",) else 1)
        return Devices(count=count)
    if found.kind == "cpu" or (kind and kind != found.kind and (kind, found.kind) != ROCM_AS_GPU):
        raise UsageError.of([_absent(found, env, words, kind, nproc, flag)])
    labels, source = _visible_labels(found, env)
    if found.kind in PLUGIN_KINDS and not labels and visible_of(found.kind, env) is None:
        labels = _uncounted(found.kind, words, nproc)
    chosen = Devices(labels=labels, indices=tuple(range(len(labels))))
    if words:
        chosen = _resolve(found, labels, source, words, flag)
    if nproc is not None and nproc > len(chosen.labels):
        raise UsageError.of([_too_many(found.kind, chosen, source, words, nproc, flag)])
    if not chosen.labels:
        raise UsageError(
            f"no {accelerator(found.kind).title} can be used: {source} lists none",
            hint="run on the CPU with --devices cpu",
        )
    count = nproc or len(chosen.labels)
    return Devices(found.kind, chosen.labels, chosen.indices, count, chosen.env)


def _uncounted(kind: str, words: tuple[str, ...] | None, nproc: int | None) -> tuple[str, ...]:
    """Labels of devices that only the plug-in could count: as many as the user's words need."""
    numbers = [int(word) for word in words or () if word.isdecimal() and len(word) < 5]
    if not numbers and not nproc:
        raise UsageError(
            f"{accelerator(kind).title}s here cannot be counted without Paddle's plug-in",
            hint="name them with --devices 0,1,..., or run on the CPU with --devices cpu",
        )
    return tuple(str(at) for at in range(max(*numbers, -1) + 1 if numbers else nproc or 0))


def _words(requested: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if requested is None:
        return None
    words = tuple(word.strip() for word in requested if word.strip())
    return None if not words or words == ("all",) else words


def _visible_labels(found: DetectedDevices, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Labels in index order, and what to call the list in messages."""
    variable, labels = visible_of(found.kind, env) or ("", None)
    if labels is not None:
        return labels, f"{variable}={','.join(labels)}"
    return tuple(d.number for d in found.devices), "this machine"


def _resolve(
    found: DetectedDevices, labels: tuple[str, ...], source: str, words: tuple[str, ...], flag: str
) -> Devices:
    problems: list[Problem] = []
    indices: list[int] = []
    for word in words:
        index = _index_of(found, labels, word)
        if index is not None and index in indices:
            problems.append(Problem(f"{flag} names device {word} twice", "name every device once"))
        elif index is not None:
            indices.append(index)
        elif source != "this machine" or not _is_uuid(word):
            problems.append(_missing(found, labels, source, word, flag))
    if problems:
        raise UsageError.of(problems)
    if len(indices) < len(words):
        # UUIDs or MIG names that no list knows: the driver resolves them, if told.
        variable = accelerator(found.kind).visible[0]
        made = ((variable, ",".join(words)),)
        return Devices(labels=words, indices=tuple(range(len(words))), env=made)
    return Devices(labels=words, indices=tuple(indices))


def _index_of(found: DetectedDevices, labels: tuple[str, ...], word: str) -> int | None:
    """Position in the visible list of a number, a UUID or an unambiguous start of one."""
    if word in labels:
        return labels.index(word)
    names = {word}
    for device in found.devices:
        if word in (device.number, device.uuid) or _is_start(word, device.uuid):
            names |= {device.number, device.uuid}
    hits = [
        at for at, label in enumerate(labels)
        if label in names or any(_is_start(n, label) or _is_start(label, n) for n in names)
    ]  # fmt: skip
    return hits[0] if len(hits) == 1 else None


def _is_start(short: str, uuid: str) -> bool:
    # CUDA takes the shortest unique prefix of a UUID; one hex digit must follow "GPU-".
    return _is_uuid(short) and len(short) > len("GPU-") and uuid.startswith(short)


def _is_uuid(word: str) -> bool:
    return word.startswith(("GPU-", "MIG-"))


def _missing(
    found: DetectedDevices, labels: tuple[str, ...], source: str, word: str, flag: str
) -> Problem:
    if not word.isdecimal() and not _is_uuid(word):
        return Problem(
            f"{flag}: '{word}' is neither a device number nor a UUID",
            f"write numbers separated by commas, such as {flag} 0,1",
        )
    if source == "this machine":
        title = accelerator(found.kind).title
        return Problem(
            f"{flag}: there is no device {word}, this machine has {_count(labels, title)}",
            f"choose from {','.join(labels)}",
        )
    return Problem(
        f"{flag}: device {word} is not in {source}",
        f"labels are absolute: choose from {','.join(labels)}, or change the variable",
    )


def _too_many(
    kind: str, chosen: Devices, source: str, words: tuple[str, ...] | None, nproc: int, flag: str
) -> Problem:
    have = len(chosen.labels)
    where = f"{flag} {','.join(words)}" if words else source
    return Problem(
        f"--nproc-per-node {nproc} needs {nproc} devices, {where} has "
        f"{_count(chosen.labels, accelerator(kind).title)}",
        f"write --nproc-per-node {have} or fewer, or --devices cpu to run on the CPU",
    )


def _absent(
    found: DetectedDevices,
    env: Mapping[str, str],
    words: tuple[str, ...] | None,
    kind: str,
    nproc: int | None,
    flag: str,
) -> Problem:
    asked = f"{flag} {','.join(words)}" if words else f"device kind '{kind}'"
    title = accelerator(kind).title if kind else "accelerator"
    if found.kind != "cpu":
        other = f"use device kind {found.kind}, or leave it out"
        return Problem(
            f"{asked} asks for {title}, this machine has {accelerator(found.kind).title}",
            f"write --devices {','.join(words)}, which takes any kind" if words else other,
        )
    number = nproc or (len(words) if words else 1)
    what = f"{number} process{'' if number == 1 else 'es'}"
    hint = f"--nproc-per-node {number} without {flag} runs {what} on the CPU"
    for other in ENV_ORDER if not kind else (kind,):
        named = visible_of(other, env)
        if named and named[1] == ():
            return Problem(
                f"{asked}: {named[0]}='{env[named[0]]}' hides every device",
                f"unset {named[0]}; {hint}",
            )
    return Problem(f"{asked}: this machine has no {title}", hint)


def _count(labels: tuple[str, ...], title: str) -> str:
    return f"{len(labels) or 'no'} {title}{'' if len(labels) < 2 else 's'}"
