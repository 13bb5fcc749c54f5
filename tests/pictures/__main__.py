"""`python -m pictures [NAME ...]` writes those pictures, or all, into docs/pictures.

A cast whose lines are those of its file stays as it is; remove the file to have it
drawn anew. The demo needs PaddlePaddle, submit root and sshd.
"""

from __future__ import annotations

import sys

from pictures import cast
from pictures.made import FOLDER, MADE, said_by
from pictures.scenes import SCENES, TITLES

FOLDER.mkdir(exist_ok=True)
for name in sys.argv[1:] or [*MADE, *SCENES]:
    path = FOLDER / f"{name}.svg"
    if name in MADE:
        path.write_text(MADE[name]().text(), "utf-8")
    else:
        panes = SCENES[name]()
        said = cast.compared(cast.transcript(panes))
        if not path.exists() or cast.compared(said_by(path)) != said:
            path.write_text(cast.draw(TITLES[name], panes).text(), "utf-8")
    print(path)
