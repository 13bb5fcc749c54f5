"""The report of ``paddock data check``, as text and JSON."""

from __future__ import annotations

from paddock.backends.node.store import size_text
from paddock.cli.ps_text import aligned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.data.check import DataReport

TOP_IDS = 3
FILES_SHOWN = 20


def report_text(name: str, report: DataReport) -> str:
    """A report for people: the data's facts, then its errors."""
    examples = report.coverage.examples
    total = size_text(sum(file.bytes for file in report.files))
    files = f"{len(report.files)} file{'s' * (len(report.files) != 1)}"
    lines = [f"{files}, {examples:,} examples, {total}, format {name}"]
    if report.samples:
        lines.append("first examples:")
        lines += [f"  {text}" for _, text in report.samples]
    if len(report.files) > 1:
        rows = [("file", "examples", "bytes")]
        for file in report.files[:FILES_SHOWN]:
            rows.append((file.path, f"{file.examples:,}", size_text(file.bytes)))
        lines.append(aligned(rows, left=(0,)).rstrip())
        if len(report.files) > FILES_SHOWN:
            lines.append(f"... and {len(report.files) - FILES_SHOWN} more files")
    if report.ids:
        lines.append(aligned(_id_rows(report), left=(0,)).rstrip())
    if report.dense:
        rows_ = [("dense", "width", "mean", "min", "max")]
        for slot, facts in report.dense.items():
            mean = facts.total / max(facts.count, 1)
            low, high = (facts.low, facts.high) if facts.count else (0.0, 0.0)
            numbers = (f"{value:.4g}" for value in (mean, low, high))
            rows_.append((slot, str(facts.width), *numbers))  # type: ignore[arg-type]  # five words
        lines.append(aligned(rows_, left=(0,)).rstrip())
    if report.labels:
        shares = (
            f"{label:g}: {count:,} ({count / examples:.2%})"
            for label, count in sorted(report.labels.items())[:5]
        )
        lines.append("labels " + ", ".join(shares))
    if report.bad_count > 1:
        lines.append(f"bad lines, the first {len(report.bad)} of {report.bad_count}:")
        lines += [f"  {path}:{line}: {reason}" for path, line, reason in report.bad]
    lines += [f"warning: {text}" for text in report.warnings]
    lines += [f"wrong: {text}" for text in report.wrong]
    lines.append("something is wrong" if report.wrong else "nothing is wrong")
    return "\n".join(lines)


def _id_rows(report: DataReport) -> list[tuple[str, ...]]:
    examples = max(report.coverage.examples, 1)
    rows: list[tuple[str, ...]] = [
        ("slot", "in examples", "ids each", "different", "lowest", "highest", "most frequent")
    ]
    for slot, ids in report.ids.items():
        seen = report.coverage.seen.get(slot, 0)
        about = "" if ids.is_exact else "~"
        top = " ".join(f"{value} ({share:.1%})" for value, share in ids.top(TOP_IDS))
        rows.append(
            (
                slot, f"{seen / examples:.1%}", f"{ids.total / examples:.2f}",
                f"{about}{ids.distinct():,}", str(ids.low), str(ids.high), top,
            )
        )  # fmt: skip
    return rows


def report_json(name: str, report: DataReport) -> dict[str, object]:
    """A report for programs."""
    coverage = report.coverage
    return {
        "format": name,
        "examples": coverage.examples,
        "files": [vars(file) for file in report.files],
        "samples": [{"file": path, "example": text} for path, text in report.samples],
        "slots": {
            slot: {
                "examples": coverage.seen.get(slot, 0),
                "ids": ids.total,
                "distinct": ids.distinct(),
                "distinct_is_exact": ids.is_exact,
                "min": ids.low,
                "max": ids.high,
                "top": [{"id": value, "share": share} for value, share in ids.top(TOP_IDS)],
            }
            for slot, ids in report.ids.items()
        },
        "dense": {
            slot: {
                "width": facts.width,
                "mean": facts.total / max(facts.count, 1),
                "min": facts.low if facts.count else None,
                "max": facts.high if facts.count else None,
            }
            for slot, facts in report.dense.items()
        },
        "labels": {f"{label:g}": count for label, count in sorted(report.labels.items())},
        "unknown_slots": dict(coverage.unknown),
        "bad_count": report.bad_count,
        "bad": [
            {"file": path, "line": line, "reason": reason} for path, line, reason in report.bad
        ],
        "wrong": report.wrong,
        "warnings": report.warnings,
    }
