"""A parameter-server job whose processes do not get Paddle's contract (--framework torch, ...).

The variables that ``paddock.ps`` and ``paddock pserver`` read; paddle_ps.py has them, too.
"""

from __future__ import annotations

from paddock.contracts import servers_env

env = servers_env
