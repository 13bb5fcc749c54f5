"""A real operator process with the toy reconcile: python -m machine.toy_operator FLAGS."""

from __future__ import annotations

import sys

from machine import toy
from paddock.operator.options import read_options
from paddock.operator.run import run

if __name__ == "__main__":
    sys.exit(run(read_options(sys.argv[1:]), toy.reconcile))
