"""Options of pods from a site and the flags of `paddock submit`: read and checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from paddock.backends.types import Site, Submission, split_list
from paddock.errors import Problem, refuse
from paddock.kube.resource import Manifest

FORMS = ("job", "paddlejob", "volcano-job")
SCHEDULERS = ("volcano", "kueue", "coscheduling")
GPU = "nvidia.com/gpu"
# Forms of names and amounts: apimachinery, validation.go and resource/quantity.go.
NO_IMAGE = (
    "no image: a pod needs one with python3 and your framework",
    'write --image NAME, or image = "NAME" in the site',
)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?([EPTGMk]i?|Ki|m)?")
# Room for what a Job, a pod's number and a Service's name add (63 is the most of a DNS label).
OBJECT_NAME_MAX = 52


@dataclass(frozen=True)
class Volume:
    """A volume claim and the path where containers see it."""

    claim: str
    path: str
    is_read_only: bool = False


@dataclass(frozen=True)
class KubernetesOptions:
    """The options of pods, from the site and flags. Texts are "" if not given.

    devices: resource name -> number. server_...: of pods that run servers only; "" there is as of
    all pods, but they have no devices.
    """

    image: str = ""
    namespace: str = ""
    form: str = ""
    scheduler: str = ""
    queue: str = ""
    cpu: str = ""
    memory: str = ""
    storage: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)
    server_cpu: str = ""
    server_memory: str = ""
    server_devices: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    secrets: tuple[str, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()
    service_account: str = ""
    priority_class: str = ""
    interpreter: str = "python3"
    program: str = "sent"
    server_num: int = 0
    trainer_num: int = 0

    @property
    def of_servers(self) -> KubernetesOptions:
        return replace(
            self,
            cpu=self.server_cpu or self.cpu,
            memory=self.server_memory or self.memory,
            devices=self.server_devices,
        )


def read_options(submission: Submission) -> KubernetesOptions:
    """Return the options of a submission. Raises UsageError with every problem.

    program: "sent" with the job, or "image" where the image has Paddock.
    """
    site = submission.site
    reading = _OptionsReader(site)
    found = KubernetesOptions(
        image=site.text("image").strip(),
        namespace=reading.name("namespace", LABEL),
        form=reading.one_of("form", FORMS),
        scheduler=reading.one_of("scheduler", SCHEDULERS),
        queue=reading.name("queue"),
        cpu=reading.amount("cpu"),
        memory=reading.amount("memory"),
        storage=reading.amount("storage"),
        devices=reading.devices("gpus"),
        server_cpu=reading.amount("server_cpu"),
        server_memory=reading.amount("server_memory"),
        server_devices=reading.devices("server_gpus"),
        volumes=tuple(reading.volumes()),
        secrets=reading.names("secrets"),
        pull_secrets=reading.names("pull_secrets"),
        node_selector={name: str(text) for name, text in site.table("node_selector").items()},
        tolerations=site.tables("tolerations"),
        service_account=reading.name("service_account"),
        priority_class=reading.name("priority_class"),
        interpreter=site.text("interpreter").strip() or "python3",
        program=reading.one_of("program", ("sent", "image")) or "sent",
        server_num=int(site.text("server_num", "0")),
        trainer_num=int(site.text("trainer_num", "0")),
    )
    # With an operator, the images of a file are used; without, objects.py says that one lacks.
    if not (found.image or submission.file):
        reading.problem(*NO_IMAGE)
    if found.scheduler == "kueue" and not found.queue:
        reading.problem("scheduler kueue needs a queue", "write --queue NAME, a LocalQueue")
    command = submission.job.command
    for word in (*submission.flags, command.program, *command.args):
        if any("\ud800" <= c <= "\udfff" for c in word):
            reading.problem(f"{word!r} is not UTF-8, and objects of a cluster are")
    if submission.job.rendezvous.ips:
        reading.problem("--ips: pods get their addresses from the cluster", "leave it out")
    refuse(reading.problems)
    return found


def object_name(run_id: str) -> str:
    """Return the name of a run's objects: its id as a DNS label, its four hex digits kept.

    >>> object_name("train-3f2a"), object_name("训练_Run-3f2a"), object_name("x" * 70 + "-3f")[-4:]
    ('train-3f2a', 'run-3f2a', 'x-3f')
    """
    name, _, digits = run_id.rpartition("-")
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[: OBJECT_NAME_MAX - 1 - len(digits)]
    plain = plain.strip("-").lstrip("0123456789-")
    return f"{plain or 'job'}-{digits.lower()}"


class _OptionsReader:
    """The reader of names, amounts and lists of a site, whose kinds are checked."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.problems: list[Problem] = []

    def problem(self, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, hint))

    def one_of(self, name: str, words: tuple[str, ...]) -> str:
        found = self._site.text(name).strip()
        if found and found not in words:
            self.problem(f"{name}: '{found}' is not known", f"write {', '.join(words)}")
            return ""
        return found

    def name(self, name: str, form: re.Pattern[str] = NAME) -> str:
        return self._named(name, self._site.text(name).strip(), form)

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(self._named(name, found, NAME) for found in self._site.texts(name))

    def _named(self, name: str, found: str, form: re.Pattern[str]) -> str:
        if found and not form.fullmatch(found):
            self.problem(f"{name}: '{found}' is not a name of Kubernetes",
                         "small letters, digits and dashes")  # fmt: skip
        return found

    def amount(self, name: str) -> str:
        found = self._site.text(name).strip()
        if found and not AMOUNT.fullmatch(found):
            self.problem(f"{name}: '{found}' is not an amount", "as 500m or 2; as 512Mi or 4Gi")
        return found

    def devices(self, name: str) -> dict[str, str]:
        """Parse "8", "huawei.com/Ascend910=8"."""
        found: dict[str, str] = {}
        for part in split_list(self._site.text(name)):
            resource, equals, number = part.rpartition("=")
            if not (number.isascii() and number.isdigit()):
                self.problem(f"{name}: '{part}' is not a number", "as 8, or huawei.com/Ascend910=8")
            elif int(number):
                found[resource if equals else GPU] = number
        return found

    def volumes(self) -> Iterator[Volume]:
        """Parse "claim:/path", "claim:/path:ro"."""
        for part in self._site.texts("volumes"):
            claim, _, rest = part.partition(":")
            path, _, mode = rest.partition(":")
            if NAME.fullmatch(claim) and path.startswith("/") and mode in ("", "ro", "rw"):
                yield Volume(claim, path, mode == "ro")
            else:
                hint = "write CLAIM:/path or CLAIM:/path:ro"
                self.problem(f"volumes: '{part}' cannot be read", hint)
