"""What is not shown: names that look secret, logins in addresses, keys that others can read."""

from __future__ import annotations

import shlex

import pytest

from paddock.core.secrets import find_key_problem, is_secret
from paddock.jobfile.masked import shown_args


@pytest.mark.parametrize(
    "name",
    ["DB_PASS", "HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "BCE_AK", "BCE_SK",
     "MYSQL_PWD", "SSH_KEY", "NPM_AUTH", "GITHUB_PAT", "MY_PASSWORD", "SENTRY_DSN", "hub-token",
     "RSA_PRIVATE_PEM"],
)  # fmt: skip
def test_a_name_that_looks_secret_is(name: str) -> None:
    """Better one value too few than a password in a log."""
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PADDLE_TRAINER_ID", "TOKENIZERS_PARALLELISM", "NUM_PASSES", "PWD", "OLDPWD", "MAX_TOKENS",
     "BYPASS", "PATH", "SSH_AUTH_SOCK", "KEYBOARD", "MONKEY_PATCH", "TASK", "SKIP"],
)  # fmt: skip
def test_a_name_that_only_sounds_alike_is_not(name: str) -> None:
    """What is hidden without need makes explain useless."""
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--env", "HF_TOKEN=abc", "a.py"], '--env HF_TOKEN="$HF_TOKEN" a.py'),
        (["--env=HF_TOKEN=abc", "a.py"], '--env=HF_TOKEN="$HF_TOKEN" a.py'),
        (["--env", "A=1 2", "a.py"], "--env 'A=1 2' a.py"),
        (["--env", "HF_TOKEN", "a.py"], "--env HF_TOKEN a.py"),
        (["a.py", "--env", "HF_TOKEN=abc"], "a.py --env HF_TOKEN=abc"),
        (["--", "a.py", "--env", "X_TOKEN=1"], "-- a.py --env X_TOKEN=1"),
    ],
)
def test_a_line_to_copy_holds_no_secret(words: list[str], text: str) -> None:
    """The value is taken from the other node's environment; the script's words are its own."""
    line = shown_args(words)
    assert line.text == text
    assert line.needs == (("HF_TOKEN",) if "$" in text else ())


def test_a_line_without_secrets_reads_back_as_it_was() -> None:
    """Whoever copies it starts the same."""
    words = ["--nnodes", "2", "--env", "A=b c", "a.py", "--x", "it's", "$HOME"]
    assert shlex.split(shown_args(words).text) == words


@pytest.mark.parametrize("mode", [0o640, 0o644, 0o604, 0o620, 0o602, 0o601])
def test_a_key_that_others_can_read_is_refused(mode: int) -> None:
    """Whoever has it can take a node's place."""
    problem = find_key_problem("/k", 0o100000 | mode)
    assert problem is not None
    assert f"mode {mode:04o}" in problem.message
    assert "chmod 600 /k" in problem.hint


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_of_its_owner_alone_is_taken(mode: int) -> None:
    """As ssh takes it."""
    assert find_key_problem("/k", 0o100000 | mode) is None
