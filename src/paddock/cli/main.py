"""``paddock COMMAND ...``: reads the first word and imports only that command.

Errors end here: every PaddockError becomes a line and a hint on stderr, and its exit code.
"""

from __future__ import annotations

import gc
import io
import os
import sys

from paddock.errors import EXIT_SIGNAL_BASE, HelpAsked, PaddockError, UsageError, problem_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Commands by what people want to do, and what each does. Each is a module of this package, whose
# COMMANDS is its table, or that of its orders. One that reads its own arguments has run(argv) ->
# exit code.
JOBS = "Look at jobs, stop them"
GROUPS = {
    "Run a job": {
        "launch": "start a job here, or this node's share of it",
        "submit": "start a job elsewhere: over ssh, Slurm, MPI, Kubernetes or a script",
        "debug": "start a job here with one rank under a debugger: pdb here, or your editor",
        "sweep": "show the results of a sweep (submit --sweep), or go on with one",
        "rerun": "start a run again, by the same command line in the same directory",
        "explain": "show the plan, the environment and where each value came from",
        "init": "write a paddock.toml with the sites that can be reached from here",
        "check": "run a real all-reduce on two processes of this machine",
    },
    JOBS: {
        "list": "list your runs: launched here, or submitted elsewhere",
        "status": "show the state of a run: its nodes and ranks",
        "logs": "show the logs of all ranks, merged in order of time",
        "wait": "wait until a run has ended; exits with its code",
        "stop": "stop a run",
        "fetch": "copy the logs and the output of a run here",
        "delete": "remove a run that has ended: its record, logs and files",
    },
    "See a run": {
        "top": "watch runs live in the terminal: ranks, steps, rates, what they wait for",
        "web": "see your runs in a browser: ranks, curves, logs, failures",
        "stacks": "show where in its code every rank is now, alike ones as one",
        "bill": "show what the time of a run was spent on",
        "report": "write the page of a run as one HTML file",
    },
    "Cluster": {"operator": "run the Kubernetes operator, install it, or print its files"},
    "Parameter server": {
        "pserver": "run a parameter server",
        "ps": "look at running parameter servers; have them save, load, export and so on",
    },
    "Data and models": {
        "data": "generate, split and check training data; plan which worker reads what",
        "rec": "train a recommendation model from PaddleRec's config.yaml, or a bundled one",
    },
    "Housekeeping": {
        "warm": "show or forget what launch --warm has learned; end what it keeps",
        "version": "show versions, and what is installed",
        "completion": "print the completion script of bash, zsh or fish",
        "help": "show help about a command",
    },
}
COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}
SHARED = dict.fromkeys(GROUPS[JOBS], "jobs")  # several commands that share a module
SHARED |= {"report": "web", "stacks": "watch", "bill": "watch", "top": "watch"}
# What people type who come from other tools -> what it is here.
OTHERS = {"kill": "stop", "cancel": "stop", "jobs": "list", "ls": "list",
          "run": "launch", "log": "logs", "tail": "logs -f", "get": "fetch", "rm": "delete",
          "describe": "status", "htop": "top", "py-spy": "stacks", "history": "list",
          "start": "launch", "torchrun": "launch", "fleetrun": "launch",
          "-v": "version"}  # fmt: skip
WORDS = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}
ALL = "paddock help lists the commands"
# What works on a system without fork (Windows). All else needs Linux, and its imports do.
PORTABLE = ("launch", "explain", "check", "version", "help")
SIGINT = 2
SIGPIPE = 13


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["launch"]:
        gc.disable()  # what is loaded stays: 3 ms of looking through it, until the ranks have begun
        let_ctrl_c_end_us()
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A name that the terminal's encoding lacks is no reason to end (LC_ALL=zh_CN.GBK).
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run(words)
    try:
        print(end="", flush=True)  # with a stdout that was closed there is none to flush
    except BrokenPipeError:
        # As Python's documentation says (sys.html, note on SIGPIPE): keep the exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = code or 1
    sys.exit(code)


def let_ctrl_c_end_us() -> None:
    """End at Ctrl-C until the launcher takes signals. Python raises an exception instead, and in
    some places of an import that is printed and dropped: the job would go on.
    """
    # The C module: `import signal` builds enums on a path where ranks wait.
    from _signal import (  # type: ignore[import-not-found]  # not in typeshed
        default_int_handler,
        getsignal,
        signal,
    )

    if getsignal(SIGINT) is default_int_handler:  # not ignored by our parent
        signal(SIGINT, lambda _number, _frame: os._exit(EXIT_SIGNAL_BASE + SIGINT))


def run(words: Sequence[str]) -> int:
    """Run a command; prints errors, and returns the exit code.

    >>> run(["version", "--help"]) == 0
    usage: paddock version [flags]
    <BLANKLINE>
    Show versions, and what is installed.
    <BLANKLINE>
    Flags:
      --json                  print JSON, for programs
      -h, --help              show this help
    True
    """
    return answered(lambda: _run(words))


def answered(call: Callable[[], int]) -> int:
    """Call a command's function; prints errors, and returns the exit code."""
    try:
        return call()
    except BrokenPipeError:
        # The reader of our output has gone (| head). As sys.html's note on SIGPIPE says.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_SIGNAL_BASE + SIGPIPE
    except HelpAsked as asked:
        # __import__, since the help imports the commands' tables, and ours.
        code: int = __import__("paddock.cli.help", fromlist=("answer",)).answer(asked)
        return code
    except PaddockError as error:
        from paddock.local.report.reporter import fit_terminal

        sys.stderr.write(fit_terminal(problem_text(error)))
        sys.stderr.flush()
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_SIGNAL_BASE + SIGINT


def _run(words: Sequence[str]) -> int:
    name = WORDS.get(words[0], words[0]) if words else "help"
    if name not in COMMANDS:
        raise _unknown(name)
    if not hasattr(os, "fork"):
        _refuse_without_fork(name, words[1:])
    # __import__, since importlib costs more than the command.
    module = __import__(f"paddock.cli.{SHARED.get(name, name)}", fromlist=("COMMANDS",))
    if hasattr(module, "run"):
        code: int = module.run(list(words[1:]))
        return code
    from paddock.cli.family import carry_out

    return carry_out(name, module.COMMANDS, words[1:])


def _refuse_without_fork(name: str, words: Sequence[str]) -> None:
    """Raise UsageError for a command, or the help on one, that needs Linux."""
    asked = [word for word in words if word in COMMANDS] if name == "help" else []
    for command in (name, *asked[:1]):
        if command not in PORTABLE:
            hint = f"here work: {', '.join(PORTABLE)}"
            if command in ("list", "status", "logs"):
                hint += "; what the ranks wrote is in the --log-dir of their launch"
            raise UsageError(f"paddock {command} needs Linux", hint=hint)


def _unknown(name: str) -> UsageError:
    from paddock.command_line import nearest

    meant = OTHERS.get(name)
    if meant is None and (name.startswith("-") or name.endswith(".py")):
        meant = f"launch {name} ..."
    hint = f"did you mean 'paddock {meant}'?" if meant else nearest(name, COMMANDS, ALL)
    return UsageError(f"'{name}' is not a command", hint=hint)
