"""``paddock web`` and ``paddock report``: see runs in a browser, or as one file."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import tempfile
from functools import partial
from pathlib import Path

from paddock.backends.status import ask_all, one_of
from paddock.cli.family import CliCommand, Operand, ParsedCommand
from paddock.command_line import flag
from paddock.errors import UsageError
from paddock.local.output.console import write_all
from paddock.local.report.width import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.web.runs import WatchedRun

HOST = "127.0.0.1"
REPORT_SECONDS = 30.0  # a report waits so long for the hosts of a job
_ask = partial(ask_all, is_brief=True)


def _web(given: ParsedCommand) -> int:
    """Serve the pages until Ctrl-C."""
    import uvicorn

    from paddock.web.app import make_app
    from paddock.web.runs import RunSource

    port = int(given.port)
    try:
        listener = socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = "leave --port out: Paddock takes one that is free"
        raise UsageError(f"--port {port}: {why}", hint=hint) from error
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    is_local = given.kubeconfig is None and given.context is None
    jobs = None if is_local else _cluster(given.kubeconfig or "", given.context or "")
    source = RunSource(os.environ, _ask, jobs)
    app = make_app(source, token, port, can_stop=given.control)
    print(f"http://{HOST}:{port}/?token={token}", flush=True)
    control = "pages may stop runs" if given.control else "pages change nothing"
    say(f"open this address in a browser; {control}; Ctrl-C ends it")
    if "SSH_CONNECTION" in os.environ:
        say(f"from your own machine: ssh -L {port}:{HOST}:{port} {os.uname().nodename}")
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_level="error", access_log=False,
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    return 0


def _report(given: ParsedCommand) -> int:
    """Write the page of a run as one file."""
    from paddock.web.pages import report_page
    from paddock.web.runs import RunSource
    from paddock.web.texts import chosen_language

    run = one_of([given.job])
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG", "")
    language = given.lang or chosen_language("", locale)
    source = RunSource(os.environ, _ask, first_seconds=REPORT_SECONDS)
    text = report_page(source, run, language)
    if given.out == "-":
        write_all(1, text.encode())
        return 0
    path = Path(given.out or f"{run.run_id}.html")
    try:
        was_there = path.exists()
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from error
    print(path)
    if was_there:
        say(f"{path} was there and is replaced")
    return 0


def _cluster(kubeconfig: str, context: str) -> Callable[[], list[WatchedRun]]:
    """Return a call that asks for the PaddleJobs of a cluster. Raises PaddockError."""
    from paddock.backends.kubernetes.driver import need_client

    need_client()
    from paddock.backends.kubernetes.watched import paddle_jobs
    from paddock.kube.connect import find_config

    find_config(kubeconfig, context)  # at once: the pages would say it much later
    folder = Path(tempfile.mkdtemp(prefix="paddock-web-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return partial(paddle_jobs, kubeconfig, context, folder)


# fmt: off
_RUN = Operand("job", "RUN", "an id or its beginning, a name, a handle, pid N or last", "job", (),
               1, 1)
_COMMANDS = (
    CliCommand("web", "see your runs in a browser: ranks, curves, logs, failures", (
        flag("port", "PORT", "the port on 127.0.0.1; 0 for any free one", default="0"),
        flag("control", "", "pages have a button that stops a run"),
        flag("kubeconfig", "FILE", "also show the PaddleJobs of this cluster"),
        flag("context", "NAME", "also show those of this context of the kubeconfig"),
    ), _web, extra="web"),
    CliCommand("report", "write the page of a run as one HTML file", (
        flag("out", "FILE", "where to write it; - for stdout [./ID.html]", "o"),
        flag("lang", "", "its language [that of your locale]", choices=("en", "zh")),
    ), _report, (_RUN,), extra="web"),
)
# fmt: on
COMMANDS = {command.name: command for command in _COMMANDS}
