"""Reads a role's pod template in a PaddleJob file: command, arguments, environment. No I/O."""

from __future__ import annotations

from paddock.command_line import nearest
from paddock.core.job import ValueSource, make_command
from paddock.errors import Problem
from paddock.jobfile.args import ArgValue, LaunchArgs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Entrypoint

# Field of a container -> why it has no effect on one machine.
CONTAINER = {
    "image": "this machine's own software is used",
    "imagePullPolicy": "no image is pulled",
    "volumeMounts": "paths are this machine's",
    "volumeDevices": "paths are this machine's",
    "resources": "nothing is reserved; see --devices",
    "ports": "ports are chosen freely",
    "envFrom": "ConfigMaps and Secrets are out of reach; see --env",
    "workingDir": "the current directory is used",
    "securityContext": "processes run as you",
    **dict.fromkeys(("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"), "not run"),
    "tty": "not allocated",
    "stdin": "rank 0 keeps this terminal's input",
}
# Field of a pod -> why it has no effect on one machine.
POD = {
    "volumes": "paths are this machine's",
    "initContainers": "not run",
    "restartPolicy": "see --max-restart",
    **dict.fromkeys(
        (
            "tolerations",
            "nodeSelector",
            "affinity",
            "schedulerName",
            "priorityClassName",
            "topologySpreadConstraints",
        ),
        "nothing is scheduled",
    ),
    **dict.fromkeys(("hostNetwork", "dnsPolicy"), "the network is this machine's"),
    "serviceAccountName": "there is no cluster",
    "imagePullSecrets": "no image is pulled",
    "securityContext": "processes run as you",
}
READ_HERE = ("containers", "terminationGracePeriodSeconds")
READ_OF_CONTAINER = ("name", "command", "args", "env")
UNKNOWN = ": unknown field"
# Words that mean the shell has work to do, so that its command is not ours to take apart.
SHELL_CHARS = ";|&<>$`(){}*?[]~\n#"
LAUNCHERS = ("paddle.distributed.launch", "paddle.distributed.fleet.launch",
             "torch.distributed.run", "torch.distributed.launch")  # fmt: skip
LAUNCHER_PROGRAMS = ("fleetrun", "torchrun")
# Switches of python(1) that take no value and change nothing here.
PYTHON_SWITCHES = ("-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S")


def from_file(path: str, text: str, shown: str = "") -> ArgValue:
    """A value that stands in the document. shown: what stands there, if not this text."""
    return ArgValue(text, ValueSource("file", path, shown or text))


class DocumentReading:
    """Collects the problems of a document, and the lines about what has no effect here."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.not_honoured: list[str] = []

    def fault(self, path: str, what: str, hint: str = "") -> None:
        self.problems.append(Problem(f"{path}: {what}", hint))

    def mapping(self, path: str, content: object, hint: str) -> dict[str, object] | None:
        """The content if it is a mapping; a problem is added for anything else but None."""
        if isinstance(content, dict):
            return content
        if content is not None:
            self.fault(path, "not a mapping", hint)
        return None


class PodReading(DocumentReading):
    """A pod template, read as part of a document. command: None if it names none."""

    def __init__(self, document: DocumentReading) -> None:
        self.problems, self.not_honoured = document.problems, document.not_honoured
        self.command: Entrypoint | None = None
        self.values: dict[str, ArgValue] = {}
        self.env: dict[str, str] = {}
        self.grace_seconds = 0


def read_pod(document: DocumentReading, path: str, template: object, python: str) -> PodReading:
    """Read a PodTemplateSpec at that path of the document."""
    pod = PodReading(document)
    parts = pod.mapping(path, template, "write spec.containers under it") or {}
    for key in parts:
        if key != "spec":
            pod.not_honoured.append(f"{path}.{key}: there are no pods")
    path += ".spec"
    spec = pod.mapping(path, parts.get("spec"), "write containers under it")
    if spec is None:
        return pod
    for key in spec:
        if key not in READ_HERE:
            pod.not_honoured.append(_not_used(path, key, "", POD, READ_HERE))
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace > 0:
        pod.grace_seconds = grace
    _read_containers(pod, f"{path}.containers", spec.get("containers"), python)
    return pod


def _read_containers(pod: PodReading, path: str, containers: object, python: str) -> None:
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], dict):
        pod.fault(path, "no container", "write one with a command")
        return
    for at in range(1, len(containers)):
        pod.not_honoured.append(f"{path}[{at}]: only the first container runs here")
    first = containers[0]
    path += "[0]"
    for key, content in first.items():
        if key in READ_OF_CONTAINER:
            continue
        shown = f" {content}" if isinstance(content, (str, int)) else ""
        shown = shown or _limits(content) if key == "resources" else shown
        pod.not_honoured.append(_not_used(path, key, f"{shown} -", CONTAINER, READ_OF_CONTAINER))
    _read_env(pod, f"{path}.env", first.get("env"))
    words = [
        *_texts(pod, f"{path}.command", first.get("command")),
        *_texts(pod, f"{path}.args", first.get("args")),
    ]
    if words:
        _read_command(pod, path, [_expand(w, pod.env) for w in words], python)


def _not_used(
    path: str, key: str, shown: str, known: Mapping[str, str], read: tuple[str, ...]
) -> str:
    """The reason why a field has no effect here; for a misspelt name, the one that was meant."""
    if key in known:
        return f"{path}.{key}:{shown} {known[key]}"
    line = unknown_field(f"{path}.{key}", key, read)
    return line if "did you mean" in line else f"{path}.{key}:{shown} not used here"


def unknown_field(path: str, key: str, known: tuple[str, ...]) -> str:
    """The message about an unknown field, with the one that was meant."""
    hint = nearest(key, known, " ").strip()
    return f"{path}{UNKNOWN}" + (f", {hint}" if hint else "")


def _limits(resources: object) -> str:
    """The accelerators asked for in the container's resource limits."""
    limits = resources.get("limits") if isinstance(resources, dict) else None
    if not isinstance(limits, dict):
        return ""
    return "".join(f" {name}={count}" for name, count in limits.items() if "/" in str(name))


