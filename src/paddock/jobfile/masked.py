"""Arguments of a command line without secrets: for records and back, and for people to copy."""

from __future__ import annotations

import os

from paddock.core.endpoint import without_login
from paddock.core.secrets import HIDDEN, is_secret
from paddock.core.value import value
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import LaunchArgs
from paddock.jobfile.flags import LAUNCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
COMMAND_MAX = 200  # characters
NAME_MAX = 80  # characters of a name that are looked at
QUOTES = ('"', "'", "")
# Of a terminal, a shell or a session; what a job needs has other names.
OF_SESSION = ("SSH_", "XDG_", "TERM", "SHLVL", "_", "OLDPWD", "PWD", "WINDOW", "TMUX", "STY", "PS1",
              "COLUMNS", "LINES", "DBUS_", "DISPLAY", "INVOCATION_ID", "LS_COLORS")  # fmt: skip


def masked_args(words: Sequence[str], of_script: int = -1) -> list[str]:
    """The arguments after ``paddock launch``, with HIDDEN in the place of secrets.

    of_script: how many are the script's own; -1: as launch reads them. Secrets are values
    of --env and of the script's flags whose names look so, those within such values and the
    script's arguments (JSON, YAML, NAME=VALUE), and logins in URLs.

    >>> masked_args(["--env", "HF_TOKEN=abc", "t.py", "--api_key", "k", "--lr=1"])
    ['--env', 'HF_TOKEN=******', 't.py', '--api_key', '******', '--lr=1']
    >>> masked_args(["t.py", "--api_key", "-kx9", "--token", "-v"])
    ['t.py', '--api_key', '******', '--token', '-v']
    """
    kept: list[str] = []
    if of_script < 0:
        of_script = len(LaunchArgs(words).script_args)
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
        elif at >= of_launcher or (equals and (head == "--env" or head[:1] != "-")):
            kept.append(_without_values(without_login(word), 0 if at >= of_launcher else len(head)))
        else:
            kept.append(without_login(word))
        is_flag = at >= of_launcher and head.startswith("-") and not equals
        secret = head if is_flag and is_secret(head.lstrip("-")) else ""
    return kept


def shown_command(words: Sequence[str]) -> str:
    """The script and its arguments, out of those after ``paddock launch`` from masked_args.

    For people. All arguments where they name no script.

    >>> shown_command(["--nnodes", "2", "t.py", "--lr=1"]), shown_command(["-m", "pkg.train"])
    ('t.py --lr=1', '-m pkg.train')
    """
    line = LaunchArgs(words)
    start = len(words) - len(line.script_args) - 1 if line.script else 0
    start -= start > 0 and words[start - 1] == "-m"
    return command_text(words[start:])


def command_text(words: Sequence[str]) -> str:
    """Arguments as one line of text, which may be cut."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(words))
    return text if len(text) <= COMMAND_MAX else f"{text[:COMMAND_MAX]}..."


def _without_values(word: str, start: int) -> str:
    """An argument without the values whose names within it look secret, from start on.

    One in quotes ends with them, another with the word. A colon is a pair's beside a quote or a
    space and in braces, {a:1,b:2}; else it is as in node-key:8080. A space is after --name.

    >>> _without_values('{"api_key": "x, y", "lr": 1}', 0), _without_values("--a=b_pwd=c,d", 0)
    ('{"api_key": "******", "lr": 1}', '--a=b_pwd=******')
    """
    kept: list[str] = []
    done, brace = 0, word.find("{")
    signs = ":= " if "--" in word else ":="
    for at, sign in enumerate(word):
        if sign not in signs or at < max(start, done):
            continue
        text, after = word[max(done, at - NAME_MAX) : at], word[at + 1 : at + 2].strip()
        bare = text.rstrip(" \t\n\\\"'")
        before = bare.rstrip(NAME)
        name = bare[len(before) :]
        if sign == ":":
            is_pair = text[-1:] in QUOTES or after in QUOTES
            is_pair |= -1 < brace < at and before.rstrip()[-1:] in ("{", ",")
        else:
            is_pair = sign == "=" or (name[:2] == "--" and bare == text and after != "-")
        if not (is_pair and is_secret(name.strip("-."))):
            continue
        first = at + 1
        while first < len(word) and word[first].isspace():
            first += 1
        if first == len(word):
            continue
        quoted = first
        while word[quoted] == "\\" and quoted < len(word) - 1:
            quoted += 1
        end = len(word)
        if word[quoted] in "\"'":
            mark, first = word[first : quoted + 1], quoted + 1
            end = first
            while end < len(word) and not word.startswith(mark, end):
                end += 2 if word[end] == "\\" else 1
        kept += [word[done:first], HIDDEN]
        done = end
    return "".join(kept) + word[done:]


@value
class ShownLine:
    """A line to copy. text: quoted for a POSIX shell. needs: variables that must be set there."""

    text: str
    needs: tuple[str, ...] = ()


def shown_args(words: Sequence[str]) -> ShownLine:
    """The arguments after ``paddock launch``, with references to variables for secrets.

    The value of --env NAME=value is replaced by "$NAME" where the name looks secret. The script's
    own arguments stay: a secret cannot be told from --pad_token there.

    >>> line = shown_args(["--env", "HF_TOKEN=abc", "--env=A=1", "train.py", "--lr", "1 2"])
    >>> print(line.text, line.needs)
    --env HF_TOKEN="$HF_TOKEN" --env=A=1 train.py --lr '1 2' ('HF_TOKEN',)
    """
    import shlex  # costs 10 ms; only where such a line is printed

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


def recorded_words(line: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The arguments of a recorded line, and the variables that were set then and are not now.

    line: argv without secrets, env by name. Raises UsageError for secrets that are not set now.
    """
    words: list[str] = []
    lacking: list[Problem] = []
    flag, again = "", f"type the line again: {' '.join(line['argv'])}"
    for word in line["argv"]:
        name, equals, _ = word.rpartition("=")
        variable = name.removeprefix("--env=")
        # A word of the script may have had more than the value: bash -c "TOKEN=x python train.py".
        is_variable = (flag == "--env" or name != variable) and variable.isidentifier()
        if HIDDEN not in word and "://***@" not in word:
            words.append(word)
        elif is_variable and variable in os.environ:
            words.append(f"{name}={os.environ[variable]}")
        else:
            what = variable if equals else flag if flag[:1] == "-" else word
            hint = f"set the variable {variable}" if is_variable else again
            text = f"the value of {what} is a secret, which is not recorded"
            lacking.append(Problem(text, hint))
        flag = word
    if lacking:
        raise UsageError.of(lacking)
    missing = [
        name for name in line["env"]
        if name not in os.environ and not name.startswith(OF_SESSION)
    ]  # fmt: skip
    return words, missing
