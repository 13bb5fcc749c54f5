"""BENCH_CULPRIT fails at the gate; the others lose their peer 10 to 40 ms later and fail too."""

import os
import random
import sys
import time

from stamp import RANK, pass_gate, stamp

is_culprit = int(os.environ["BENCH_CULPRIT"]) == RANK
delay_seconds = random.Random(f"{os.environ['BENCH_SEED']} {RANK}").uniform(0.010, 0.040)
pass_gate("up")
if is_culprit:
    stamp("dead")
    raise ValueError("loss is nan")
time.sleep(delay_seconds)
stamp("followed")
sys.stderr.flush()
raise ConnectionResetError(104, "Connection reset by peer")
