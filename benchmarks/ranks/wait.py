"""A rank that waits for SIGTERM and stamps it. BENCH_CULPRIT dies at the gate, once."""

import os
import signal

from stamp import RANK, pass_gate, stamp

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with open(os.environ["BENCH_STAMPS"], encoding="ascii") as f:
    has_died = "dead " in f.read()
if int(os.environ.get("BENCH_CULPRIT", "-1")) == RANK and not has_died:
    pass_gate("up")
    stamp("dead")
    os._exit(7)
stamp("again" if has_died else "up")
while True:
    found = signal.sigwait({signal.SIGTERM})
    stamp("term")
    os._exit(128 + found)
