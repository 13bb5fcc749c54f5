"""What a sweep ends, and what it leaves alone."""

from __future__ import annotations

import subprocess

from local.warm.test_server import in_a_process
from paddock.local.guardian import sweep_on
from paddock.local.loop import Loop


def test_a_child_that_is_kept_while_the_sweep_goes_on_is_left_alone() -> None:
    """git of the run's record may begin between two rounds."""
    loop, own, counts = Loop(), set[int](), []

    def done(killed: int) -> None:
        counts.append(killed)
        loop.stop()

    def sweep() -> None:
        # A rank has a process group of its own. sleep: the sweep ends it.
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        subprocess.Popen(["sleep", "60"])  # sleep: and this one, a tool of ours that nobody counts
        sweep_on(loop, done, own)
        kept = subprocess.Popen(["sleep", "60"])  # sleep: ended below
        own.add(kept.pid)
        if not counts:
            loop.run()
        assert counts == [1]
        assert kept.poll() is None
        kept.kill()

    in_a_process(sweep)
    loop.close()
