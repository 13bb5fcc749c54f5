"""The rank or node that may hold the others up, and what is seen of it. Pure; from a history.

Never a verdict: in a step that all ranks end together, their step times are alike, and only what
is seen beside them differs. A rank stands out against the median of the others.
"""

from __future__ import annotations

from statistics import median

from paddock.watch.stacks import ranks_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.watch.history import HistoryRows, Row

WINDOW_SECONDS = 120.0
SECONDS_MIN = 15.0  # of a measurement
# What ranks are compared by, the strongest first. One stands out with so much more than the others'
# median, and with so many times it; then the scale and the text that show both.
MEASURES = {
    "step": (0.0, 1.15, 1, "{:.3g} s a step, the others {:.3g} s"),
    "waited": (0.2, 1.3, 100, "waits for a core {:.0f} % of its time, the others {:.0f} %"),
    "faults": (20.0, 2.0, 1, "{:.0f} pages a second from the disk, the others {:.0f}"),
    "cpu": (0.5, 2.0, 100, "uses {:.0f} % of a core, the others {:.0f} %"),
}


def slow_text(history: HistoryRows) -> str:
    """A line about the rank or node that may hold the others up; "" where none stands out."""
    nodes, measured = _measured(history)
    for name, found in measured.items():
        # The others' median is this at least: of 1,024 ranks, few are compared with all others.
        least = sorted(found.values())[max(0, len(found) - 2) // 2] if found else 0.0
        high = [rank for rank in found if found[rank] > least * MEASURES[name][1]]
        slow = [rank for rank in high if _text(name, [rank], found)]
        if not slow or len(slow) > len(found) // 2:
            continue
        worst = max(slow, key=lambda rank: found[rank])
        there = [rank for rank, node in nodes.items() if node == nodes[worst]]
        is_node = set(there) <= set(slow) and len(set(nodes.values())) > 1
        blamed = there if is_node else [worst]
        seen = [text for each in MEASURES if (text := _text(each, blamed, measured[each]))]
        who = f"{ranks_text(blamed)} on {nodes[worst]}" if nodes[worst] else ranks_text(blamed)
        return f"{who} may be slow: {'; '.join(seen)}"
    return ""


def _text(name: str, blamed: Sequence[int], found: Mapping[int, float]) -> str:
    """The numbers of ranks and of the others as text; "" where they do not stand out."""
    least, factor, scale, text = MEASURES[name]
    own = [number for rank, number in found.items() if rank in blamed]
    rest = [number for rank, number in found.items() if rank not in blamed]
    if not own or not rest or median(own) <= max(median(rest) + least, median(rest) * factor):
        return ""
    return text.format(median(own) * scale, median(rest) * scale)


def _measured(history: HistoryRows) -> tuple[dict[int, str], dict[str, dict[int, float]]]:
    """The node of each rank of the latest attempt, and what was measured of late: name -> rank."""
    nodes: dict[int, str] = {}
    rows: dict[tuple[str, int], list[Row]] = {}
    number: object = None
    told = (row["at"] for row in reversed(history.rows) if row["kind"] in ("sample", "progress"))
    since = next(told, 0.0) - WINDOW_SECONDS
    for row in history.of("attempt", "sample", "progress"):
        rank = row.get("rank")
        if row["kind"] == "attempt":
            if row.get("attempt") != number:
                number = row.get("attempt")
                nodes.clear()
                rows.clear()
            workers = [each[1] for each in row["ranks"] if each[0] == "worker"]
            nodes.update(dict.fromkeys(workers, str(row.get("node", ""))))
        elif rank in nodes and "role" not in row and row["at"] > since:
            rows.setdefault((row["kind"], rank), []).append(row)
    measured: dict[str, dict[int, float]] = {name: {} for name in MEASURES}
    for (_, rank), each in rows.items():
        for name in MEASURES:
            known = [row for row in each if row.get(name) is not None]
            seconds = known[-1]["at"] - known[0]["at"] if known else 0.0
            more = known[-1][name] - known[0][name] if seconds >= SECONDS_MIN else 0
            if name == "step" and more > 0:
                measured[name][rank] = seconds / more
            elif name != "step" and seconds >= SECONDS_MIN:
                measured[name][rank] = more / seconds
    return nodes, measured
