"""`python -m pictures [NAME ...]` writes those pictures, or all, into docs/pictures.

The demo needs PaddlePaddle, submit root and sshd; what is missing is said.
"""

from __future__ import annotations

import sys

from pictures import cast
from pictures.made import FOLDER, MADE
from pictures.scenes import SCENES, TITLES

for name in sys.argv[1:] or [*MADE, *SCENES]:
    picture = MADE[name]() if name in MADE else cast.draw(TITLES[name], SCENES[name]())
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(picture.text(), "utf-8")
    print(FOLDER / f"{name}.svg")
