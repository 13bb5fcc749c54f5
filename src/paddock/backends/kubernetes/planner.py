"""Submission -> objects and plan: reads the user's files, and asks no cluster.

It needs the standard library only: a plan is the same on a machine without a cluster.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paddock.backends.files.package import Package, scan
from paddock.backends.kubernetes.forms import with_roles
from paddock.backends.kubernetes.objects import PlannedObject, is_file, objects_of
from paddock.backends.kubernetes.options import KubernetesOptions, read_options
from paddock.backends.node.manifest import shown
from paddock.backends.types import Submission
from paddock.errors import UsageError
from paddock.jobfile.document import load_document

# A ConfigMap's data may be 1 MiB in all (core validation, MaxSecretSize); keys count too.
LIMIT_BYTES = (1 << 20) - 4096
# Packed, more than this cannot come below the limit but for files of zeros.
READ_BYTES_MAX = 64 << 20
KINDS = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


@dataclass(frozen=True)
class PlannedObjects:
    """The objects of a submission.

    submission: with the roles of its site; objects: the job first.
    """

    submission: Submission
    options: KubernetesOptions
    form: str
    objects: list[PlannedObject]


def planned(submission: Submission) -> PlannedObjects:
    """Return the objects of a submission: the same for its plan and for its execution."""
    options = read_options(submission)
    patch = _patch(submission.site.text("pod_patch"))
    has_file = bool(submission.file)
    # A PaddleJob from -f stays one; servers with pods of their own need an operator.
    form = options.form or ("paddlejob" if has_file or options.server_num else "job")
    if not has_file:
        trainers = 0 if submission.extra.get("n") else options.trainer_num
        job = with_roles(submission.job, form, options.server_num, trainers)
        submission = replace(submission, job=job)
    sent = {} if is_file(submission, form) else _sent(submission, options)
    objects = objects_of(submission, options, form, sent, patch)
    return PlannedObjects(submission, options, form, objects)


def _sent(submission: Submission, options: KubernetesOptions) -> dict[str, bytes]:
    from paddock.backends.files.program import build

    return {
        "program.zip": build(has_ps=submission.has_ps) if options.program == "sent" else b"",
        "work.tar.gz": pack(submission.package, os.environ, submission.job.command.program)
        if submission.package
        else b"",
        "job.json": submission.file.encode(),
    }


def _patch(path: str) -> dict[str, object]:
    """Return the YAML that is merged into the pod. Raises UsageError."""
    try:
        return load_document(path) if path else {}
    except UsageError as error:
        hint = "a file with a pod template, as in spec.template of a Job"
        raise UsageError(f"pod_patch: {error.message}", hint=hint) from error


def pack(directory: str, env: Mapping[str, str], program: str = "") -> bytes:
    """Return the package of a directory as a .tar.gz: for Python's tarfile, an image may lack tar.

    program: of the job, as of scan(). The same files give the same bytes.

    Raises UsageError for entries that cannot be sent, and when a ConfigMap cannot hold it.
    """
    package = scan(directory, env, program=program)
    if package.manifest.total_bytes > READ_BYTES_MAX:
        raise _too_large(directory, str(package))
    found = gzip.compress(_archive(package), 9, mtime=0)
    if len(found) > LIMIT_BYTES:
        raise _too_large(directory, f"{len(found) / 1e6:.1f} MB packed")
    return found


def _archive(package: Package) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in package.manifest.entries:
            info = tarfile.TarInfo(entry.path)
            info.type, info.mode, info.linkname = KINDS[entry.kind], entry.mode, entry.target
            if entry.kind != "file":
                archive.addfile(info)
                continue
            data = package.read(entry)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return plain.getvalue()


def _too_large(directory: str, what: str) -> UsageError:
    return UsageError(
        f"{shown(os.fspath(directory))} is too large to travel with the job: {what}, "
        "the limit is 1 MiB packed",
        hint="put it into the image, or on a volume: --volumes CLAIM:/path --workspace /path",
    )
