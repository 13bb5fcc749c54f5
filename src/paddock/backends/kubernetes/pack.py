"""A small package as an archive that a ConfigMap can hold. The same files give the same bytes.

The archive is for Python's tarfile, which an image surely has where it has Python.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping

from paddock.backends.files.package import Package, scan
from paddock.backends.node.manifest import shown
from paddock.errors import UsageError

# A ConfigMap's data may be 1 MiB in all (core validation, MaxSecretSize); keys count too.
LIMIT_BYTES = (1 << 20) - 4096
# Packed, more than this cannot come below the limit but for files of zeros.
READ_BYTES_MAX = 64 << 20
KINDS = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


def pack(directory: str, env: Mapping[str, str]) -> bytes:
    """Return the package of a directory as a .tar.gz.

    Raises UsageError for entries that cannot be sent, and when a ConfigMap cannot hold it.
    """
    package = scan(directory, env)
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
