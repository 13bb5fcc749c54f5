"""What is shown of the consoles of a job's hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from paddock.backends.ssh.attached import Attached

if TYPE_CHECKING:
    import pytest

    from paddock.backends.ssh.fleet import Fleet

DETAIL = b"""\
ValueError: 812
LAUNCH ERROR ------ ERROR LOG DETAIL ------ (log: workerlog.0 on h2)
ValueError: 812
LAUNCH ERROR ABORT!!!
the last words
"""


def test_a_log_that_every_launcher_repeats_is_shown_by_the_first_alone(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Of other hosts what the ranks said, once."""
    channels = [SimpleNamespace(target=SimpleNamespace(login=f"h{n}")) for n in (1, 2, 3)]
    attached = Attached(cast("Fleet", SimpleNamespace(channels=channels)), [], print)
    for index, data in ((0, DETAIL), (1, DETAIL[:60]), (1, DETAIL[60:])):
        attached._show(index, data)
    shown = capfdbinary.readouterr().out
    assert shown == DETAIL + b"[h2] ValueError: 812\n[h2] the last words\n"
