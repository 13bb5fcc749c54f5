"""Write a Job: as words of `paddock launch`, or as a PaddleJob, which paddlejob.py reads back.

What has been written is read again, and each field that differs then has no counterpart.
"""

from __future__ import annotations

import re
import shlex

from paddock.command_line import spelled
from paddock.core.job import Job
from paddock.core.value import fields_of
from paddock.errors import Problem, UsageError, extra_hint
from paddock.jobfile.dialects.paddlejob import GROUP, job_from_document
from paddock.jobfile.document import KIND
from paddock.jobfile.flags import FLAGS, SERVERS
from paddock.jobfile.parse import parse
from paddock.jobfile.servers import decide_servers, is_pserver

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # of a Service, as each job has one
# What no flag says: variables and the document do.
VARIABLES = {"fixed_port": "FLAGS_FIXED_PORT", "port_range": "PORT_RANGE"}
NOT_WORDS = ("job_id", "extra_env", "command.kind", "servers.command")
KIND_FLAGS = {"module": "--module", "program": "--no-python", "script": "--run-path"}
HINTS = {
    "roles.worker.count": "write the number of ranks: nproc=2",
    "nnodes_max": "write the whole job, and launch it with -f FILE --nnodes N",
    "job_id": "write lower-case letters, digits and '-', as Kubernetes does",
}


def to_yaml(job: Job, kind: str, image: str) -> str:
    """Return a PaddleJob of the job as YAML; see Job.to_yaml."""
    if kind != KIND:
        raise UsageError(f"a job cannot be written as '{kind}'", hint=f"there is {KIND}")
    try:
        import yaml
    except ImportError as error:
        hint = extra_hint("yaml")
        raise UsageError("writing YAML needs PyYAML, which is not installed", hint=hint) from error
    document = to_document(job, image)
    return str(yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True))


def to_document(job: Job, image: str = "") -> dict[str, object]:
    """Return a PaddleJob of the job. Raises UsageError with each field that has no counterpart."""
    env = dict(job.extra_env)
    env |= {name: _text(each) for field, name in VARIABLES.items() if (each := job.value_of(field))}
    args = [_escaped(word) for word in words_of(job)]
    container: dict[str, object] = {"name": "main", "command": ["paddock", "launch"], "args": args}
    container |= {"image": image} if image else {}
    container |= {"env": [{"name": n, "value": _escaped(env[n])} for n in env]} if env else {}
    spec: dict[str, object] = {}
    for role in job.roles:  # ranks without servers are those of one node
        replicas = (role.count or 1) if job.mode in ("ps", "ps-heter") else 1
        template = {"spec": {"containers": [dict(container)]}}
        spec[role.name] = {"replicas": replicas, "template": template}
    head = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"name": job.job_id}}
    document: dict[str, object] = {**head, "spec": spec}
    read = job_from_document(document, parse(["-f", KIND], {}, python=job.command.python))[0]
    theirs = _flat(decide_servers(read) if read.role("ps") else read)
    lost = {path: each for path, each in _flat(job).items() if theirs.get(path) != each}
    if not NAME.fullmatch(job.job_id):
        lost["job_id"] = job.job_id
    what = f"cannot be written in a {KIND}"
    if found := [Problem(f"{n}={each!r} {what}", HINTS.get(n, "")) for n, each in lost.items()]:
        raise UsageError.of(found)
    return document


def words_of(job: Job) -> list[str]:
    """Return flags, script and arguments of `paddock launch` for what is not the default.

    Not what NOT_WORDS and VARIABLES name, nor how the nodes find each other.
    """
    default, done, words = Job(job.command), {*NOT_WORDS}, []
    for flag in FLAGS:
        if flag.status in ("synonym", "ignored") or not done.isdisjoint(flag.fields):
            continue
        done.update(flag.fields)
        values = [job.value_of(field) for field in flag.fields]
        is_none = values[:1] in ([], [None]) or (flag.group == SERVERS and not values[0])
        if not is_none and values != [default.value_of(field) for field in flag.fields]:
            text = "" if values[0] is True else f"={':'.join(map(_text, values)) or 'none'}"
            words.append(spelled(flag.name) + text)
    if (served := job.servers.command) is not None:
        script = served.args if is_pserver(served) else (served.program, *served.args)
        words.append(f"--server-script={shlex.join(script)}")
    command = job.command
    if command.kind != "script" or not command.program.endswith(".py"):
        words.append(KIND_FLAGS[command.kind])
    return [*words, "--", command.program, *command.args]


def _text(content: object) -> str:
    if isinstance(content, tuple):
        return (":" if content and isinstance(content[0], int) else ",").join(map(str, content))
    return f"{content:.15g}" if isinstance(content, float) else str(content)


def _escaped(text: str) -> str:
    """Return a text for a container, in which $(NAME) is a variable."""
    return text.replace("$", "$$")


def _flat(job: Job) -> dict[str, object]:
    """Return the fields of a job by path, without where they came from."""
    found: dict[str, object] = {}
    for name, content in fields_of(job):
        parts = {name: content} if name not in ("roles", "sources") else {}
        for role in job.roles if name == "roles" else ():
            parts[f"roles.{role.name}{role.stage or ''}"] = role
        for path, part in parts.items():
            is_value = hasattr(part, "_fields")
            found |= {f"{path}.{n}": x for n, x in fields_of(part)} if is_value else {path: part}
    found.pop("servers.why")
    return found
