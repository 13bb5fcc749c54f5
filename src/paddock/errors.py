"""Expected errors: each says what failed, the value, the limit, where; and what to try next.

Bugs are asserts and plain exceptions; everything a user can cause is one of these.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

# Exit codes are part of the contract with scripts (docs/reference/exit-codes.md).
EXIT_USAGE = 2
EXIT_DEADLINE = 124  # timeout(1)
EXIT_OWN_FAULT = 125  # timeout(1), docker-run(1)
EXIT_NOT_EXECUTABLE = 126  # POSIX sh, 2.8.2
EXIT_NOT_FOUND = 127  # POSIX sh, 2.8.2
EXIT_SIGNAL_BASE = 128  # POSIX sh: 128 + signal number
DISTRIBUTION = "paddock-train"  # as pip knows it; pyproject.toml says the same
# Extra -> the modules that it brings and cannot do without.
EXTRAS = {
    "ps": ("numpy",),
    "web": ("starlette", "uvicorn", "jinja2", "markupsafe", "h11", "anyio", "click"),
    "operator": ("lightkube", "lightkube_models", "httpx2", "msgspec", "yaml"),
}
# Characters that move a terminal's cursor, or more; lines and tabs stay.
CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10}, "?")


class PaddockError(Exception):
    """A failure the user can act on.

    message: what failed, the value, the limit, where. hint: the next command, or "". exit_code: of
    the command that it ends. retryable: the same call may succeed later.

    Examples:
        >>> str(PaddockError("log_dir '/x' is not writable", hint="choose another with --log-dir"))
        "log_dir '/x' is not writable (hint: choose another with --log-dir)"
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        exit_code: int = EXIT_OWN_FAULT,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Let a pool of processes return it: __init__ has keywords, which pickle does not know."""
        from copyreg import __newobj__  # type: ignore[attr-defined]  # typeshed lacks it

        return __newobj__, (type(self), *self.args), self.__dict__


class HelpAsked(Exception):
    """The user asks for the help of a command. args: its arguments.

    cli/main.py answers it, so that no command imports the help, which imports all of them.
    """

    def __init__(self, name: str, args: Sequence[str] = ()) -> None:
        super().__init__(name)
        self.name, self.args = name, tuple(args)


class UsageError(PaddockError):
    """Bad input. Holds every problem found, so that all are shown at once.

    Examples:
        >>> [p.message for p in UsageError.of([Problem("a"), Problem("b")]).problems]
        ['a', 'b']
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_USAGE)
        self.problems: tuple[Problem, ...] = (Problem(message, hint),)

    @classmethod
    def of(cls, problems: list[Problem] | tuple[Problem, ...]) -> UsageError:
        """Make one error of all problems; there must be at least one."""
        assert problems
        error = cls("; ".join(p.message for p in problems), hint=problems[0].hint)
        error.problems = tuple(problems)
        return error


class Problem:
    """A problem with the input, and what to do about it."""

    __slots__ = ("hint", "message")

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint

    def __repr__(self) -> str:
        return f"Problem({self.message!r}, {self.hint!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Problem) and self.message == other.message and self.hint == other.hint
        )

    def __hash__(self) -> int:
        return hash((self.message, self.hint))


def refuse(problems: Sequence[Problem]) -> None:
    """Raise UsageError with all the problems; return if there are none."""
    if problems:
        raise UsageError.of(tuple(problems))


def of_linux(what: str) -> Callable[..., NoReturn]:
    """Return what stands for a function that needs Linux: it can be imported, and refuses a call.

    >>> of_linux("paddock.submit")("train.py", "mysite")
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: paddock.submit needs Linux
    """

    def refuse_call(*_args: object, **_keywords: object) -> NoReturn:
        raise UsageError(f"{what} needs Linux")

    return refuse_call


def problem_text(error: PaddockError) -> str:
    """The error as people see it: one line per problem, each with its hint below.

    >>> print(problem_text(UsageError("no script", hint="give one")), end="")
    paddock: error: no script
      hint: give one
    """
    problems = (
        error.problems if isinstance(error, UsageError) else (Problem(error.message, error.hint),)
    )
    lines = []
    for problem in problems:
        lines.append(f"paddock: error: {problem.message}\n")
        if problem.hint:
            lines.append(f"  hint: {problem.hint}\n")
    return for_terminal("".join(lines))


def for_terminal(text: str) -> str:
    """Return text with control characters replaced, safe for a terminal.

    >>> for_terminal("a\\x1b[2Jb\\n")
    'a?[2Jb\\n'
    """
    return text.translate(CONTROLS)


def extra_hint(extra: str) -> str:
    """The pip command that installs an extra of this distribution.

    >>> extra_hint("ps")
    "pip install 'paddock-train[ps]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_extra(error: ImportError, extra: str) -> UsageError:
    """The UsageError for a missing module of an extra. Raises `error` when it is another's."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS.get(extra, ()):
        raise error
    what = {"operator": "the operator", "web": "this page"}.get(extra, "the parameter server")
    return UsageError(f"{what} needs {error.name}, which is not installed", hint=extra_hint(extra))
