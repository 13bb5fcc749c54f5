"""The words of a command line as they are written down: without what looks secret."""

from __future__ import annotations

from paddock.core.secrets import HIDDEN, is_secret, without_login
from paddock.jobfile.words import read_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def masked_words(words: Sequence[str], of_script: int = -1) -> list[str]:
    """The words after ``paddock launch``, without secrets: HIDDEN stands in their place.

    of_script: how many of them are the script's own; -1: as launch reads them. Secrets are values
    of --env and of the script's flags whose names look so, and logins in URLs.

    >>> masked_words(["--env", "HF_TOKEN=abc", "t.py", "--api_key", "k", "--lr=1"])
    ['--env', 'HF_TOKEN=******', 't.py', '--api_key', '******', '--lr=1']
    >>> masked_words(["t.py", "--api_key", "-kx9", "--token", "-v"])
    ['t.py', '--api_key', '******', '--token', '-v']
    """
    kept: list[str] = []
    if of_script < 0:
        of_script = len(read_words(words).script_args)
    of_launcher = len(words) - of_script
    secret = ""  # the flag whose value comes next
    for at, word in enumerate(words):
        head, equals, text = word.partition("=")
        name = text.partition("=")[0] if head == "--env" else head
        is_short_flag = word.startswith("-") and len(word) <= 2
        if secret and not is_short_flag and not word.startswith("--"):
            kept.append(HIDDEN)
        elif equals and is_secret(name.lstrip("-")) and (at >= of_launcher or "-" not in name):
            kept.append(word[: word.index("=", word.index(name))] + "=" + HIDDEN)
        else:
            kept.append(without_login(word))
        is_flag = at >= of_launcher and head.startswith("-") and not equals
        secret = head if is_flag and is_secret(head.lstrip("-")) else ""
    return kept
