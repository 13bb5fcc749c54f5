"""Writes BENCH_LINES lines of 80 bytes: in chunks of 64 KB, or one unbuffered print() each."""

import os

count = int(os.environ["BENCH_LINES"])
line = "x" * 79
if os.environ["BENCH_WRITER"] == "chunks":
    chunk = (line.encode() + b"\n") * 819  # just below 64 KB
    for _ in range(count // 819):
        os.write(1, chunk)
    os.write(1, (line.encode() + b"\n") * (count % 819))
else:
    for _ in range(count):
        print(line)
