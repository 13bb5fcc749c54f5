"""The flags of ``paddock operator run``. Pure; all problems are told at once.

Those of paddle-operator are kept, and may be written as Go does: -leader-elect=true.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from paddock.command_line import FALSE_WORDS, TRUE_WORDS, Flag, FlagTable, flag, nearest, read_line
from paddock.errors import Problem, UsageError
from paddock.operator.decision import SCHEDULERS, OperatorSettings

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
FORMATS: tuple[Format, ...] = ("text", "json")
EPHEMERAL_FIRST = 32768  # net.ipv4.ip_local_port_range, ip(7)
WORKERS_MAX = 256

ZAP = "logs are set by --log-level and --log-format"
# fmt: off
FLAGS = (
    flag("namespace", "A,B", "watch only these namespaces; may be repeated", repeats=True),
    flag("scheduling", "NAME", "gang scheduler of every job", choices=SCHEDULERS),
    flag("leader-elect", "", "run several copies, of which one works"),
    flag("leader-election-namespace", "NAME", "where the Lease is; the operator's own"),
    flag("leader-election-id", "NAME",
         "name of the Lease, where two operators share one namespace"),
    flag("metrics-bind-address", "ADDRESS",
         "where /metrics is served; 0 for nowhere", default=":8080"),
    flag("metrics-cert-path", "DIR",
         "folder of tls.crt and tls.key: /metrics is HTTPS, and only for "
         "accounts that may get it"),
    flag("health-probe-bind-address", "ADDRESS",
         "/healthz and /readyz; 0 for nowhere", default=":8081"),
    flag("init-image", "IMAGE",
         "image of an init container that waits for the other pods", aliases=("initImage",)),
    flag("port-range", "FIRST,LAST",
         "ports on the nodes for jobs with intranet Host", default="20000,30000"),
    flag("force-delete-after", "NUMBER",
         "seconds after their grace at which pods of a lost node are "
         "removed from the record", default="60"),
    flag("kubeconfig", "FILE", "the cluster to work on; inside a pod its own"),
    flag("context", "NAME", "context of the kubeconfig"),
    flag("workers", "N", "jobs looked at in the same moment", default="8"),
    flag("kube-api-qps", "NUMBER", "calls a second; 0: the API server decides", default="0"),
    flag("kube-api-burst", "N", "calls at once, with --kube-api-qps", default="100"),
    flag("log-level", "LEVEL", "how much is logged", default="info", choices=LEVELS),
    flag("log-format", "FORMAT", "how it is logged", default="text", choices=FORMATS),
    *(flag(f"zap-{name}", "VALUE" if name != "devel" else "", ZAP, status="ignored")
      for name in ("devel", "encoder", "log-level", "stacktrace-level", "time-encoding")),
    flag("etcd-server", "ADDRESS", "the etcd of elastic jobs is the Service paddle-elastic-etcd",
         status="ignored"),
)
# fmt: on
TABLE = FlagTable("operator run", FLAGS, goes_single=True)


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The operator's options, by the names of their flags. warnings: about flags that do little."""

    namespaces: tuple[str, ...] = ("",)
    leader_elect: bool = False
    leader_election_namespace: str = ""
    leader_election_id: str = ""
    metrics_cert_path: str = ""
    metrics_bind_address: str = ":8080"
    health_probe_bind_address: str = ":8081"
    kubeconfig: str = ""
    context: str = ""
    workers: int = 8
    kube_api_qps: float = 0.0
    kube_api_burst: int = 100
    log_level: Level = "info"
    log_format: Format = "text"
    settings: OperatorSettings = field(default_factory=OperatorSettings)
    warnings: tuple[str, ...] = ()


def read_options(words: Sequence[str]) -> OperatorOptions:
    """The options in the words of a command line. Raises UsageError.

    >>> options = read_options(["-leader-elect=true", "--namespace", "a,b", "--namespace=c"])
    >>> options.leader_elect, options.namespaces
    (True, ('a', 'b', 'c'))
    """
    line = read_line(words, TABLE)
    problems = line.problems
    hint = "flags only; see paddock operator run --help"
    problems += [Problem(f"'{word}' is not expected here", hint) for word in line.rest]
    warnings = [f"{name} does nothing here: {why}" for name, why in line.ignored().items()]
    texts = line.texts()
    values = {f.key: _value(f, texts.get(f.key), problems) for f in TABLE.flags}
    ports = _port_range(values["port_range"], "port_range" in texts, problems, warnings)
    if problems:
        raise UsageError.of(problems)
    given = [one.text for one in line.flags if one.flag.name == "namespace"]
    names = [n.strip() for text in given for n in text.split(",")]
    settings = OperatorSettings(
        scheduling=values["scheduling"],
        init_image=values["init_image"],
        host_ports=ports,
        force_delete_seconds=values["force_delete_after"],
    )
    own = {one.name for one in fields(OperatorOptions)}
    return OperatorOptions(
        **{name: value for name, value in values.items() if name in own},
        namespaces=tuple(dict.fromkeys(n for n in names if n)) or ("",),
        settings=settings,
        warnings=tuple(warnings),
    )


def _value(flag: Flag, given: str | None, problems: list[Problem]) -> Any:
    """The value of a flag by its kind: bool, int, float or text."""
    text = flag.default if given is None else given
    where = f"--{flag.name} is '{text}'"
    if flag.kind == "switch":
        if text and text.lower() not in TRUE_WORDS | FALSE_WORDS:
            problems.append(Problem(where, "true or false"))
        return text.lower() in TRUE_WORDS
    if flag.choices and text not in flag.choices:
        problems.append(Problem(where, nearest(text, [c or '""' for c in flag.choices])))
    if flag.kind == "int":
        most = WORKERS_MAX if flag.name == "workers" else 1_000_000
        if text.isascii() and text.isdigit() and 1 <= int(text) <= most:
            return int(text)
        problems.append(Problem(where, f"a whole number from 1 to {most}"))
    elif flag.metavar == "NUMBER":
        with suppress(ValueError):
            if 0 <= float(text) < float("inf"):
                return float(text)
        problems.append(Problem(where, f"a number from 0 on: {flag.help}"))
    return text


def _port_range(
    text: str, is_given: bool, problems: list[Problem], warnings: list[str]
) -> tuple[int, int]:
    """First and last port.

    >>> _port_range("20000,30000", False, [], [])
    (20000, 30000)
    """
    first, _, last = text.replace("-", ",").partition(",")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) < int(last) <= 65535):
        hint = "FIRST,LAST between 1024 and 65535, as 20000,30000"
        problems.append(Problem(f"--port-range is '{text}'", hint))
        return (0, 0)
    if is_given and int(last) >= EPHEMERAL_FIRST:
        warnings.append(
            f"--port-range {text}: ports from {EPHEMERAL_FIRST} on may be taken on the nodes by"
            " outgoing connections; 20000,30000 is safe"
        )
    return int(first), int(last)
