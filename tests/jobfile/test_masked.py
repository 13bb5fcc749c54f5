"""A command line as it is written down has no secrets, and all that is harmless."""

from __future__ import annotations

import pytest

from paddock.jobfile.masked import masked_args


@pytest.mark.parametrize(
    "word",
    [
        '{"api_key": "hush, hush"}',
        '{"api_key":"hush\\"hush"}',
        "{'api_key': 'hush'}",
        "api_key: hush",
        '{"a": "{\\"api_key\\": \\"hush\\", \\"b\\": 1}"}',
        '{"api_key" : ["hush", "hush"]}',
        "--opt=password=hush",
        "model.api_key=hush",
        "lr=1,password=hush,hush",
        '{"api_key": "hush',
        "https://h/x?access_key=hush&a=1",
        "--cfg={'db': {'passwd': 'hush'}}",
        "a: 1\napi_key:\n  hush",
        '--set={"token" = "hush"}',
        "db={user:u,password:hush}",
        "db={user:u, password:hush}",
        "notepad_token=hush",
        "Authorization: Bearer hush",
        "--header=Authorization: Bearer hush",
        "train --api_key hush --lr 1",
    ],
)
def test_a_secret_within_a_word_is_hidden(word: str) -> None:
    """Of a script's words, and of a value of --env; the name stays."""
    for words in (["t.py", word], ["t.py", "--cfg", word], ["--env", f"CONFIG={word}", "t.py"]):
        kept = " ".join(masked_args(words))
        assert "hush" not in kept and "******" in kept


@pytest.mark.parametrize(
    "word",
    [
        "--tokenizer=bert",
        "--max_tokens=5",
        '{"tokenizer": "bert"}',
        '{"num_passes": 3, "lr": 1}',
        "monkey:8080",
        "node-key:8080",
        "s3://bucket/key",
        "token://h:1",
        "key",
        "key:",
        "--opt=key=",
        "=:=:",
        "",
        "{",
        '"',
        "\\",
        "C:\\keys=",
        "a=b=c:d",
        "hosts={a:1}/monkey:80",
        "--pad_token=<pad>",
        '{"eos_token_id": 2}',
        "train --tokenizer bert --api_key --lr 1",
    ],
)
def test_what_is_harmless_stays(word: str) -> None:
    assert masked_args(["t.py", "--tokenizer", "bert", word]) == [
        "t.py",
        "--tokenizer",
        "bert",
        word,
    ]


def test_what_stands_beside_a_secret_in_quotes_stays() -> None:
    word = '{"api_key": "x", "lr": 1, "db": {"password": "y"}}'
    assert masked_args(["t.py", word])[1] == (
        '{"api_key": "******", "lr": 1, "db": {"password": "******"}}'
    )


def test_a_long_word_is_masked_in_time_linear_in_it() -> None:
    """The kernel allows 128 KiB; each pair was once a copy of all that follows: 27 s of 1 MB."""
    word = '{"token": "x", "lr": 1}, ' * 5000
    assert masked_args(["t.py", word])[1] == word.replace("x", "******")


def test_the_launchers_own_flags_keep_their_values() -> None:
    words = ["--token_file=/a=b", "--master", "monkey:80", "--log_dir", "key=1", "t.py"]
    assert masked_args(words)[:3] == words[:3]
