"""Which site a word means, and what it is like there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.backends.sites.find import find_site
from paddock.backends.sites.hostfile import hosts_of
from paddock.backends.sites.keys import KEYS
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.backends.types import Site

    Find = Callable[..., Site]

PROJECT = """
[site.lab]
backend = "ssh"
hosts = ["h1", "me@h2:2222", ["h3", "10.0.0.3"]]
interpreter = "/opt/py/bin/python"

[site.big]
backend = "slurm"
partition = "gpu"
"""
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "sites.md"


@pytest.fixture
def find(tmp_path: Path) -> Find:
    """find_site for a project in one folder and a user's configuration in another."""

    def found(
        word: str = "", project: str = "", user: str = "", conf: str = "", **said: str
    ) -> Site:
        place = tmp_path / "project" / "deep" / "er"
        place.mkdir(parents=True, exist_ok=True)
        config = tmp_path / "config" / "paddock"
        config.mkdir(parents=True, exist_ok=True)
        if project:
            (tmp_path / "project" / "paddock.toml").write_text(project)
        if user:
            (config / "sites.toml").write_text(user)
        env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        return find_site(word, env=env, cwd=str(place), conf=conf, said=said)

    return found


def problems(find: Find, *args: str, **more: str) -> list[str]:
    """What is wrong, in order."""
    with pytest.raises(UsageError) as caught:
        find(*args, **more)
    return [f"{p.message} | {p.hint}" for p in caught.value.problems]


def test_site_of_the_project_is_found_from_below(find: Find) -> None:
    """Hosts come as texts, whatever form they had."""
    site = find("lab", PROJECT)
    assert (site.name, site.backend) == ("lab", "ssh")
    assert site.texts("hosts") == ("h1", "me@h2:2222", "h3=10.0.0.3")
    assert site.text("interpreter") == "/opt/py/bin/python"


def test_project_wins_over_user_key_by_key(find: Find) -> None:
    """And each key knows where it stood."""
    site = find("big", PROJECT, '[site.big]\nbackend = "slurm"\naccount = "a"\npartition = "cpu"\n')
    assert (site.text("partition"), site.text("account")) == ("gpu", "a")
    assert site.sources["partition"].endswith("paddock.toml, [site.big] partition")
    assert site.sources["account"].endswith("sites.toml, [site.big] account")


def test_an_entry_of_a_table_is_one_and_no_host(find: Find) -> None:
    """`hosts=h1,env.X=1` had a second host `env.X`, which no error told of with -n 1."""
    site = find("ssh,hosts=h1,h-2=10.0.0.2,env.X=1,connect-timeout=3,paddle_init.A=b")
    assert site.texts("hosts") == ("h1", "h-2=10.0.0.2")
    assert (site.options["env"], site.options["connect_timeout"]) == ({"X": "1"}, 3)
    assert site.options["paddle_init"] == {"A": "b"}
    table = PROJECT + 'env = { X = "0", Y = "2" }\n'
    assert find("big,env.X=a=b,c", table).options["env"] == {"X": "a=b,c", "Y": "2"}
    assert find("script,submit=qsub -l a=1,b-c=2").text("submit") == "qsub -l a=1,b-c=2"
    lines = find("slurm,sbatch_lines=--nice=5,--gres-flags=x").texts("sbatch_lines")
    assert lines == ("--nice=5", "--gres-flags=x")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ssh,hosts=h1,my-key=3", "hosts: '3' is not an address"),
        ("ssh,hosts=h1,envs.X=1", "hosts: '1' is not an address"),
        ("ssh,hosts=h1,interpreter=/py,my-key=3", "'my-key=3' is no option"),
        ("big,partition=gpu,user.name=3", "'user.name=3' is no option"),
        ("big,env=X=1", "site 'big': env must be a table of texts, not 'X=1'"),
        ("big,env.TOKEN=abc", "site 'big': env.TOKEN holds a secret"),
        ("kubernetes,env.X=1,form.x=3", "'form.x=3' is no option"),
    ],
)
def test_a_part_that_is_no_option_is_refused(find: Find, word: str, message: str) -> None:
    """It became a part of the value before it."""
    assert message in problems(find, word, PROJECT)[0]


def test_word_on_the_command_line_wins_over_both(find: Find) -> None:
    """Options follow the name."""
    site = find("big,partition=debug,qos=high", PROJECT)
    assert (site.text("partition"), site.text("qos")) == ("debug", "high")
    assert site.sources["qos"] == "-b qos=high"


def test_hosts_with_commas_stay_one_option(find: Find) -> None:
    """A part without an equals sign belongs to the one before it."""
    site = find("ssh,hosts=h1,h2,port=22")
    assert [str(each) for each in hosts_of(site)] == ["h1:22", "h2:22"]
    assert site.name == "h1"


def test_hosts_alone_mean_ssh_whatever_the_default(find: Find) -> None:
    """The one line of a new user."""
    site = find("", '[defaults]\nsite = "big"\n' + PROJECT, hosts="a,b")
    assert (site.backend, site.texts("hosts")) == ("ssh", ("a", "b"))


def test_no_word_means_default_or_only_site(find: Find) -> None:
    """Several without a default are named."""
    only = '[site.lab]\nbackend = "ssh"\nhosts = ["h"]\n'
    assert find("", only).name == "lab"
    assert find("", '[defaults]\nsite = "big"\n' + PROJECT).name == "big"
    assert problems(find, "", PROJECT)[0].startswith("there are several sites: big, lab")


def test_no_site_at_all_says_how_to_name_one(find: Find) -> None:
    """The first error a new user sees."""
    (text,) = problems(find)
    assert "no site is known" in text
    assert "--hosts h1,h2" in text


