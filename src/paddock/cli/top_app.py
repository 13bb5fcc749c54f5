"""The board of `paddock top` with keys, by textual (extra `watch`).

Hosts are asked in threads of textual's: a silent one holds up no key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Label, Static

from paddock.backends.backend import find_backend
from paddock.backends.merge import prefixed
from paddock.backends.registry import RegisteredJob
from paddock.backends.text import clean
from paddock.backends.types import LogQuery
from paddock.cli.top import (
    NO_RUNS,
    RANK_HEAD,
    RUN_HEAD,
    BoardRun,
    BoardSource,
    rank_cells,
    run_cells,
    seen_text,
    servers_text,
)  # fmt: skip
from paddock.cli.watch import NO_RANKS, read_stacks, stack_lines
from paddock.errors import PaddockError
from paddock.watch.stacks import missing_hint

LOG_LINES = 200

Cells = tuple[str, ...]


class TextScreen(ModalScreen[None]):
    """A text over the board: logs, or stacks."""

    BINDINGS: ClassVar = [Binding("escape,q", "app.pop_screen", "back")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Label(self._title, markup=False)
        with VerticalScroll():
            yield Static("asking ...", id="text", markup=False)
        yield Footer()

    def show(self, text: str) -> None:
        """Show a text; it may come after this screen was left."""
        if self.is_attached:
            self.query_one("#text", Static).update(text)
            self.query_one(VerticalScroll).scroll_end(animate=False)


class ConfirmScreen(ModalScreen[bool]):
    """A question; only the key y says yes."""

    BINDINGS: ClassVar = [
        Binding("y", "dismiss(True)", "yes"), Binding("n,escape,q", "dismiss(False)", "no"),
    ]  # fmt: skip

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Label(self._question, id="question", markup=False)
        yield Footer()


class TopApp(App[None]):
    """The board. seconds: between two looks."""

    CSS = """
    DataTable { height: auto; max-height: 40%; }
    #ranks { height: 1fr; max-height: 100%; }
    #note { height: auto; }
    ModalScreen { background: $background; }
    """
    BINDINGS: ClassVar = [
        Binding("l", "logs", "logs"),
        Binding("s", "stacks", "stacks"),
        Binding("k", "stop", "stop"),
        Binding("tab", "switch_table", "runs/ranks", priority=True),
        Binding("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: BoardSource, seconds: float) -> None:
        super().__init__()
        self.title = "paddock top"
        self._source = source
        self._seconds = seconds
        self._runs: list[BoardRun] = []

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield DataTable(id="runs", cursor_type="row", zebra_stripes=True)
        yield Label("asking ...", id="note", markup=False)
        yield DataTable(id="ranks", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one("#runs", DataTable).add_columns(*RUN_HEAD)
        self.query_one("#ranks", DataTable).add_columns(*RANK_HEAD)
        self.query_one("#runs").focus()
        self._look_soon()
        self.set_interval(self._seconds, self._look_soon)

    @property
    def chosen(self) -> BoardRun | None:
        """The run under the cursor."""
        at = self.query_one("#runs", DataTable).cursor_row
        return self._runs[at] if 0 <= at < len(self._runs) else None

    def _look_soon(self) -> None:
        # exclusive: a look that takes long is not followed by more of them
        if not any(w.group == "look" and not w.is_finished for w in self.workers):
            self.run_worker(self._look, group="look", thread=True, exit_on_error=False)

    def _look(self) -> None:
        """Ask for all, in a thread."""
        try:
            runs = self._source.look()
        except PaddockError as error:
            self.call_from_thread(self._note, error.message)
            return
        self.call_from_thread(self._draw, runs)

    def _draw(self, runs: list[BoardRun]) -> None:
        now, was = time.time(), self.chosen
        ids = [each.run.run_id for each in runs]
        at = ids.index(was.run.run_id) if was and was.run.run_id in ids else 0
        self._runs = runs
        _fill(self.query_one("#runs", DataTable), [run_cells(each, now) for each in runs], at)
        self._draw_ranks()

    def _draw_ranks(self) -> None:
        now, each = time.time(), self.chosen
        view = each.view if each is not None else None
        table = self.query_one("#ranks", DataTable)
        _fill(table, [rank_cells(rank, now) for rank in view.ranks] if view else [],
              table.cursor_row)  # fmt: skip
        if each is None:
            self._note(NO_RUNS)
            return
        about = ((view and view.slow) or each.run.command) + seen_text(each.status)
        servers = f" · {servers_text(view.servers)}" if view and view.servers else ""
        self._note(each.problem or f"{each.run.run_id}: {about}{servers}")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another run is chosen: show its ranks."""
        if event.data_table.id == "runs":
            self._draw_ranks()

    def _note(self, text: str) -> None:
        self.query_one("#note", Label).update(clean(text))

    # -------------------------------------------------------------- keys

    def action_switch_table(self) -> None:
        """Move between the runs and the ranks."""
        ranks = self.query_one("#ranks")
        (self.query_one("#runs") if ranks.has_focus else ranks).focus()

    def action_logs(self) -> None:
        """Show the last lines of the ranks; of one, if the cursor is on it."""
        rank = self._rank()
        if self.chosen is not None:
            run = self.chosen.run
            ranks = () if rank is None else (rank,)
            name = "" if rank is None else f" of rank {rank}"
            self._show(f"the last lines{name}: {run.run_id}", lambda: _log_text(run, ranks))

    def action_stacks(self) -> None:
        """Show where in its code every rank is."""
        if self.chosen is not None:
            run = self.chosen.run
            self._show(f"stacks: {run.run_id}", lambda: _stack_text(run))

    def action_stop(self) -> None:
        """Stop the run, once the user has said yes."""
        if self.chosen is None:
            return
        run = self.chosen.run

        def stop() -> None:
            try:
                find_backend(run.handle.backend).stop(run, now=False)
                text = f"stopping {run.run_id}"
            except PaddockError as error:
                text = str(error)
            self.call_from_thread(self.notify, text, markup=False)

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self.run_worker(stop, thread=True, group="stop", exit_on_error=False)

        self.push_screen(ConfirmScreen(f"Stop {run.run_id}? (y/n)"), answered)

    def _rank(self) -> int | None:
        table = self.query_one("#ranks", DataTable)
        if not table.has_focus or not table.row_count:
            return None
        cell = str(table.get_row_at(table.cursor_row)[0])
        return int(cell) if cell.isdecimal() else None

    def _show(self, title: str, make: Callable[[], str]) -> None:
        screen = TextScreen(title)
        self.push_screen(screen)

        def work() -> None:
            try:
                text = make()
            except PaddockError as error:
                text = str(error)
            lines = [clean(line) for line in text.splitlines()]
            self.call_from_thread(screen.show, "\n".join(lines))

        self.run_worker(work, thread=True, group="text", exit_on_error=False)


def _fill(table: DataTable[Text], rows: list[Cells], cursor: int) -> None:
    """Put rows into a table; cells that are the same are left alone."""
    if table.row_count != len(rows):
        table.clear()
        for cells in rows:
            table.add_row(*map(Text, cells))  # a text: else "[red]" is markup
        if rows:
            table.move_cursor(row=min(cursor, len(rows) - 1))
        return
    for at, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if table.get_cell_at(Coordinate(at, column)).plain != cell:
                table.update_cell_at(Coordinate(at, column), Text(cell), update_width=True)
    if rows and table.cursor_row != cursor:
        table.move_cursor(row=cursor)


def _log_text(run: RegisteredJob, ranks: tuple[int, ...]) -> str:
    found = find_backend(run.handle.backend).logs(run, LogQuery(ranks, tail=LOG_LINES))
    return b"".join(prefixed(found, is_terminal=True)).decode("utf-8", "replace") or "no lines"


def _stack_text(run: RegisteredJob) -> str:
    stacks = read_stacks(find_backend(run.handle.backend).stacks(run, native=False))
    return "\n".join([*stack_lines(stacks), "", missing_hint(stacks)]) if stacks else NO_RANKS
