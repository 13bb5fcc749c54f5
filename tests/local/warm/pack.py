"""An installed package whose imports do what the test wants, in the warm server or in a rank."""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.jobs import Running, World

# Python 3.11 reads the .pth of an editable installation in the letters of the locale.
IN_ASCII = pytest.mark.skipif(not sys.prefix.isascii(), reason="Python could not start there")
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# In the server only, so that a rank lives: it alone has the file that says how far it has come.
INIT = """
import os
def in_server():
    paths = [f"/proc/self/fd/{number}" for number in range(64)]
    files = [os.readlink(path) for path in paths if os.path.lexists(path)]
    return any(file.startswith("/memfd:paddock-warm") for file in files)
if in_server():
    with open(os.environ["TEST_SERVERS"], "a") as f:
        f.write("!")
"""


class Pack:
    """An installed package of these modules, and a script that imports them one by one."""

    def __init__(self, world: World, modules: dict[str, str], text: str) -> None:
        self.world = world
        self.mark = uuid.uuid4().hex  # one for all launches: variables that differ start anew
        self.site = world.folder / SITE / "pack"
        self.site.mkdir(parents=True)
        (self.site / "__init__.py").write_text(INIT, "utf-8")
        for name, each in modules.items():
            lines = each.replace("IN_SERVER", "pack.in_server()")
            (self.site / f"{name}.py").write_text(f"import pack\n{lines}\n", "utf-8")
        (world.folder / "of_user.py").write_text("", "utf-8")
        imports = "".join(f"import pack.{name}\n" for name in modules)
        self.script = world.script(imports + text)
        self.servers = world.folder / "servers"
        self.env = {
            "PYTHONUSERBASE": str(world.folder),
            "PYTHONPATH": f"{world.source}:{world.folder / SITE}",
            "XDG_CACHE_HOME": str(world.folder / "cache"),
            "XDG_RUNTIME_DIR": str(world.folder),
            "TEST_SERVERS": str(self.servers),
            "DROPPED": "1",
        }

    def start(
        self,
        *words: object,
        warm: str = "on",
        before: Sequence[str] = (),
        log: str = "log",
        args: Sequence[str] = (),
        stdin: int | None = None,
    ) -> Running:
        """Start the script, by default on two ranks."""
        self.servers.write_text("", "utf-8")
        given = ("--warm", warm, "--log_overwrite", "--grace", 2)
        ranks = words or ("--nproc_per_node", 2)
        place = self.world.folder / log
        return self.world.start(
            *given,
            *ranks,
            self.script,
            *args,
            env=self.env,
            before=before,
            stdin=stdin,
            log_dir=place,
            mark=self.mark if warm == "keep" else "",
        )

    def count_servers(self) -> int:
        """How many servers have imported the package since the last start."""
        return len(self.servers.read_text("utf-8"))

    def left_out(self) -> dict[str, str]:
        """What is remembered: name -> why."""
        (path,) = (self.world.folder / "cache/paddock/warm").iterdir()
        found: dict[str, str] = json.loads(path.read_text("utf-8"))["left_out"]
        return found
