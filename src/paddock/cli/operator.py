"""``paddock operator``: runs the operator, installs it, or prints the files that install it.

Flags may be written as Go does: -leader-elect=true.
"""

from __future__ import annotations

from functools import partial

from paddock.cli.family import CliCommand, ParsedCommand, named
from paddock.command_line import flag
from paddock.errors import UsageError
from paddock.operator.options import FLAGS
from paddock.watch.meter import ProgressMeter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from paddock.kube.client import KubeClient
    from paddock.operator.manifests.install import Install

TIMEOUT_SECONDS_MAX = 3600


def _run(words: Sequence[str]) -> int:
    from paddock.operator.options import read_options

    options = read_options(words)
    from paddock.operator import run as operator
    from paddock.operator.reconcile import reconcile

    return operator.run(options, reconcile)


def _crd(args: ParsedCommand) -> int:
    from paddock.operator.manifests.crd import crd_text

    print(crd_text(args.version), end="")
    return 0


def _manifests(args: ParsedCommand) -> int:
    from paddock.operator.manifests.install import manifests_text

    print(manifests_text(_made(args), has_crd=args.crd, has_monitor=args.monitor), end="")
    return 0


def _check(args: ParsedCommand) -> int:
    from paddock.kube import http_client
    from paddock.operator.names import LEASE
    from paddock.operator.run import own_namespace
    from paddock.operator.verify import check_operator

    namespace, lease = args.namespace or own_namespace(), args.lease or LEASE

    def check(client: KubeClient) -> Awaitable[str]:
        return check_operator(client, namespace, lease, _names(args.watch_namespaces))

    print(http_client.ask(args.kubeconfig or "", args.context or "", check))
    return 0


def _install(args: ParsedCommand) -> int:
    if args.dry_run:
        args.crd = True
        return _manifests(args)
    return _on_cluster(args, _made(args), has_monitor=args.monitor)


def _uninstall(args: ParsedCommand) -> int:
    from paddock.operator.manifests.install import Install

    install = Install(namespace=args.namespace, watch_namespaces=_names(args.watch_namespaces))
    return _on_cluster(args, install, has_definition=args.definition)


def _on_cluster(args: ParsedCommand, install: Install, **more: bool) -> int:
    from paddock.kube import http_client
    from paddock.kube.client import KubeError
    from paddock.operator.manifests.install import checked
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.installer import Installer, refused

    install = checked(install)
    if not 1 <= args.timeout <= TIMEOUT_SECONDS_MAX:
        hint = f"seconds, 1 to {TIMEOUT_SECONDS_MAX}"
        raise UsageError(f"--timeout is {args.timeout:g}", hint=hint)
    removes = "has_definition" in more
    with ProgressMeter("removing" if removes else "installing") as meter:

        def wait(text: str) -> None:
            meter.text = f"waiting for {text}"

        async def work(client: KubeClient) -> None:
            installer = Installer(
                client, install, clock=Clock(), timeout_seconds=args.timeout, wait=wait,
                report=meter.aside()(partial(print, flush=True)),
            )  # fmt: skip
            act = installer.uninstall if removes else installer.install
            await act(waits=args.wait, **more)

        try:
            http_client.ask(args.kubeconfig or "", args.context or "", work)
        except KubeError as error:
            raise refused("the cluster", error) from error
    return 0


def _made(args: ParsedCommand) -> Install:
    """The operator's installation from the flags."""
    from paddock.operator.manifests.install import Install

    install = Install()
    return Install(
        namespace=args.namespace,
        image=args.image or install.image,
        scheduling=args.scheduling or install.scheduling,
        watch_namespaces=_names(args.watch_namespaces),
        replicas=args.replicas,
        init_image=args.init_image or install.init_image,
        gangs=_names(args.gangs),
        metrics_from=_names(args.metrics_from),
        has_policy=args.policy,
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)


_order = partial(CliCommand, extra="operator", goes_single=True)
# fmt: off
MANIFESTS = (
    flag("namespace", "NAME", "of the operator itself", default="paddle-system"),
    flag("image", "IMAGE", "of the operator [localhost/paddock-operator, of this version]"),
    flag("scheduling", "NAME", "gang scheduler of jobs that name none: volcano, coscheduling"),
    flag("watch-namespaces", "A,B", "serve only these, with rights in these only [all]"),
    flag("replicas", "N", "copies of the operator, of which one works", default="1"),
    flag("init-image", "IMAGE", "of an init container that waits for the names of its role"),
    flag("monitor", "", "with a ServiceMonitor for Prometheus' operator"),
    flag("metrics-from", "A,B", "with a NetworkPolicy: only pods of these namespaces may "
         "connect to /metrics"),
    flag("gangs", "A,B", "gang schedulers whose PodGroups the operator may use: volcano, "
         "coscheduling [install: those in the cluster]"),
    flag("policy", "", "with a ValidatingAdmissionPolicy: the operator's account may only "
         "touch objects of PaddleJobs (Kubernetes 1.30)",
         default="true"),
)
CLUSTER = (
    flag("kubeconfig", "FILE", "the cluster [$KUBECONFIG, ~/.kube/config]"),
    flag("context", "NAME", "of the kubeconfig"),
)
WAITING = (
    flag("wait", "", "until it is so; --wait=false to come back at once", default="true"),
    flag("timeout", "DURATION", "wait no longer", default="120"), *CLUSTER,
)
COMMANDS = named(
    _order("operator run", "work on a cluster", FLAGS, takes_args=_run,
           notes="The flags of paddle-operator, and more."),
    _order("operator install",
           "apply the definition and the operator, wait, and verify that it works", (
        *MANIFESTS, flag("dry-run", "", "print what would be applied, and ask no cluster"),
        *WAITING,
    ), _install),
    _order("operator uninstall", "remove the operator; jobs and their pods stay", (
        MANIFESTS[0], flag("watch-namespaces", "A,B", "those that it was installed for [all]"),
        flag("definition", "", "remove the definition of PaddleJob too, and with it all jobs"),
        *WAITING,
    ), _uninstall),
    _order("operator crd", "print the definition of PaddleJob", (
        flag("version", "VERSION", "v1, or v1beta1 for Kubernetes 1.15 and older", default="v1"),
    ), _crd),
    _order("operator manifests", "print what installs the operator", (
        *MANIFESTS, flag("crd", "", "with the definition of PaddleJob before the rest"),
    ), _manifests),
    _order("operator check", "say who leads, or why no operator works", (
        flag("namespace", "NAME", "of the operator [in a pod its own, else paddle-system]"),
        flag("lease", "NAME", "its --leader-election-id"),
        flag("watch-namespaces", "A,B", "those that it serves [all]"), *CLUSTER,
    ), _check),
)
# fmt: on
