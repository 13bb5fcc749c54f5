"""A rank whose steps last BENCH_STEP seconds, and which tells each: by a line, or a report.

BENCH_LOOPS: it computes so many turns of a loop in a step; without it, it sleeps. It ends after
BENCH_STEPS steps. A step's number is the time, where BENCH_CLOCK is set: tenths of a second of the
monotonic clock. BENCH_FROM: the step after which it stamps "warm"; so many steps before the last
one it stamps "done", and goes on.
"""

import os
import time

from stamp import stamp

STEP = float(os.environ["BENCH_STEP"])
LOOPS = int(os.environ.get("BENCH_LOOPS", "0"))
STEPS = int(os.environ.get("BENCH_STEPS", "0"))
FROM = int(os.environ.get("BENCH_FROM", "-1"))
HAS_CLOCK = "BENCH_CLOCK" in os.environ
if os.environ.get("BENCH_TELL") == "report":
    from paddock import report
else:
    report = None

stamp("up")
step, next_at = 0, time.monotonic()
while not STEPS or step < STEPS:
    step += 1
    told = int(time.monotonic() * 10) if HAS_CLOCK else step
    for _ in range(LOOPS):
        pass
    next_at += STEP
    if not LOOPS:
        time.sleep(max(0.0, next_at - time.monotonic()))
    if report is not None:
        report(step=told, loss=1 / step)
    else:
        print(f"step {told} loss {1 / step:.4f}", flush=True)
    if step == FROM:
        stamp("warm")
    elif step == STEPS - FROM:
        stamp("done")
