"""Writes each line in two halves 2 ms apart: what a library that prints in pieces does."""

import os
import time

from stamp import RANK

body = b"%02d" % RANK * 100
for _ in range(int(os.environ["BENCH_LINES"])):
    os.write(1, b"<" + body[:100])
    time.sleep(0.002)
    os.write(1, body[100:] + b">\n")