def test_backend_means_its_only_site(find: Find) -> None:
    """Or the backend itself where there is none."""
    assert find("slurm", PROJECT).name == "big"
    assert find("kubernetes", PROJECT).name == "kubernetes"
    assert find("local").backend == "local"


def test_host_files_are_relative_to_where_they_are_named(find: Find, tmp_path: Path) -> None:
    """In a profile: to its folder; on the command line: to the working directory."""
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "project" / "machines").write_text("a slots=2\n")
    (tmp_path / "project" / "deep" / "er" / "machines").write_text("b slots=4\n")
    profile = '[site.m]\nbackend = "mpi"\nhostfile = "machines"\n'
    assert find("m", profile).texts("hosts") == ("a slots=2",)
    assert find("mpi,hostfile=machines").texts("hosts") == ("b slots=4",)
    assert find("ssh,hosts=machines").texts("hosts") == ("b slots=4",)
    assert find("m,hosts=c", profile).texts("hosts") == ("c",)


def test_allocation_of_pbs_names_the_hosts_of_mpi(tmp_path: Path) -> None:
    """PBS_NODEFILE is there inside a job of PBS."""
    (tmp_path / "nodes").write_text("h1\nh1\n")
    env = {"HOME": str(tmp_path), "PBS_NODEFILE": str(tmp_path / "nodes")}
    site = find_site("mpi", env=env, cwd=str(tmp_path))
    assert site.texts("hosts") == ("h1 slots=2",)
    assert site.sources["hosts"].endswith("(PBS_NODEFILE)")


def test_all_that_is_wrong_with_a_site_is_said_at_once(find: Find) -> None:
    """Unknown keys with a hint, wrong kinds with what was meant."""
    text = '[site.lab]\nbackend = "ssh"\nhots = ["h"]\nport = "x"\npartition = "p"\n'
    found = problems(find, "lab", text)
    assert found == [
        "site 'lab': ssh has no key 'hots' | did you mean 'hosts'?",
        "site 'lab': port must be a whole number, not 'x' | ",
        "site 'lab': ssh has no key 'partition' | it is for slurm",
    ]


def test_flags_of_other_backends_are_left_out_but_hosts_are_not(find: Find) -> None:
    """One line of flags, and #PADDOCK lines, serve every backend."""
    said = {"gres": "gpu:8", "partition": "p", "image": "train:1", "identity": "key"}
    site = find("ssh", hosts="h1", **said)
    assert sorted(site.options) == ["hosts", "identity"]
    with pytest.raises(UsageError, match="slurm has no key 'hosts'"):
        find("slurm", hosts="h1")


def test_numbers_in_tables_become_texts(find: Find) -> None:
    """They are variables in the end."""
    site = find("k", '[site.k]\nbackend = "kubernetes"\nenv = {GLOG_v = 0}\n')
    assert site.options["env"] == {"GLOG_v": "0"}


def test_unknown_site_and_backend_get_a_hint(find: Find) -> None:
    """Did you mean."""
    assert problems(find, "lap", PROJECT) == [
        "there is no site or backend 'lap' | did you mean 'lab'?"
    ]
    assert "did you mean 'slurm'?" in problems(find, "x", '[site.x]\nbackend = "slrum"\n')[0]


@pytest.mark.parametrize(
    "line",
    ['password = "x"', 'env = {DB_PASS = "x"}', 'params = {ak = "x"}', 'submit = "http://u:p@h/"'],
)
def test_file_with_a_secret_is_refused_with_the_reason(find: Find, line: str) -> None:
    """Also where the secret is another site's."""
    text = f'{PROJECT}\n[site.cloud]\nbackend = "script"\n{line}\n'
    found = problems(find, "lab", text)
    assert "holds a secret" in found[0]
    assert "environment" in found[0]


def test_names_of_secrets_are_not_secrets(find: Find) -> None:
    """Kubernetes' own are named, never held."""
    site = find("k", '[site.k]\nbackend = "kubernetes"\nsecrets = ["db"]\n')
    assert site.texts("secrets") == ("db",)


def test_the_key_of_a_taint_is_not_a_secret(find: Find) -> None:
    """Kubernetes calls the name of a taint its key."""
    toleration = '{key = "gpu", operator = "Exists"}'
    site = find("k", f'[site.k]\nbackend = "kubernetes"\ntolerations = [{toleration}]\n')
    assert site.tables("tolerations") == ({"key": "gpu", "operator": "Exists"},)


@pytest.mark.parametrize(
    ("text", "what"),
    [("[site", "is not TOML"), ("[sites.x]\n", "there is no [sites]"),
     ("[site.x]\nhosts = ['h']\n", "says no backend"), ("site = 1\n", "sites are tables"),
     ("[defaults]\nsite = 'y'\n", "there is no site 'y'"),
     ("[site.'a b']\nbackend = 'local'\n", "is no name of a site")],
)  # fmt: skip
def test_damaged_profiles_say_what_is_wrong(find: Find, text: str, what: str) -> None:
    """Nothing of them is used."""
    assert what in problems(find, "local", text)[0]


def test_ssh_without_hosts_and_script_without_command_are_refused(find: Find) -> None:
    """They could not do anything."""
    assert "names no hosts" in problems(find, "ssh")[0]
    assert "no command that submits" in problems(find, "script")[0]


def test_reference_describes_every_key() -> None:
    """docs/reference/sites.md, and the Chinese one, have a row for each, with its kind."""
    for page in (REFERENCE, REFERENCE.with_name("sites.zh.md")):
        text = page.read_text("utf-8")
        missing = [key.name for key in KEYS if f"| `{key.name}` | {key.kind} |" not in text]
        assert missing == [], page.name
