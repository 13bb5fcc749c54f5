"""`python -m pictures [NAME ...]` writes those pictures, or all, into docs/pictures."""

from __future__ import annotations

import sys

from pictures.made import FOLDER, MADE

for name in sys.argv[1:] or MADE:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(MADE[name]().text(), "utf-8")
    print(FOLDER / f"{name}.svg")
