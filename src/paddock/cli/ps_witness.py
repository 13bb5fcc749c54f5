"""``paddock ps witness``: says which server of a pair may serve. Needs a disk and little else."""

from __future__ import annotations

import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import FrameType

PORT = 7163


def add_flags(parser: argparse.ArgumentParser) -> None:
    """What a witness is told."""
    add = parser.add_argument
    add("--data-dir", required=True, metavar="DIR", help="where it keeps who may serve")
    add("--port", type=int, default=PORT, metavar="PORT", help=f"0 for any free one [{PORT}]")
    add("--bind", default="", metavar="HOST", help="[127.0.0.1; 0.0.0.0 with a token]")
    add("--token-file", default="", metavar="FILE", help="the servers' secret")
    add("--tls-cert", default="", metavar="FILE", help="certificate, PEM")
    add("--tls-key", default="", metavar="FILE", help="its key, PEM")


def run(given: argparse.Namespace) -> int:
    """Be a witness until SIGTERM or SIGINT; the exit code."""
    from paddock.ps.link import read_token
    from paddock.ps.server.main import say
    from paddock.ps.server.witness import serve_witness

    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    serve_witness(
        ended,
        port=given.port,
        data_dir=given.data_dir,
        bind=given.bind or ("0.0.0.0" if given.token_file else "127.0.0.1"),
        token=read_token(given.token_file),
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        say=say,
        ready=_ready,
    )
    return 0


def _ready(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
