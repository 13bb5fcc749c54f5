"""Sites, where jobs can run: from paddock.toml, sites.toml, the argument of -b, or old files.

    DIR/paddock.toml                          the project's, in this directory or one above it
    $XDG_CONFIG_HOME/paddock/sites.toml       the user's
    [defaults] site = "lab"
    [site.lab] backend = "ssh", hosts = ["h1", "me@h2:2222"], interpreter = "/opt/py/bin/python"

The project's keys win over the user's, those on the command line over both. Relative names of
files are relative to the file they stand in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from paddock.backends.sites.hostfile import HostLine, parse_hostfile, parse_hosts
from paddock.backends.sites.keys import BY_NAME, SCRIPT, from_text, key_problems, secret_problems
from paddock.backends.sites.profile import (
    HOSTS,
    Profile,
    put,
    read_profile,
    read_text,
)
from paddock.backends.table import BACKENDS
from paddock.backends.types import Site, split_list
from paddock.command_line import nearest
from paddock.errors import UsageError, refuse

# Keys of lists whose words may have an "="; the commands of a script site may have one, too.
VALUES_WITH_EQUALS = ("hosts", "sbatch_lines", "mpirun_args", "setup")
HOW = (
    "name hosts with --hosts h1,h2, or -b slurm or kubernetes, or write [site.NAME] in paddock.toml"
)


def find_site(
    word: str,
    *,
    env: Mapping[str, str],
    cwd: str,
    conf: str = "",
    said: Mapping[str, str] | None = None,
) -> Site:
    """Return the site that `-b` names.

    word: "" (the default, the only site, or ssh where hosts are given), a site's name, a backend,
    or either with options: ``mpi,hostfile=machines``. conf: a conf.py or backend.yaml, whose site
    is taken; options of the word win over it, and flags over both. said: options given by flags;
    those that only other backends support are left out, and flags.foreign reports them. Raises
    UsageError with every problem.
    """
    said = said or {}
    name, inline = _inline(word)
    has_hosts = not HOSTS.isdisjoint({*inline, *said})
    base = os.path.abspath(cwd)
    if name.endswith((".yaml", ".yml", ".json", ".py")) and not conf:
        name, conf = "", name
    profile = read_profile(env, base)
    if conf:
        found = _with_conf(profile, name, conf, base)
    else:
        found = _site_named(profile, name or _default(profile, has_hosts), has_hosts)
    for name, text in said.items():
        if name in HOSTS or found.backend in BY_NAME[name].backends:  # hosts say where a job runs
            inline[name] = text
    return _with_inline(found, inline, base, env)


def _site_named(profile: Profile, name: str, has_hosts: bool) -> Site:
    if name not in profile.sites and name in BACKENDS:
        name = _site_of_backend(profile, name, has_hosts)
    if name in profile.sites:
        options = profile.sites[name]
        return Site(name, str(options["backend"]), options, profile.sources[name])
    if name in BACKENDS:
        return Site(name, name)
    known = (*profile.sites, *BACKENDS)
    raise UsageError(f"there is no site or backend '{name}'", hint=nearest(name, known))


def _with_inline(site: Site, inline: Mapping[str, str], base: str, env: Mapping[str, str]) -> Site:
    """Return the site with the options of the command line, checked, its hosts read."""
    options, sources = dict(site.options), dict(site.sources)
    for name, text in inline.items():
        key, _, entry = name.partition(".")
        if entry:  # of a table, whose other entries stay
            table = options.get(key)
            whole = {**(table if isinstance(table, dict) else {}), entry: text}
            put(options, sources, key, whole, f"-b {name}={text}", base, env)
            continue
        is_read = key in BY_NAME and key != "hosts"  # which may be a file's name
        value = from_text(BY_NAME[key].kind, text) if is_read else text
        put(options, sources, key, value, f"-b {key}={text}", base, env)
    where = f"site '{site.name}'"
    problems = list(key_problems(site.backend, options, where))
    tops = {name.partition(".")[0] for name in inline}
    problems += secret_problems({key: options.get(key, "") for key in tops}, where)
    refuse(problems)
    options.pop("backend", None)
    for key, value in options.items():
        if isinstance(value, dict):  # TOML tells numbers from texts, variables do not
            options[key] = {name: str(each) for name, each in value.items()}
    file = env.get("PBS_NODEFILE", "")
    if site.backend == "mpi" and file and HOSTS.isdisjoint(options):
        options["hostfile"], sources["hostfile"] = file, "PBS_NODEFILE"
    found = _read_hosts(options, sources)
    if site.backend == "ssh":
        # PBS lists a host once for each core: only slots= says how many processes to start.
        found = tuple(replace(each, slots=0) if each.listed > 1 else each for each in found)
    if found:
        options["hosts"] = tuple(str(each) for each in found)
    _require(site, options)
    name = found[0].target if found and site.name == "ssh" else site.name
    return Site(name, site.backend, options, sources)


def _read_hosts(options: dict[str, object], sources: dict[str, str]) -> tuple[HostLine, ...]:
    """Return the hosts of a list, a text or a file.

    The key of a file is removed; its source is kept.
    """
    file, hosts = options.pop("hostfile", None), options.get("hosts", ())
    if file is not None:
        sources["hosts"] = f"{file} ({sources.pop('hostfile', '')})"
        return parse_hostfile(read_text(str(file)), str(file))
    if isinstance(hosts, str):
        hosts = split_list(hosts)
    assert isinstance(hosts, (list, tuple))
    return parse_hosts(hosts, "hosts") if hosts else ()


def _require(site: Site, options: Mapping[str, object]) -> None:
    """Raise UsageError if the site lacks a key that its backend needs: hosts, submit."""
    if site.backend == "ssh" and not options.get("hosts"):
        raise UsageError(f"site '{site.name}' names no hosts", hint=HOW)
    if site.backend == "script" and not options.get("submit"):
        raise UsageError(
            f"site '{site.name}' names no command that submits",
            hint='write submit = "qsub job.sh"; see docs/guide/submit-script.md',
        )


def _inline(word: str) -> tuple[str, dict[str, str]]:
    """Split "mpi,hosts=h1,h2,port=22" into name and options; an entry of a table is env.X=1.

    A part that begins with no key belongs to the last option.

    >>> _inline("mpi,hosts=h1,h-2=10.0.0.2,port=22,env.X=1")
    ('mpi', {'hosts': 'h1,h-2=10.0.0.2', 'port': '22', 'env.X': '1'})
    """
    name, *parts = word.split(",")
    if "=" in name:
        name, parts = "", [name, *parts]
    found: dict[str, str] = {}
    last = ""
    for part in parts:
        text, equals, value = part.partition("=")
        if equals and (key := _key_in(text)):
            last = key
            found[last] = value
        elif last and (not equals or _may_hold_equals(last)):
            found[last] += f",{part}"
        else:
            raise UsageError(f"-b {word}: '{part}' is no option", hint="write -b SITE,key=value")
    return name.strip(), found


def _key_in(text: str) -> str:
    """Return the key that stands before an "=": port, connect-timeout, env.X; "" for none."""
    text = text.strip()
    head, dot, _ = text.partition(".")
    if text.isidentifier() or (dot and head in BY_NAME and BY_NAME[head].kind == "table"):
        return text
    underlined = text.replace("-", "_")  # as flags are written
    return underlined if underlined in BY_NAME else ""


def _may_hold_equals(key: str) -> bool:
    """Return True if a value may go on with "x-y=z" after a comma: h-1=10.0.0.1, --nice=5."""
    return key in VALUES_WITH_EQUALS or (key in BY_NAME and BY_NAME[key].backends == SCRIPT)


def _default(profile: Profile, has_hosts: bool) -> str:
    if has_hosts:
        return "ssh"
    if profile.default:
        return profile.default
    if len(profile.sites) == 1:
        return next(iter(profile.sites))
    if not profile.sites:
        raise UsageError("no site is known: where should the job run?", hint=HOW)
    names = ", ".join(sorted(profile.sites))
    raise UsageError(
        f"there are several sites: {names}", hint='name one with -b, or write [defaults] site = "…"'
    )


def _site_of_backend(profile: Profile, backend: str, has_hosts: bool) -> str:
    """Return the only site of this backend, or the default one; the backend if it has no site."""
    found = [name for name, table in profile.sites.items() if table["backend"] == backend]
    if not found or has_hosts:
        return backend
    if profile.default in found:
        return profile.default
    if len(found) > 1:
        raise UsageError(f"there are several sites of {backend}: {', '.join(sorted(found))}",
                         hint="name one with -b")  # fmt: skip
    return found[0]


def _with_conf(profile: Profile, name: str, conf: str, base: str) -> Site:
    """Return the site of a conf.py or a backend.yaml, laid over the named one.

    A script site must say how to submit, which no backend.yaml does: the only one is taken.
    """
    found = _read_old(os.path.join(base, conf), conf)
    if name in ("", found.backend) and found.backend == "script":
        name = _site_of_backend(profile, "script", False)
    if name in profile.sites and profile.sites[name]["backend"] == found.backend:
        options = {**profile.sites[name], **found.options}
        return Site(name, found.backend, options, {**profile.sources[name], **found.sources})
    if name not in ("", found.backend):
        raise UsageError(f"{conf} is for {found.backend}, and -b says '{name}'")
    return found


def _read_old(path: str, name: str) -> Site:
    if path.endswith(".py"):
        from paddock.backends.sites.legacy.fabric import site_from_conf

        return site_from_conf(read_text(path), name)
    from paddock.backends.sites.legacy.paddlerec import site_from_document
    from paddock.jobfile.document import load_document

    return site_from_document(load_document(path), name, os.path.dirname(path))
