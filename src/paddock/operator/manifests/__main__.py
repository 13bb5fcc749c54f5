"""Writes the files: ``--write deploy``, and the page of the reference: ``--reference DIR``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import EXIT_USAGE
from paddock.operator.manifests.files import files
from paddock.operator.manifests.reference import reference_text

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = "usage: python -m paddock.operator.manifests [--write DIR] [--reference DIR]\n"


def main(argv: Sequence[str]) -> int:
    """Write the files of deploy/ and the page of the reference to the directories named."""
    words = list(argv)
    if not words or len(words) % 2 or {*words[::2]} - {"--write", "--reference"}:
        sys.stderr.write(USAGE)
        return EXIT_USAGE
    for flag, folder in zip(words[::2], words[1::2], strict=True):
        texts = files() if flag == "--write" else {"paddlejob.md": reference_text()}
        for name, text in texts.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
