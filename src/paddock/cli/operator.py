"""``paddock operator``: runs the operator, installs it, or prints the files that install it."""

from __future__ import annotations

from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.operator.manifests.install import Install

EXTRA = ("lightkube", "lightkube_models", "httpx2", "msgspec", "yaml")
ORDERS = {
    "run": "work on a cluster",
    "install": "apply the definition and the operator, wait, and verify that it works",
    "uninstall": "remove the operator; jobs and their pods stay",
    "crd": "print the definition of PaddleJob",
    "manifests": "print what installs the operator",
    "check": "say who leads, or why no operator works",
}
SWITCHES = ("crd", "monitor", "dry-run", "definition", "wait")
CRD = {"version": "v1, or v1beta1 for Kubernetes 1.15 and older [v1]"}
MANIFESTS = {
    "namespace": "of the operator itself [paddle-system]",
    "image": "of the operator [localhost/paddock-operator, of this version]",
    "scheduling": "gang scheduler of jobs that name none: volcano, coscheduling",
    "watch-namespaces": "a,b: serve only these, with rights in these only [all]",
    "replicas": "copies of the operator, of which one works [1]",
    "init-image": "of an init container that waits for the names of its role",
    "crd": "with the definition of PaddleJob before the rest",
    "monitor": "with a ServiceMonitor for Prometheus' operator",
}
ON_CLUSTER = {
    "wait": "until it is so; --wait=false to come back at once [true]",
    "timeout": "seconds to wait at most [120]",
    "kubeconfig": "the cluster [$KUBECONFIG, ~/.kube/config]",
    "context": "of the kubeconfig",
}
INSTALL = {
    **{name: text for name, text in MANIFESTS.items() if name != "crd"},
    "dry-run": "print what would be applied, and ask no cluster",
    **ON_CLUSTER,
}
UNINSTALL = {
    "namespace": MANIFESTS["namespace"],
    "watch-namespaces": "a,b: those that it was installed for [all]",
    "definition": "remove the definition of PaddleJob too, and with it all jobs",
    **ON_CLUSTER,
}
CHECK = {
    "namespace": "of the operator [in a pod its own, else paddle-system]",
    "lease": "its --leader-election-id",
    "watch-namespaces": "a,b: those that it serves [all]",
    "kubeconfig": ON_CLUSTER["kubeconfig"],
    "context": ON_CLUSTER["context"],
}
FLAGS = {
    "crd": CRD, "manifests": MANIFESTS, "install": INSTALL, "uninstall": UNINSTALL, "check": CHECK,
}  # fmt: skip
TIMEOUT_SECONDS_MAX = 3600


