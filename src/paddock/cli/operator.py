"""``paddock operator``: runs the operator, or prints the files that install it."""

from __future__ import annotations

from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXTRA = ("lightkube", "lightkube_models", "httpx2", "msgspec", "yaml")
ORDERS = {
    "run": "work on a cluster",
    "crd": "print the definition of PaddleJob",
    "manifests": "print what installs the operator",
    "check": "say who leads, or why no operator works",
}
SWITCHES = ("crd", "monitor")
CRD = {"version": "v1, or v1beta1 for Kubernetes 1.15 and older [v1]"}
MANIFESTS = {
    "namespace": "of the operator itself [paddle-system]",
    "image": "of the operator",
    "scheduling": "gang scheduler of jobs that name none: volcano, coscheduling",
    "watch-namespaces": "a,b: serve only these, with rights in these only [all]",
    "replicas": "copies of the operator, of which one works [1]",
    "init-image": "of an init container that waits for the names of its role",
    "crd": "with the definition of PaddleJob before the rest",
    "monitor": "with a ServiceMonitor for Prometheus' operator",
}
CHECK = {
    "namespace": "of the operator [in a pod its own, else paddle-system]",
    "lease": "its --leader-election-id",
    "watch-namespaces": "a,b: those that it serves [all]",
    "kubeconfig": "the cluster to look at",
    "context": "context of the kubeconfig",
}


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
        return {"run": _run, "crd": _crd, "manifests": _manifests, "check": _check}[order](words)
    except ImportError as error:
        raise missing_extra(error) from error


def _run(words: list[str]) -> int:
    from paddock.operator.options import read_options

    options = read_options(words)
    from paddock.operator import run as operator
    from paddock.operator.reconcile import reconcile

    return operator.run(options, reconcile)


def _crd(words: list[str]) -> int:
    from paddock.operator.manifests import crd_text

    given = _given(words, "crd", tuple(CRD))
    print(crd_text(given.get("version", "v1")), end="")
    return 0


def _manifests(words: list[str]) -> int:
    from paddock.operator.manifests import manifests_text
    from paddock.operator.manifests.install import Install

    given = _given(words, "manifests", tuple(MANIFESTS))
    install = Install()
    watched = given.get("watch-namespaces", "")
    replicas = given.get("replicas", "1")
    if not replicas.isdigit():
        raise UsageError(f"--replicas is '{replicas}'", hint="a whole number")
    text = manifests_text(
        namespace=given.get("namespace", install.namespace),
        image=given.get("image", install.image),
        scheduling=given.get("scheduling", install.scheduling),
        init_image=given.get("init-image", install.init_image),
        watch_namespaces=tuple(name for name in watched.split(",") if name),
        replicas=int(replicas),
        has_crd=_is_yes(given, "crd"),
        has_monitor=_is_yes(given, "monitor"),
    )
    print(text, end="")
    return 0


def _check(words: list[str]) -> int:
    given = _given(words, "check", tuple(CHECK))
    from paddock.operator.verify import verify

    print(verify(given))
    return 0


def _is_yes(given: dict[str, str], name: str) -> bool:
    text = given.get(name, "false")
    if text not in ("true", "false"):
        raise UsageError(f"--{name} is '{text}'", hint="true or false")
    return text == "true"


def _given(words: list[str], order: str, known: tuple[str, ...]) -> dict[str, str]:
    """--a-b c --d=e as {"a-b": "c", "d": "e"}; --crd and --monitor need no value."""
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
                raise UsageError(f"{word} needs a value", hint="paddock operator --help")
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
    for name, what in {"crd": CRD, "check": CHECK}.get(order, MANIFESTS).items():
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
