"""Reasons for the lines of an object: the user's option, else the purpose of the line. Pure."""

from __future__ import annotations

from paddock.backends.types import Submission

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
PLAIN = {
    ".suspend": "it starts when all of its objects are there",
    ".completionMode": "each pod has a number, and a name that is known before",
    ".backoffLimitPerIndex": "the launchers restart ranks; pods are not made again, logs stay",
    ".podFailurePolicy": "a pod that the cluster takes away comes back",
    ".ownerReferences": "Kubernetes removes it with the job",
    ".restartPolicy": "the launcher restarts ranks, see --max_restart",
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


def reason_of(submission: Submission, path: str, line: str = "") -> str:
    """Return the reason of a line; "" if it needs none. path: as shown.yaml_lines gives it."""
    whole = "." + path.replace("[]", "")
    for key, option in OPTION_OF.items():
        if _is_in(whole, key) and (told := _of_role(submission, option, line)):
            return told
    for key, name in FIELD_OF.items():
        source = submission.job.sources.get(name)
        if _is_in(whole, key) and source is not None and source.kind != "default":
            return f"{source.name} {source.text}".strip()
    return next((text for key, text in PLAIN.items() if whole.endswith(key)), "")


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
