"""``paddock pserver``: a parameter server. Its flags are in paddock.ps.server.options."""

from __future__ import annotations

import os
from collections.abc import Sequence

from paddock.cli.family import CliCommand, named
from paddock.cli.main import COMMANDS as NAMES
from paddock.ps.server.options import TABLE


def _serve(words: Sequence[str]) -> int:
    from paddock.data.dispatch.service import SERVICE, DispatcherService
    from paddock.ps.server import main

    return main.run(words, os.environ, {SERVICE: DispatcherService()})


COMMANDS = named(
    CliCommand(
        "pserver",
        NAMES["pserver"],
        TABLE.flags,
        takes_args=_serve,
        notes="A flag wins over the environment. paddock ps looks after servers that run.",
        extra="ps",
        goes_single=True,
    )
)