def _texts(pod: PodReading, path: str, content: object) -> list[str]:
    if content is None:
        return []
    if not isinstance(content, list):
        pod.fault(path, "not a list", 'write for example ["python"]')
        return []
    for at, word in enumerate(content):
        if not isinstance(word, str):
            pod.fault(f"{path}[{at}]", f"{word!r} is not a text", f'put it in quotes: "{word}"')
    return [str(word) for word in content]


def _read_env(pod: PodReading, path: str, content: object) -> None:
    if content is None:
        return
    if not isinstance(content, list):
        pod.fault(path, "not a list", "write - name: and value:")
        return
    for at, item in enumerate(content):
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            pod.fault(f"{path}[{at}]", "no usable name")
        elif "valueFrom" in item:
            pod.not_honoured.append(f"{path}.{name}: valueFrom is out of reach; see --env")
        else:
            text = item.get("value")
            pod.env[name] = "" if text is None else _expand(str(text), pod.env)


def _expand(text: str, env: dict[str, str]) -> str:
    """Kubernetes' own $(NAME), for variables defined before; $$(NAME) is left as $(NAME).

    >>> _expand("--lr=$(LR) $(NO) $$(LR)", {"LR": "1"})
    '--lr=1 $(NO) $(LR)'
    """
    parts: list[str] = []
    while "$" in text:
        before, _, text = text.partition("$")
        parts.append(before)
        if text.startswith("$"):
            parts.append("$")
            text = text[1:]
            continue
        name, close, rest = text[1:].partition(")")
        if text.startswith("(") and close and name in env:
            parts.append(env[name])
            text = rest
        else:
            parts.append("$")
    return "".join(parts) + text


def _read_command(pod: PodReading, path: str, words: list[str], python: str) -> None:
    """Split the command: a launcher in it is replaced by this one, with its flags."""
    words = _without_shell(words)
    inner = _launcher_words(words)
    if inner is None:
        pod.command = _plain_command(words, python)
        return
    read = LaunchArgs(inner)
    for problem in read.problems:
        pod.fault(f"{path}.args", problem.message, problem.hint)
    pod.not_honoured.extend(
        f"{path}.args: {name} is accepted and ignored: {why}" for name, why in read.ignored.items()
    )
    pod.values = {
        name: from_file(f"{path}.args {given.source.name}", given.text)
        for name, given in read.values.items()
        if name not in ("module", "no_python", "run_path", "file", "env", "ignore_env")
    }
    for word in read.env:
        name, _, text = word.partition("=")
        pod.env[name] = text
    if not read.script:
        pod.fault(f"{path}.args", "no script after the launcher's flags")
        return
    pod.command = read.command(python)


def _without_shell(words: list[str]) -> list[str]:
    """The arguments of ``sh -c "python train.py"``, if the shell has nothing else to do."""
    if len(words) != 3 or _base(words[0]) not in ("sh", "bash") or words[1] not in ("-c", "-lc"):
        return words
    text = words[2]
    if any(c in SHELL_CHARS for c in text):
        return words
    import shlex

    try:
        inner = shlex.split(text)
    except ValueError:
        return words
    if inner[:1] == ["exec"]:
        inner = inner[1:]
    return inner if inner and "=" not in inner[0] else words


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _python_args(words: list[str]) -> list[str]:
    """The arguments of a Python interpreter after its switches; none for another program."""
    name = _base(words[0])  # python, python3, python3.11
    if not name.startswith("python") or name[6:].strip("0123456789."):
        return []
    at = 1
    while at < len(words) and words[at] in PYTHON_SWITCHES:
        at += 1
    return words[at:]


def _launcher_words(words: list[str]) -> list[str] | None:
    """The arguments after a launcher, None if the command runs none."""
    args, name = _python_args(words), _base(words[0])
    is_launcher = name in LAUNCHER_PROGRAMS
    if args[:1] == ["-m"] and len(args) > 1:
        name, words = args[1], args[1:]
        is_launcher = name in LAUNCHERS
    if is_launcher:
        return words[1:]
    return words[2:] if name == "paddock" and words[1:2] == ["launch"] else None


def _plain_command(words: list[str], python: str) -> Entrypoint:
    """A command without a launcher; a Python script runs with this machine's Python."""
    args = _python_args(words)
    is_module = args[:1] == ["-m"] and len(args) > 1
    if is_module:
        args = args[1:]
    is_program = not args or args[0].startswith("-")
    program, *rest = words if is_program else args
    return make_command(program, tuple(rest), python, is_module, is_program)
