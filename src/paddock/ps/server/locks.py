"""The two locks of a table."""

from __future__ import annotations

import threading


class TableLock:
    """writes: held while a record is checked and logged. rows: while rows are read or changed.

    A push takes `rows` before it lets go of `writes`. So records are carried out in the order of
    the log, while the next one is checked and logged; and a pull, which takes `rows` alone, never
    waits for a disk. `with` takes both: what was logged is carried out then.
    """

    def __init__(self) -> None:
        self.writes = threading.Lock()
        self.rows = threading.Lock()

    def __enter__(self) -> None:
        self.writes.acquire()
        self.rows.acquire()

    def __exit__(self, *problem: object) -> None:
        self.rows.release()
        self.writes.release()
