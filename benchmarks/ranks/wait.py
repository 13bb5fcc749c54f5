"""A rank that waits for SIGTERM and stamps it. BENCH_CULPRIT dies at the gate, once."""

import os

from stamp import RANK, pass_gate, stamp

with open(os.environ["BENCH_STAMPS"], encoding="utf-8") as f:
    is_again = "dead " in f.read()
if is_again:
    stamp("again")  # before anything else that costs time

import signal  # late, see above

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
if int(os.environ.get("BENCH_CULPRIT", "-1")) == RANK and not is_again:
    pass_gate("up")
    stamp("dead")
    os._exit(7)
if not is_again:
    stamp("up")
while True:
    found = signal.sigwait({signal.SIGTERM})
    stamp("term")
    os._exit(128 + found)
