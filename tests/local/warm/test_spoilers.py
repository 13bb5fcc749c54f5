"""What an import can do that must not be forked: it is found, left out, remembered, and told."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from local.warm.pack import Pack

if TYPE_CHECKING:
    from local.jobs import Ended, World

# A module's text -> why it is left out; "" when it may be forked.
SPOILERS = {
    "abort": ("import os; IN_SERVER and os.abort()", "the import was killed by signal 6"),
    "segv": (
        "import ctypes; IN_SERVER and ctypes.string_at(0)",
        "the import was killed by signal 11",
    ),
    "exits": ("import os; IN_SERVER and os._exit(0)", "the import ended with exit code 0"),
    "leaves": ("if IN_SERVER: raise SystemExit(3)", "SystemExit(3)"),
    "interrupts": ("if IN_SERVER: raise KeyboardInterrupt", "KeyboardInterrupt()"),
    "raises": ("if IN_SERVER: raise ValueError('no')", "ValueError('no')"),
    "thread": (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "it starts a thread",
    ),
    "file": ("f = open(__file__)", "it keeps"),
    "sock": ("import socket; s = socket.socket()", "it keeps socket:"),
    "poll": ("import select; e = select.epoll()", "it keeps anon_inode:[eventpoll]"),
    "closes": ("import os; os.closerange(3, 64)", "the import ended with exit code 125"),
    "child": (
        "import os; pid = os.fork() or os.execvp('sleep', ['sleep', '60'])",
        "it starts a process",
    ),
    "temporary": ("import tempfile; d = tempfile.mkdtemp()", "it makes a temporary file"),
    "shared": ("import mmap; m = mmap.mmap(-1, 4096)", "it maps /dev/zero (deleted) for sharing"),
    "lock": ("import multiprocessing as m; l = m.Lock()", "it maps /dev/shm/"),
    "rank": ("import os; R = os.environ['PADDLE_TRAINER_ID']", "rank reads PADDLE_TRAINER_ID"),
    "moves": ("import os; os.chdir('/')", "it changes the working directory"),
    "alarm": ("import signal; signal.alarm(1000)", "it sets a timer"),
    "first": ("import sys; sys.path.insert(0, '/nowhere')", "it changes the beginning of sys.path"),
    "users": ("import of_user", "it imports of_user, which is not an installed package"),
    "finds": (
        "import importlib.util as u, os, sys\n"
        "s = u.spec_from_file_location('edited', os.environ['TEST_EVENTS'] + '.py')\n"
        "sys.modules['edited'] = u.module_from_spec(s)",  # as the finder of an editable package
        "it imports edited, which is not an installed package",
    ),
    "says": ("import sys; print('said'); print('erred', file=sys.stderr)", ""),
    "sets": ("import os; os.environ['SET'] = '1'; os.environ.pop('DROPPED', 0)", ""),
    "masks": ("import os; os.umask(0o77)", ""),
    "handles": ("import signal; signal.signal(signal.SIGTERM, lambda *_: None)", ""),
    "reaps": ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)", ""),
    "appends": ("import sys; sys.path.append('/nowhere')", ""),
    "at_exit": ("import atexit; atexit.register(print, 'left')", ""),
    "at_last": (
        "from multiprocessing.util import Finalize; Finalize(None, print, ['last'], {}, 1)",
        "",
    ),
    "inherits": ("import os; PATH = os.environ.get('PYTHONPATH')", ""),
}
# What every rank tells at its end, whatever was imported before it was forked.
STATE = """
import json, threading
mask = os.umask(0); os.umask(mask)
print(json.dumps([
    os.getcwd(), [p for p in sys.path if "warm" not in p], mask, threading.active_count(),
    str(signal.getsignal(signal.SIGTERM))[:12], str(signal.getsignal(signal.SIGCHLD)),
    os.environ.get("SET"), os.environ.get("DROPPED"), signal.getitimer(signal.ITIMER_REAL)[0] > 0,
    sorted(name for name in sys.modules if name.startswith("pack")), pack.inherits.PATH
]))
tell(RANK)
"""


def run(pack: Pack, warm: str = "on") -> tuple[Ended, list[str], int]:
    """Its end, each rank's log, and how many servers imported the package."""
    ended = pack.start(warm=warm).end()
    logs = [pack.world.log(rank).decode() for rank in (0, 1)]
    assert logs[1].startswith("said\nerred\n")  # one pipe, one order
    logs[0] = "\n".join(sorted(logs[0].splitlines()))  # two pipes
    return ended, logs, pack.count_servers()


def test_what_must_not_be_forked_is_left_out_and_remembered(world: World) -> None:
    """All at once: every rank is what it is without, and the second start knows."""
    pack = Pack(world, {name: text for name, (text, _) in SPOILERS.items()}, STATE)
    ended, wanted, _ = run(pack, "off")
    assert "left" in wanted[0], ended.err
    ended, logs, _ = run(pack)
    assert (ended.code, logs) == (0, wanted), ended.err
    ended, logs, servers = run(pack)
    assert (ended.code, logs) == (0, wanted), ended.err
    found = pack.left_out()
    whys = {name: why for name, (_, why) in SPOILERS.items() if why}
    for name, why in whys.items():
        assert why in found.get(f"pack.{name}", ""), found
    assert set(found) == {f"pack.{name}" for name in whys}
    assert servers > 1
    assert "left out: " in ended.line("modules imported once")
    ended, logs, servers = run(pack)
    assert (ended.code, logs, servers) == (0, wanted, 1), ended.err


def test_a_package_that_was_removed_is_done_without(world: World) -> None:
    """In the first start after that, by the same server; nothing is held against its modules."""
    text = "try:\n    import gone.of.all\nexcept ImportError:\n    print('gone')\n"
    pack = Pack(world, {}, text)
    gone = pack.site.parent / "gone"
    (gone / "of").mkdir(parents=True)
    (gone / "of/all.py").write_text("import pack\n", "utf-8")
    assert pack.start().end().code == 0
    shutil.rmtree(gone)
    ended = pack.start().end()
    assert "imported once" in ended.err
    assert (ended.code, pack.left_out(), pack.count_servers()) == (0, {}, 1), ended.err
    assert world.log(1) == b"gone\n"


def test_a_server_whose_words_make_no_sense_is_not_used(world: World) -> None:
    """An import has written into files that are not its own: the job starts cold."""
    noise = "for fd in range(10, 64 * IN_SERVER):\n"
    noise += "    try:\n        os.write(fd, b'noise\\n')\n    except OSError:\n        pass\n"
    pack = Pack(world, {"noisy": "import os\n" + noise}, "tell(RANK)\n")
    for _ in range(2):
        ended = pack.start().end()
        assert (ended.code, ended.left, pack.left_out()) == (0, [], {}), ended.err
    assert "not warm: the warm server tells what is no message" in ended.err
    assert len(world.events.all()) == 4
