"""Examples as text, for people. No I/O here."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddock.data.batch import Bag, Batch


def text_of(batch: Batch, count: int = 10) -> list[str]:
    """The first examples, a line for each (`reader_debug_mode`, `dataset_debug`).

    >>> text_of(Batch(1, {"7": np.array([4])}, {"age": np.array([[0.5, 2]])}, np.array([1.0])))
    ['label 1, 7 4, age [0.5 2]']
    """
    rows: list[str] = []
    columns: dict[str, Any] = {**batch.ids, **batch.dense, **batch.other}
    for i in range(min(count, batch.size)):
        fields = [f"label {batch.label[i]:g}"] if len(batch.label) else []
        fields += [f"{slot} {_value(column, i)}" for slot, column in columns.items()]
        rows.append(", ".join(fields))
    return rows


def _value(column: Any, i: int) -> str:
    if isinstance(column, Bag):
        start = int(column.lengths[:i].sum())
        row: Any = column.values[start : start + int(column.lengths[i])]
    else:
        row = column[i]
    if not isinstance(row, np.ndarray):
        return str(row)
    texts = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.tolist())
    return f"[{' '.join(texts)}]"
