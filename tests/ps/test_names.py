"""What paddock.ps and paddock.data say of themselves before they are used."""

from __future__ import annotations

import subprocess
import sys


def test_dir_lists_the_public_names_and_imports_nothing() -> None:
    """Completion in a notebook shows them; that costs no numpy."""
    code = (
        "import sys, paddock.ps, paddock.data\n"
        "print(*(n for m in (paddock.ps, paddock.data) for n in dir(m) if n[0] != '_'))\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, has_numpy = done.stdout.splitlines()
    assert {"Client", "SparseSpec", "local", "torch", "DataStream", "stream"} <= set(names.split())
    assert has_numpy == "False"
