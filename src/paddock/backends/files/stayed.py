"""Name the file that a job missed on its host, and that a rule kept here when it was sent."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from paddock.backends.files.package import left_behind
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.types import JobStatus

# OSError of Python; its own "can't open file"; cat, tar and others: "NAME: No such file ...".
MISSING = re.compile(
    r"No such file or directory: b?'([^'\n]+)'|can't open file '([^'\n]+)'"
    r"|(?:^|[\s:])([^\s:]+): No such file or directory"
)


def stayed_text(run: RegisteredJob, status: JobStatus, env: Mapping[str, str]) -> str:
    """Return a sentence on the file that the failed rank missed, "" if none that stayed here."""
    package = run.details.get("package")
    if status.culprit is None or status.state != "failed" or not isinstance(package, str):
        return ""
    missed = [next(filter(None, each)) for each in MISSING.findall(status.culprit.tail)]
    if not missed:
        return ""
    try:
        names = {*left_behind(package, env)}
    except (OSError, PaddockError):
        return ""  # it is there no more, or cannot be read now
    name = stayed_name(missed[-1], package, names)
    if not name:
        return ""
    return (
        f"{name} stayed here, in {package}: .gitignore or .paddockignore names it "
        f"(!{name} in .paddockignore sends it)"
    )


def stayed_name(path: str, package: str, names: set[str]) -> str:
    """Return the path below the package of a file that a job missed, if it stayed here, else "".

    path: as the job opened it, perhaps the host's absolute one: its longest end that is here
    counts. names: what was not sent; a directory ends with "/".
    """
    parts = os.path.normpath(path).lstrip("/").split("/")
    for start in range(len(parts)):
        end = parts[start:]
        above = ("/".join(end[:count]) + "/" for count in range(1, len(end) + 1))
        name = "/".join(end)
        if (name in names or any(each in names for each in above)) and os.path.exists(
            os.path.join(package, name)
        ):
            return name
    return ""
