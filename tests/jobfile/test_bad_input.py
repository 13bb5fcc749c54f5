"""Every bad command line gets its error and a hint; all problems come at once."""

from __future__ import annotations

import pytest

from jobfile.reading import problems

# (command line, part of the message, part of the hint)
ONE_PROBLEM = [
    ("", "no script is given", "train.py"),
    ("--nnodes 2", "no script is given", "train.py"),
    ("--nnodes 0 a.py", "--nnodes 0: a job needs at least one node", "1 or more"),
    ("--nnodes -1 a.py", "at least one node", ""),
    ("--nnodes 4:2 a.py", "minimum is above the maximum", "--nnodes 2:4"),
    ("--nnodes two a.py", "--nnodes two: not a number of nodes", "MIN:MAX"),
    ("--nnodes 2: a.py", "not a number of nodes", ""),
    ("--nnodes 9999999 a.py", "more than 100000 nodes", ""),
    ("--nproc-per-node x a.py", "not a number of processes", "auto"),
    ("--nproc-per-node -2 a.py", "not in 1..10000", ""),
    ("--nproc-per-node 3 --devices 0,1 a.py", "3 processes but 2 devices (0,1)", "device"),
    ("--nproc-per-node 2 --devices 0 a.py", "2 processes but 1 device (0)", "device"),
    ("--nproc-per-node cpu --xpus 0 a.py", "--xpus 0", "leave one"),
    ("--devices 0,0 a.py", "device 0 is named twice", "once"),
    ("--devices 0,,1 a.py", "an item of the list is empty", "comma"),
    ("--rank 2 --nnodes 2 --master a:1 a.py", "ranks are 0..1", "--nnodes"),
    ("--rank 1 a.py", "the job has 1 node, so ranks are 0..0", ""),
    ("--rank -2 a.py", "not in -1..100000", ""),
    ("--rank a.py", "--rank needs a value", "--rank N"),
    ("--rank", "--rank needs a value", "--rank N"),
    ("--master", "--master needs a value", ""),
    ("--master --nnodes 2 a.py", "--master needs a value", "ADDRESS"),
    ("--master h --nnodes 2 a.py", "has no port", "host:port"),
    ("--master ::1:80 --nnodes 2 a.py", "without brackets", "[address]:port"),
    ("--master h:0 --nnodes 2 a.py", "not a number in 1..65535", ""),
    ("--master ftp://h:1 a.py", "unknown scheme 'ftp'", "etcd://"),
    ("--master a/b:1 --nnodes 2 a.py", "not a host name", ""),
    ("--master etcd:// a.py", "endpoint '' is empty", "host:port"),
    ("--master etcd://a:x a.py", "not a number in 1..65535", "host:port"),
    ("--elastic-server a:b a.py", "not a number in 1..65535", "host:port"),
    ("--rdzv-backend zk --rdzv-endpoint h:1 a.py", "not one of its values", "c10d"),
    ("--standalone --nnodes 2 a.py", "--standalone means one node", ""),
    ("--ips a,b,a x.py", "a is named 2 times", "--master"),
    ("--ips 127.0.0.1,10.0.0.1 x.py", "another machine on every node", "address"),
    ("--ips a,b --nnodes 3 x.py", "--ips a,b names 2 nodes", "--nnodes 2"),
    ("--host a/b x.py", "not a host name", ""),
    ("--servers a --workers a:2 x.py", "endpoint 'a' has no port", "host:port"),
    ("--servers a:1,a:1 --workers a:2 x.py", "a:1 is listed twice", "own port"),
    ("--servers a:1 --workers a:1 x.py", "a:1 is listed twice", "own port"),
    ("--servers a:1,b:1 --workers a:2 --nnodes 3 x.py", "the endpoint lists name 2 nodes", "2"),
    ("--servers a:1 --server-num 2 --workers a:2 x.py", "--servers names 1 endpoints", "out"),
    ("--server-num -1 --worker-num 1 x.py", "not in 1..10000", ""),
    ("--server-num x --worker-num 1 x.py", "not a whole number", ""),
    ("--run-mode colective x.py", "not one of its values", "did you mean 'collective'?"),
    ("--run-mode xyzzy x.py", "not one of its values", "choose one of collective, ps"),
    ("--run-mode collective --server-num 1 x.py", "not used with --run-mode", "--run-mode ps"),
    ("--run-mode ps --heter-worker-num 1 x.py", "not used with --run-mode ps", "ps-heter"),
    ("--run-mode ps-heter --server-num 1 x.py", "needs heter workers", "--heter-worker-num"),
    ("--heter-worker-num 1;x a.py", "'x' is not a number", "per stage"),
    ("--heter-worker-num 0 a.py", "'0' is not a number in 1..", ""),
    ("--heter-worker-num 1;;2 a.py", "a stage is empty", "';'"),
    ("--heter-worker-num 1;2 --heter-workers a:1 a.py", "2 stages, but", "per stage"),
    ("--heter-worker-num 2 --heter-workers a:1 a.py", "names 1", "out"),
    ("--heter-worker-num 1;1;1 --heter-devices cpu;gpu a.py", "2 devices for 3", "per stage"),
    ("--heter-worker-num 1 --heter-devices gpuu a.py", "unknown device", "'gpu'"),
    ("--elastic-level 2 a.py", "not in -1..1", ""),
    ("--elastic-level x a.py", "not a whole number", ""),
    ("--elastic-timeout -1 a.py", "not a duration", "5m"),
    ("--max-restart -1 a.py", "not in 0..", ""),
    ("--restart-on crash a.py", "unknown cause 'crash'", "choose one of"),
    ("--restart-on siganl a.py", "unknown cause", "'signal'"),
    ("--restart-on 256 a.py", "not in 1..255", ""),
    ("--restart-backoff x a.py", "DURATION[:MAX]", "1:60"),
    ("--restart-backoff 10:5 a.py", "below the first pause", ""),
    ("--lease 0 a.py", "more than 0", ""),
    ("--backend slurm a.py", "not one of its values", "paddock submit -b slurm"),
    ("--grace 5x a.py", "not a duration", "500ms"),
    ("--log-level LOUD a.py", "not one of its values", "choose one of"),
    ("--log-level wraning a.py", "not one of its values", "'WARNING'"),
    ("--log-dir= a.py", "--log-dir : empty", "--log-dir log"),
    ("--log-overwrite maybe a.py", "neither true nor false", "1 or 0"),
    ("--tail 0,bosses a.py", "neither a rank nor a role", ""),
    ("--tail all,0 a.py", "stand alone", ""),
    ("--start-port 70000 a.py", "not in 1..65535", ""),
    ("--omp-num-threads many a.py", "not a number of threads", "auto"),
    ("--env A a.py", "--env A: there is no '='", "--env A="),
    ("--env =1 a.py", "is not a variable name", ""),
    ("--job-id a/b a.py", "not allowed", ""),
    ("--tls-cert c a.py", "belong together", "--tls-key"),
    ("--tls-key k a.py", "belong together", "--tls-cert"),
    ("--framework pytorch a.py", "not one of its values", "'torch'"),
    ("--with-gloo 3 a.py", "not one of its values", ""),
    ("--backend ncl a.py", "not one of its values", "'nccl'"),
    ("-m --no-python a.py", "exclude each other", ""),
    ("run_check", "run_check is gone", "paddock check"),
    ("--worker_nmu 2 a.py", "unknown flag --worker_nmu", "--worker_num"),
    ("--nproc_pre_node=2 a.py", "unknown flag", "--nproc_per_node"),
    ("-np 2 a.py", "unknown flag -np", "--nproc-per-node"),
    ("-nnodes 2 a.py", "unknown flag -nnodes", "--nnodes"),
    ("--hostfile h a.py", "unknown flag", "--ips"),
    ("--qqq a.py", "unknown flag --qqq", "--help"),
    ("--server 1 a.py", "--server is ambiguous", "--servers, --server-num"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message", "hint"), ONE_PROBLEM, ids=lambda t: t[:50])
def test_a_bad_command_line_has_one_clear_problem(line: str, message: str, hint: str) -> None:
    """One mistake, one line, no cascade; and the next thing to try."""
    found = problems(line)
    assert [message in p.message for p in found] == [True], found
    assert hint in found[0].hint


def test_all_problems_are_reported_at_once() -> None:
    """Nobody wants to find five mistakes in five runs."""
    found = problems(
        "--run-mode colective --nnodes 4:2 --rank x --foo --devices 0,0 --log-level LOUD"
    )
    text = "\n".join(p.message for p in found)
    for part in ("colective", "4:2", "--rank x", "--foo", "device 0", "LOUD"):
        assert part in text


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"PADDLE_RANK": "x"}, "PADDLE_RANK=x: not a whole number"),
        ({"PADDLE_NNODES": "0"}, "PADDLE_NNODES=0: a job needs"),
        ({"PADDLE_TRAINER_ID": "one", "PADDLE_NNODES": "2"}, "PADDLE_TRAINER_ID=one"),
        ({"PADDLE_RUN_MODE": "pss"}, "PADDLE_RUN_MODE=pss: not one of its values"),
        ({"PORT_RANGE": "5"}, "PORT_RANGE=5: not FIRST:LAST"),
        ({"PORT_RANGE": "9:5"}, "not FIRST:LAST"),
        ({"FLAGS_FIXED_PORT": "0"}, "FLAGS_FIXED_PORT=0: not in 1..65535"),
        ({"PADDLE_LOG_OVERWRITE": "2"}, "PADDLE_LOG_OVERWRITE=2: neither true nor false"),
        ({"PADDLE_MASTER": "h", "PADDLE_NNODES": "2"}, "PADDLE_MASTER=h"),
    ],
)
def test_a_bad_variable_is_named(env: dict[str, str], message: str) -> None:
    """The user may not know that the variable is set."""
    (found,) = problems("a.py", env)
    assert message in found.message
