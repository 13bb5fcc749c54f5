"""Paddock starts, supervises and scales distributed training jobs."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.watch.rank import report as report


def __getattr__(name: str) -> object:
    """`paddock.report`, for ranks: imported once it is used."""
    if name != "report":
        raise AttributeError(f"module 'paddock' has no attribute '{name}'")
    from paddock.watch.rank import report

    return report
