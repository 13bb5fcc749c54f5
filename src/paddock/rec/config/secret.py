"""Which values are not shown. Pure."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "******"
WORDS = ("secret", "passw", "credential", "private_key", "access_key", "api_key", "apikey")
# A whole word between underscores: ak and sk are PaddleCloud's, ugi the file system's.
PARTS = frozenset(("ak", "sk", "ugi", "token", "pass", "pwd", "passwd"))
LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def is_secret(key: str) -> bool:
    """Whether a key's name says that its value is not to be shown.

    >>> [is_secret(k) for k in ("submit.ak", "config.fs_ugi", "fs_client.passwd", "task_num")]
    [True, True, True, False]
    """
    last = key.rpartition(".")[2].lower().replace("-", "_")
    return any(word in last for word in WORDS) or not PARTS.isdisjoint(last.split("_"))


def shown(key: str, value: Any) -> str:
    """A value as it may be shown.

    >>> shown("ak", "x"), shown("train_data_dir", "s3://me:pw@host/x")
    ('******', 's3://***@host/x')
    """
    return HIDDEN if is_secret(key) and value not in (None, "") else LOGIN.sub("***@", str(value))
