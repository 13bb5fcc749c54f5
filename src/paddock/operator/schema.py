"""The PaddleJob custom resource: fields.yaml is the table of every field; this reads it. No I/O."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec
import yaml
from msgspec.structs import replace

from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

# "open" keeps fields that are not in the table, "object" does not. Lists end in s.
Type = Literal[
    "object", "objects", "open", "opens", "string", "strings", "integer", "integers", "boolean",
    "texts", "quantities", "time",
]  # fmt: skip
Since = Literal["paddle-operator", "PaddleCloud", "Kubernetes", "Paddock"]
ROLE = "<role>"  # in a path: one row for each of ps, worker and heter
PHASES = ("Pending", "Starting", "Running", "Restarting", "Completed", "Failed", "Terminating")
# The addresses of more would not fit into a ConfigMap (1 MiB, at 87 bytes a pod): they could never
# start. And a job of 100,000 would keep the operator busy for seconds at each look.
REPLICAS_MAX = 10_000
INT32_MAX = 2**31 - 1
CODES_MAX = 255
# RFC 1123 and RFC 1035 labels. A Service's name must begin with a letter.
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
JOB_NAME = "[a-z]([-a-z0-9]*[a-z0-9])?"
NAME_MAX = 63
# resource.Quantity, as controller-gen writes it.
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


class Field(msgspec.Struct, frozen=True):
    """A field. text: what it means. absent: what holds without it.

    values: the words it knows; others are refused, or only warned about where ``only`` is False.
    least, most: of a number (and of each number of "integers"), of a text's length, of a list's
    length. children: the fields inside it, by name.
    """

    path: str
    type: Type
    text: str
    absent: str = ""
    values: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    required: bool = False
    only: bool = True
    since: Since = "Paddock"
    children: dict[str, Field] = {}

    @property
    def name(self) -> str:
        """The last part of the path, without brackets."""
        return self.path.rpartition(".")[2].removesuffix("[]")


@cache
def rows() -> tuple[Field, ...]:
    """The table, parents before children; <role> in a path stands for each of the three."""
    # C's reader takes a twentieth of the time of Python's.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = yaml.load(pkgutil.get_data(__package__, "fields.yaml") or b"", loader)
    return tuple(msgspec.convert({"path": path, **row}, Field) for path, row in found.items())


def tree() -> Mapping[str, Field]:
    """The table as it nests: {"spec": ..., "status": ...}.

    >>> tree()["spec"].children["worker"].children["replicas"].most
    10000
    """
    inside: dict[str, dict[str, Field]] = {"": {}}
    for row in rows():
        for role in ROLES if ROLE in row.path else ROLES[:1]:
            path, text = row.path.replace(ROLE, role), row.text.replace(ROLE, role)
            field = replace(row, path=path, text=text, children={})
            inside[path.rpartition(".")[0]][field.name] = field
            inside[path] = field.children
    return inside[""]


TREE = tree()
