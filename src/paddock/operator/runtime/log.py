"""The operator's log: one event, one line, as text or JSON."""

from __future__ import annotations

import json
import traceback
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from paddock.errors import PaddockError
from paddock.operator.options import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.operator.options import Format, Level
    from paddock.operator.runtime.clock import Clock


class Logger:
    """Writes lines from a level up. error = a job or the operator suffers; debug = why."""

    def __init__(
        self, write: Callable[[str], object], clock: Clock, *, level: Level, form: Format
    ) -> None:
        self._write = write
        self._clock = clock
        self._least = LEVELS.index(level)
        self._form = form

    def debug(self, message: str, **facts: object) -> None:
        """Why something was, or was not, done."""
        self._write_line("debug", message, facts)

    def info(self, message: str, **facts: object) -> None:
        """Something changed."""
        self._write_line("info", message, facts)

    def warning(self, message: str, **facts: object) -> None:
        """Someone may have to act."""
        self._write_line("warning", message, facts)

    def error(self, message: str, *, cause: BaseException | None = None, **facts: object) -> None:
        """Something failed. cause: its traceback is shown, unless it is an expected failure."""
        text = ""
        if cause is not None:
            facts["error"] = f"{type(cause).__name__}: {cause}"
            if not isinstance(cause, PaddockError):
                text = "".join(traceback.format_exception(cause))
        self._write_line("error", message, facts, text)

    def _write_line(
        self, level: Level, message: str, facts: dict[str, object], trace: str = ""
    ) -> None:
        if LEVELS.index(level) < self._least:
            return
        at = datetime.fromtimestamp(self._clock.now(), timezone.utc)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        if self._form == "json":
            line: dict[str, object] = {"time": stamp, "level": level, "message": message}
            line |= {name: str(fact) for name, fact in facts.items()}
            if trace:
                line["traceback"] = trace
            self._write(json.dumps(line, ensure_ascii=False) + "\n")
            return
        words = [stamp, level, message, *(f"{n}={_quoted(f)}" for n, f in facts.items())]
        self._write(" ".join(words) + "\n" + trace)


def _quoted(fact: object) -> str:
    text = str(fact)
    plain = text.isprintable() and text and not any(c in ' "=' for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
