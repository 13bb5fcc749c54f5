"""A fleet script's process as a server: the same server that `paddock pserver` starts."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.errors import PaddockError
from paddock.ps.roles import Role


def server_words(role: Role, load: str = "") -> list[str]:
    """The flags of `paddock pserver` for this role; everything else comes from its environment.

    >>> server_words(Role(True, 1, ("10.0.0.1:80", "10.0.0.2:81"), 4))[:2]
    ['--port=81', '--index=1']
    """
    return [
        f"--port={role.endpoint.rpartition(':')[2]}",
        f"--index={role.index}",
        f"--endpoints={','.join(role.server_endpoints)}",
        f"--num_gradient_servers={role.worker_num}",
        "--end-with-trainers=yes",
        *([f"--load={load}"] if load else []),
    ]


def serve_role(role: Role, env: Mapping[str, str], load: str = "") -> None:
    """Serves until the trainers have ended, or SIGTERM or SIGINT.

    Raises PaddockError when the server ended badly.
    """
    from paddock.ps.server.main import run

    code = run(server_words(role, load), env)
    if code:
        raise PaddockError(f"server {role.index} ended with code {code}", exit_code=code)
