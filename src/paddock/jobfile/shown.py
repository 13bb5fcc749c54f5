"""A command line as it may be printed for people to copy: secrets become references to variables.

Imported only where such a line is printed.
"""

from __future__ import annotations

import shlex

from paddock.core.secrets import is_secret
from paddock.core.value import value
from paddock.jobfile.args import LaunchArgs
from paddock.jobfile.flags import LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@value
class ShownLine:
    """A line to copy. text: quoted for a POSIX shell. needs: variables that must be set there."""

    text: str
    needs: tuple[str, ...] = ()


def shown_words(words: Sequence[str]) -> ShownLine:
    """The arguments after ``paddock launch``, with references to variables for secrets.

    The value of --env NAME=value is replaced by "$NAME" where the name looks secret. The script's
    own arguments stay: a secret cannot be told from --pad_token there.

    >>> line = shown_words(["--env", "HF_TOKEN=abc", "--env=A=1", "train.py", "--lr", "1 2"])
    >>> print(line.text, line.needs)
    --env HF_TOKEN="$HF_TOKEN" --env=A=1 train.py --lr '1 2' ('HF_TOKEN',)
    """
    count = len(words) - len(LaunchArgs(words).script_args)
    shown, needs, is_env = [], [], False
    for at, word in enumerate(words):
        flag, equals, text = word.partition("=") if word.startswith("--") else ("", "", word)
        known = LAUNCH.find(flag[2:]) if flag and not is_env else ()
        names_env = [f.name for f in known] == ["env"]
        if at < count and (is_env or (names_env and equals)):
            name, has_value, _ = (word if is_env else text).partition("=")
            if has_value and is_secret(name) and name.isidentifier():
                shown.append(f'{"" if is_env else flag + "="}{name}="${name}"')
                needs.append(name)
                is_env = False
                continue
        is_env = at < count and names_env and not equals and not is_env
        shown.append(shlex.quote(word))
    return ShownLine(" ".join(shown), tuple(dict.fromkeys(needs)))