def run(argv: Sequence[str]) -> int:
    """Carry out an order; the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        return _help()
    order, words = argv[0], list(argv[1:])
    if order not in ORDERS:
        from paddock.jobfile.suggest import nearest

        hint = nearest(order, ORDERS) or "write one of " + ", ".join(ORDERS)
        raise UsageError(f"'{order}' is not an order of paddock operator", hint=hint)
    if any(word in ("-h", "--help") for word in words):
        return _help(order)
    try:
        if order == "run":
            return _run(words)
        given = _given(words, order, FLAGS[order])
        if order == "crd":
            return _crd(given)
        if order == "check":
            return _check(given)
        if order == "manifests" or _is_yes(given, "dry-run"):
            return _manifests(given, has_crd=order == "install" or _is_yes(given, "crd"))
        return _on_cluster(given, removes=order == "uninstall")
    except ImportError as error:
        raise missing_extra(error) from error


def _run(words: list[str]) -> int:
    from paddock.operator.options import read_options

    options = read_options(words)
    from paddock.operator import run as operator
    from paddock.operator.reconcile import reconcile

    return operator.run(options, reconcile)


def _crd(given: dict[str, str]) -> int:
    from paddock.operator.manifests.crd import crd_text

    print(crd_text(given.get("version", "v1")), end="")
    return 0


def _manifests(given: dict[str, str], *, has_crd: bool) -> int:
    from paddock.operator.manifests.install import manifests_text

    monitor = _is_yes(given, "monitor")
    print(manifests_text(_install(given), has_crd=has_crd, has_monitor=monitor), end="")
    return 0


def _check(given: dict[str, str]) -> int:
    from paddock.operator.verify import verify

    print(verify(given))
    return 0


def _on_cluster(given: dict[str, str], *, removes: bool) -> int:
    from paddock.operator.manifests.install import checked
    from paddock.operator.runtime import installer

    seconds = given.get("timeout", "120")
    if not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds) <= TIMEOUT_SECONDS_MAX):
        hint = f"whole seconds, 1 to {TIMEOUT_SECONDS_MAX}"
        raise UsageError(f"--timeout is '{seconds}'", hint=hint)
    more = {"waits": _is_yes(given, "wait", "true")}
    if removes:
        more["has_definition"] = _is_yes(given, "definition")
    else:
        more["has_monitor"] = _is_yes(given, "monitor")
    return installer.run(
        checked(_install(given)),
        removes=removes,
        more=more,
        kubeconfig=given.get("kubeconfig", ""),
        context=given.get("context", ""),
        timeout_seconds=float(seconds),
        say=lambda line: print(line, flush=True),
    )


def _install(given: dict[str, str]) -> Install:
    """How the operator is to run, as far as the flags say."""
    from paddock.operator.manifests.install import Install

    watched = given.get("watch-namespaces", "")
    replicas = given.get("replicas", "1")
    if not (replicas.isascii() and replicas.isdigit()):
        raise UsageError(f"--replicas is '{replicas}'", hint="a whole number")
    install = Install()
    return Install(
        namespace=given.get("namespace", install.namespace),
        image=given.get("image", install.image),
        scheduling=given.get("scheduling", install.scheduling),
        watch_namespaces=tuple(name for name in watched.split(",") if name),
        replicas=int(replicas),
        init_image=given.get("init-image", install.init_image),
    )


def _is_yes(given: dict[str, str], name: str, absent: str = "false") -> bool:
    text = given.get(name, absent)
    if text not in ("true", "false"):
        raise UsageError(f"--{name} is '{text}'", hint="true or false")
    return text == "true"


def _given(words: list[str], order: str, known: dict[str, str]) -> dict[str, str]:
    """--a-b c --d=e as {"a-b": "c", "d": "e"}; those of SWITCHES need no value."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            from paddock.jobfile.suggest import nearest

            raise UsageError(
                f"'{word}' is not a flag of paddock operator {order}",
                hint=nearest(name, [f"--{one}" for one in known]),
            )
        if not equals and name in SWITCHES:
            text = "true"
        elif not equals:
            if not rest:
                raise UsageError(f"{word} needs a value", hint=f"paddock operator {order} --help")
            text = rest.pop(0)
        found[name] = text
    return found


def _help(order: str = "") -> int:
    """Of one order, or what the orders are."""
    from paddock.cli.help import command_help

    if not order:
        print(command_help("operator"), end="")
        print("\n".join(f"  {name:<12}{what}" for name, what in ORDERS.items()))
        print("paddock operator ORDER --help lists its flags")
        return 0
    print(f"paddock operator {order}: {ORDERS[order]}")
    if order == "run":
        try:
            from paddock.operator.options import usage
        except ImportError as error:
            raise missing_extra(error) from error
        print(usage(), end="")
        return 0
    print("\nflags:")
    for name, what in FLAGS[order].items():
        print(f"  --{name:<18} {what}")
    return 0


def missing_extra(error: ImportError) -> UsageError:
    """What to say where lightkube is not installed. Raises `error` when it is another."""
    if (error.name or "").partition(".")[0] not in EXTRA:
        raise error
    return UsageError(
        f"the operator needs {error.name}, which is not installed",
        hint="pip install lightkube PyYAML",
    )
