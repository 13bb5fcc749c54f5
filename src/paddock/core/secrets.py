"""Secrets: the one list of variable names whose values are hidden; the mode of a key file."""

from __future__ import annotations

from paddock.core.endpoint import without_login
from paddock.errors import Problem

HIDDEN = "******"
# Anywhere in a name.
SECRET_WORDS = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "PRIVATE", "APIKEY",
                "API_KEY", "ACCESS_KEY", "AUTHORIZATION")  # fmt: skip
# A whole word between underscores: TOKENIZERS_PARALLELISM and NUM_PASSES are not secret.
SECRET_PARTS = frozenset(("TOKEN", "PASS", "PWD", "AK", "SK", "PAT"))
SECRET_ENDS = ("KEY", "AUTH", "TOKEN", "COOKIE", "DSN")
# Of a text: --pad_token '<pad>', --eos_token_id 2.
TEXT_TOKENS = [[n, "TOKEN"] for n in ("PAD", "EOS", "BOS", "UNK", "SEP", "CLS", "MASK")]
NOT_SECRET = frozenset(("PWD", "OLDPWD"))  # directories of the shell
OTHERS_MAY = 0o077


def is_secret(name: str) -> bool:
    """Return True if a variable's name says that its value is secret.

    >>> [is_secret(n) for n in ("WANDB_API_KEY", "DB_PASS", "HF_TOKEN", "db_pwd", "GH_PAT")]
    [True, True, True, True, True]
    >>> [is_secret(n) for n in ("PADDLE_TRAINER_ID", "TOKENIZERS_PARALLELISM", "PWD")]
    [False, False, False]
    >>> is_secret("db.pass.prod")
    True
    """
    upper = name.upper().replace("-", "_").replace(".", "_")
    parts = upper.split("_")
    if upper in NOT_SECRET or upper.removesuffix("_ID").split("_")[-2:] in TEXT_TOKENS:
        return False
    return (
        any(word in upper for word in SECRET_WORDS)
        or not SECRET_PARTS.isdisjoint(parts)
        or parts[-1].endswith(SECRET_ENDS)
    )


def shown_value(name: str, text: str) -> str:
    """A variable's value as it may be shown.

    >>> shown_value("DB_PASS", "x"), shown_value("https_proxy", "http://me:pw@proxy:1")
    ('******', 'http://***@proxy:1')
    """
    return HIDDEN if is_secret(name) else without_login(text)


def find_key_problem(path: str, mode: int) -> Problem | None:
    """The Problem of a job key file that others can read or change; None without one.

    mode: st_mode of the file itself, not of a link to it.

    >>> find_key_problem("key", 0o100600) is None
    True
    >>> find_key_problem("key", 0o100644).message
    "--token-file 'key' can be read by others (mode 0644)"
    """
    if not mode & OTHERS_MAY:
        return None
    return Problem(
        f"--token-file '{path}' can be read by others (mode {mode & 0o777:04o})",
        f"chmod 600 {path}; of a Secret mounted in a pod: defaultMode: 0400",
    )
