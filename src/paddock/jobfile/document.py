"""Read a job file into plain dictionaries. The only place that knows YAML, and only when asked."""

from __future__ import annotations

import sys

from paddock.errors import UsageError, extra_hint

MAX_FILE_BYTES = 16 * 1024 * 1024
KIND = "PaddleJob"


def load_document(path: str) -> dict[str, object]:
    """The PaddleJob of a YAML or JSON file; "-" is standard input.

    Raises UsageError: no such file, not YAML, PyYAML missing, several PaddleJobs.
    """
    text = _read(path)
    if text.lstrip()[:1] == "{":
        import json

        try:
            documents = [json.loads(text)]
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}") from error
    else:
        documents = _from_yaml(path, text)
    found = [d for d in documents if isinstance(d, dict)]
    jobs = [d for d in found if d.get("kind") == KIND]
    if len(jobs) > 1:
        hint = "keep one job per file for paddock launch"
        raise UsageError(f"{path} holds {len(jobs)} PaddleJobs", hint=hint)
    if jobs:
        return jobs[0]
    if len(found) == 1:
        return found[0]  # job_from_document says what is missing
    hint = f"write kind: {KIND}; see docs/guide/launch.md"
    raise UsageError(f"{path} holds no {KIND}", hint=hint)


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read(MAX_FILE_BYTES)
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        what, hint = f"cannot read {path}: {error.strerror}", "name a PaddleJob file with -f"
        raise UsageError(what, hint=hint) from error
    except UnicodeDecodeError as error:
        what = f"{path} is not text: byte {error.start} is not UTF-8"
        raise UsageError(what, hint="save the file as UTF-8") from error
    if len(text) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return text


def _from_yaml(path: str, text: str) -> list[object]:
    try:
        import yaml
    except ImportError as error:
        hint = f"{extra_hint('yaml')}, or write the job as JSON"
        what = f"reading {path} needs PyYAML, which is not installed"
        raise UsageError(what, hint=hint) from error
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1} column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or "not YAML"
        raise UsageError(f"{path}{where}: {what}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error
