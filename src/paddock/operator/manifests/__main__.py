"""Writes the files: ``--write deploy``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import EXIT_USAGE
from paddock.operator.manifests.files import files

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = "usage: python -m paddock.operator.manifests [--write DIR]\n"


def main(argv: Sequence[str]) -> int:
    """Write the files of deploy/ to the directory named."""
    if len(argv) != 2 or argv[0] != "--write":
        sys.stderr.write(USAGE)
        return EXIT_USAGE
    for name, text in files().items():
        path = Path(argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
