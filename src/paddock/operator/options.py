"""The flags of ``paddock operator run``. Pure; all problems are told at once.

Those of paddle-operator are kept, and may be written as Go does: -leader-elect=true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.errors import Problem, UsageError
from paddock.operator.decision import SCHEDULERS, Settings

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
FORMATS: tuple[Format, ...] = ("text", "json")
EPHEMERAL_FIRST = 32768  # net.ipv4.ip_local_port_range, ip(7)
WORKERS_MAX = 256
Kind = Literal["words", "word", "switch", "integer", "number"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. values: the only ones it takes, when there are any."""

    name: str
    kind: Kind
    default: str
    text: str
    values: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


FLAGS = (
    Flag("namespace", "words", "", "watch only these namespaces; may be repeated"),
    Flag("scheduling", "word", "", "gang scheduler of every job", SCHEDULERS),
    Flag("leader-elect", "switch", "false", "run several copies, of which one works"),
    Flag("leader-election-namespace", "word", "", "where the Lease is; the operator's own"),
    Flag("leader-election-id", "word", "", "name of the Lease, where two operators share one"
         " namespace"),
    Flag("metrics-bind-address", "word", ":8080", "where /metrics is served; 0 for nowhere"),
    Flag("metrics-cert-path", "word", "", "folder of tls.crt and tls.key: /metrics is HTTPS, and"
         " only for accounts that may get it"),
    Flag("health-probe-bind-address", "word", ":8081", "/healthz and /readyz; 0 for nowhere"),
    Flag("init-image", "word", "", "image of an init container that waits for the other pods",
         aliases=("initImage",)),
    Flag("port-range", "word", "20000,30000", "ports on the nodes for jobs with intranet Host"),
    Flag("force-delete-after", "number", "60", "seconds after their grace at which pods of a lost"
         " node are removed from the record"),
    Flag("kubeconfig", "word", "", "the cluster to work on; inside a pod its own"),
    Flag("context", "word", "", "context of the kubeconfig"),
    Flag("workers", "integer", "8", "jobs looked at in the same moment"),
    Flag("kube-api-qps", "number", "0", "calls a second; 0: the API server decides"),
    Flag("kube-api-burst", "integer", "100", "calls at once, with --kube-api-qps"),
    Flag("log-level", "word", "info", "how much is logged", LEVELS),
    Flag("log-format", "word", "text", "how it is logged", FORMATS),
)  # fmt: skip
# Accepted, and said to do nothing.
UNUSED = {"etcd-server": "the etcd of elastic jobs is the Service paddle-elastic-etcd"}
ZAP = "zap-"
ZAP_SWITCH = "zap-devel"


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator is asked to be. said: what to tell about flags that do little."""

    namespaces: tuple[str, ...] = ("",)
    leader_elect: bool = False
    lease_namespace: str = ""
    lease_name: str = ""
    metrics_cert_path: str = ""
    metrics_address: str = ":8080"
    health_address: str = ":8081"
    kubeconfig: str = ""
    context: str = ""
    workers: int = 8
    qps: float = 0.0
    burst: int = 100
    log_level: Level = "info"
    log_format: Format = "text"
    settings: Settings = field(default_factory=Settings)
    said: tuple[str, ...] = ()


def read_options(words: Sequence[str]) -> Options:
    """The options in the words of a command line. Raises UsageError.

    >>> options = read_options(["-leader-elect=true", "--namespace", "a,b", "--namespace=c"])
    >>> options.leader_elect, options.namespaces
    (True, ('a', 'b', 'c'))
    """
    problems: list[Problem] = []
    said: list[str] = []
    given = _split(words, problems, said)
    values = {flag.name: _value(flag, given.get(flag.name), problems) for flag in FLAGS}
    ports = _port_range(values["port-range"], "port-range" in given, problems, said)
    if problems:
        raise UsageError.of(problems)
    names = [n.strip() for text in given.get("namespace", ()) for n in text.split(",")]
    settings = Settings(
        scheduling=values["scheduling"],
        init_image=values["init-image"],
        host_ports=ports,
        force_delete_seconds=float(values["force-delete-after"]),
    )
    return Options(
        namespaces=tuple(dict.fromkeys(n for n in names if n)) or ("",),
        leader_elect=values["leader-elect"] == "true",
        lease_namespace=values["leader-election-namespace"],
        lease_name=values["leader-election-id"],
        metrics_cert_path=values["metrics-cert-path"],
        metrics_address=values["metrics-bind-address"],
        health_address=values["health-probe-bind-address"],
        kubeconfig=values["kubeconfig"],
        context=values["context"],
        workers=int(values["workers"]),
        qps=float(values["kube-api-qps"]),
        burst=int(values["kube-api-burst"]),
        log_level=next(level for level in LEVELS if level == values["log-level"]),
        log_format=next(form for form in FORMATS if form == values["log-format"]),
        settings=settings,
        said=tuple(said),
    )


def usage() -> str:
    """The flags, a line each."""
    lines = ["", "flags:"]
    for flag in FLAGS:
        names = ", ".join("--" + name for name in (flag.name, *flag.aliases))
        text = flag.text
        if flag.values:
            text += " (" + ", ".join(v or '""' for v in flag.values) + ")"
        if flag.default:
            text += f" [{flag.default}]"
        lines.append(f"  {names:<30} {text}")
    lines.append("Accepted without effect: --zap-*, " + ", ".join("--" + name for name in UNUSED))
    return "\n".join(lines) + "\n"


def _split(words: Sequence[str], problems: list[Problem], said: list[str]) -> dict[str, list[str]]:
    """What was given to each flag, in order."""
    known = {name: flag for flag in FLAGS for name in (flag.name, *flag.aliases)}
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.lstrip("-").partition("=")
        flag = known.get(name)
        is_ignored = name in UNUSED or name.startswith(ZAP)
        if not word.startswith("-") or (flag is None and not is_ignored):
            problems.append(_unknown(word, name, tuple(known)))
            continue
        is_switch = name == ZAP_SWITCH if flag is None else flag.kind == "switch"
        if not equals and is_switch:
            text = "true"
        elif not equals:
            if not rest or (rest[0].startswith("-") and len(rest[0]) > 1):
                problems.append(Problem(f"{word} needs a value", "paddock operator run --help"))
                continue
            text = rest.pop(0)
        if flag is None:
            why = UNUSED.get(name, "logs are set by --log-level and --log-format")
            said.append(f"--{name} does nothing here: {why}")
        else:
            given.setdefault(flag.name, []).append(text)
    return given


def _unknown(word: str, name: str, known: tuple[str, ...]) -> Problem:
    from paddock.jobfile.suggest import nearest

    if not word.startswith("-"):
        return Problem(f"'{word}' is not expected here", "flags only; paddock operator run --help")
    hint = nearest(f"--{name}", [f"--{one}" for one in known], "paddock operator run --help")
    return Problem(f"'{word}' is not a flag of paddock operator run", hint)


def _value(flag: Flag, given: list[str] | None, problems: list[Problem]) -> str:
    """The last one given, checked."""
    text = given[-1] if given else flag.default
    where = f"--{flag.name} is '{text}'"
    if flag.kind == "switch":
        # strconv.ParseBool of Go.
        if text in ("1", "t", "T", "true", "TRUE", "True"):
            return "true"
        if text in ("0", "f", "F", "false", "FALSE", "False"):
            return "false"
        problems.append(Problem(where, "true or false"))
    elif flag.values and text not in flag.values:
        problems.append(Problem(where, "one of " + ", ".join(v or '""' for v in flag.values)))
    elif flag.kind == "integer":
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000):
            problems.append(Problem(where, "a whole number from 1 on"))
        elif flag.name == "workers" and int(text) > WORKERS_MAX:
            problems.append(Problem(where, f"at most {WORKERS_MAX}"))
    elif flag.kind == "number":
        try:
            is_good = 0 <= float(text) < float("inf")
        except ValueError:
            is_good = False
        if not is_good:
            problems.append(Problem(where, f"a number from 0 on: {flag.text}"))
    return text


def _port_range(
    text: str, is_given: bool, problems: list[Problem], said: list[str]
) -> tuple[int, int]:
    """First and last port.

    >>> _port_range("20000,30000", False, [], [])
    (20000, 30000)
    """
    first, _, last = text.replace("-", ",").partition(",")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) < int(last) <= 65535):
        problems.append(
            Problem(
                f"--port-range is '{text}'", "FIRST,LAST between 1024 and 65535, as 20000,30000"
            )
        )
        return (0, 0)
    if is_given and int(last) >= EPHEMERAL_FIRST:
        said.append(
            f"--port-range {text}: ports from {EPHEMERAL_FIRST} on may be taken on the nodes by"
            " outgoing connections; 20000,30000 is safe"
        )
    return int(first), int(last)
