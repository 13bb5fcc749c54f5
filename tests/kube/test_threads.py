"""Several jobs are asked for at once (`paddock list`), a thread each."""

from __future__ import annotations

import subprocess
import sys

MANY = """
import sys, threading
from paddock.kube.objects import Pod
from paddock.kube.replies import read_page
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
def read():
    together.wait()
    read_page(Pod, b'{"items": []}', "GET")
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_read_the_first_answer_at_once_do_not_crash() -> None:
    """It was a segmentation fault in msgspec, which another process shows without ending us."""
    assert subprocess.run([sys.executable, "-c", MANY], check=False).returncode == 0
