"""An object as YAML, each line with its reason: the user's option, else its purpose. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from paddock.backends.types import Submission

PLAIN_TEXT = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
# YAML 1.1 takes these for something else than text.
RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
# End of a path -> option that caused it; the longest end that fits is taken.
OPTION_OF = {
    ".image": "image",
    ".requests.cpu": "cpu",
    ".requests.memory": "memory", ".limits.memory": "memory",
    ".requests.ephemeral-storage": "storage", ".limits.ephemeral-storage": "storage",
    ".nodeSelector": "node_selector", ".tolerations": "tolerations",
    ".serviceAccountName": "service_account",
    ".priorityClassName": "priority_class", ".priorityClass": "priority_class",
    ".imagePullSecrets": "pull_secrets",
    ".queue": "queue", ".labels.kueue.x-k8s.io/queue-name": "queue",
    ".schedulingPolicy": "scheduler", ".schedulerName": "scheduler",
    ".labels.scheduling.x-k8s.io/pod-group": "scheduler",
    ".annotations.scheduling.k8s.io/group-name": "scheduler",
}  # fmt: skip
# End of a path -> field of the job that caused it.
FIELD_OF = {
    ".completions": "nnodes_min", ".parallelism": "nnodes_min", ".replicas": "nnodes_min",
    ".minAvailable": "nnodes_min", ".minMember": "nnodes_min", ".elastic": "elastic.level",
    ".terminationGracePeriodSeconds": "grace_seconds", ".podFailurePolicy": "nnodes_min",
}  # fmt: skip
PURPOSES = {
    ".suspend": "it starts when all of its objects are there",
    ".completionMode": "each pod has a number, and a name that is known before",
    ".backoffLimitPerIndex": "the launchers restart ranks; pods are not made again, logs stay",
    ".podFailurePolicy": "a pod that the cluster takes away comes back",
    ".ownerReferences": "Kubernetes removes it with the job",
    ".restartPolicy": "the launcher restarts ranks, see --max-restart",
    ".terminationGracePeriodSeconds": "--grace, and time for the launcher's report",
    ".subdomain": "its name is POD.JOB, by the Service",
    ".command": "unpacks what was sent; the launcher takes its place",
    ".args": "the launcher, its flags, your script",
    ".envFrom": "variables from Secrets, by reference",
    ".env": "what the launcher reads",
    ".terminationMessagePolicy": "the last lines of a failure come with the pod's status",
    ".automountServiceAccountToken": "a job asks nothing of the cluster",
    ".enableServiceLinks": "no variables about other people's Services",
    ".emptyDir": "of the pod's own, gone with it",
    ".medium": "data loaders share memory here; a container's own 64 MiB is not enough",
    ".binaryData": "what is sent; no image or registry is needed for it",
    ".stringData": "the job key and your variables; nobody's plan or registry has them",
    ".immutable": "it belongs to this one run",
    ".clusterIP": "names of pods lead to pods",
    ".publishNotReadyAddresses": "the launchers wait for one another themselves",
    ".selector": "the pods of this run",
    ".ports": "where the launchers meet",
    ".cleanPodPolicy": "logs can be read after the end",
    ".policies": "all pods again, or the end, for the whole job",
    ".plugins": "Volcano gives pods names and numbers",
    ".maxRetry": "how often Volcano starts it again",
    ".scheduleTimeoutSeconds": "how long the gang waits",
    ".labels": "how paddock finds what it made",
    ".annotations": "for paddock list --discover",
    ".workingDir": "--workspace",
    ".projected": "the launcher and your files",
}


def yaml_lines(what: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return (path, line) of each line; entries of lists have the path of their list and [].

    >>> for path, line in yaml_lines({"spec": {"args": ["a b"], "size": 2}}): print(path, "|", line)
    spec | spec:
    spec.args |   args:
    spec.args[] |     - "a b"
    spec.size |   size: 2
    """
    return list(_table(what, "", ""))


def _table(what: Mapping[str, object], indent: str, path: str) -> Iterator[tuple[str, str]]:
    for key, part in what.items():
        here = f"{path}.{key}" if path else key
        yield from _entry(f"{indent}{_scalar(key)}:", part, indent, here)


def _entry(head: str, part: object, indent: str, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, dict) and part:
        yield path, head
        yield from _table(part, indent + "  ", path)
    elif isinstance(part, list) and part:
        yield path, head
        for one in part:
            yield from _item(one, indent + "  ", f"{path}[]")
    elif isinstance(part, str) and _is_block(part):
        yield path, f"{head} |"
        for line in part[:-1].split("\n"):
            yield path, f"{indent}  {line}".rstrip()
    else:
        yield path, f"{head} {_scalar(part)}"


def _item(one: object, indent: str, path: str) -> Iterator[tuple[str, str]]:
    if not (isinstance(one, dict) and one):
        yield from _entry(f"{indent}-", one, indent, path)
        return
    for number, (where, line) in enumerate(_table(one, indent + "  ", path)):
        yield where, f"{indent}- {line[len(indent) + 2 :]}" if number == 0 else line


def _is_block(text: str) -> bool:
    """Return True if a text is readable, and survives, as a YAML block of lines below a bar."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.strip() and line for line in lines[:-1])
    return len(lines) > 2 and not lines[-1] and plain


def _scalar(what: object) -> str:
    if not isinstance(what, str):
        return json.dumps(what)
    if PLAIN_TEXT.fullmatch(what) and what.lower() not in RESERVED:
        return what
    quoted = json.dumps(what, ensure_ascii=False)
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in quoted)


def _escaped(code: int) -> str:
    """Return a character's escape in YAML, where JSON's surrogate pairs would be two characters."""
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def reason_of(submission: Submission, path: str, line: str = "") -> str:
    """Return the reason of a line; "" if it needs none. path: as yaml_lines gives it."""
    whole = "." + path.replace("[]", "")
    for key, option in OPTION_OF.items():
        if _is_in(whole, key) and (told := _of_role(submission, option, line)):
            return told
    for key, name in FIELD_OF.items():
        source = submission.job.sources.get(name)
        if _is_in(whole, key) and source is not None and source.kind != "default":
            return f"{source.name} {source.text}".strip()
    return next((text for key, text in PURPOSES.items() if whole.endswith(key)), "")


def _is_in(path: str, key: str) -> bool:
    """Return True if a path ends with the key, or goes on below it.

    >>> _is_in(".spec.template.spec.tolerations.key", ".tolerations"), _is_in(".a.images", ".image")
    (True, False)
    """
    return path.endswith(key) or f"{key}." in path


def _of_role(submission: Submission, name: str, line: str) -> str:
    """Return the source of an option; a server_ option stands only in the lines of servers."""
    own = f"server_{name}"
    text = submission.option(own)
    is_own = bool(text) and text in line
    return submission.source(own if is_own else name)
