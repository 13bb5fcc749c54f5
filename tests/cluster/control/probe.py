#!/usr/bin/python3
"""What a container does in tests of faults: the words of its command, one after another.

    command: [probe, sleep, "2", memory, "300", exit, "137"]

| words | what happens |
|---|---|
| say TEXT | the text is printed |
| env | the names of all variables are printed, never their values |
| show NAME | that variable is printed |
| sleep SECONDS | it waits; `sleep forever` until a signal |
| memory MIB | so much memory is taken, and used |
| resolve NAME SECONDS | the addresses of a name are printed; tried so long |
| listen PORT | connections are answered with this pod's name, in the background |
| connect HOST PORT SECONDS | what `listen` answers is printed; tried so long |
| fails TIMES FILE CODE | ends with CODE the first TIMES times, counted in the file |
| ignore | SIGTERM does nothing from here on; without it, exit code 143 |
| on-term CODE | SIGTERM ends with that code |
| message TEXT | the text becomes the pod's termination message |
| exit CODE | the end; 0 where nothing else ends it |
| kill SIGNAL | a child dies of that signal, and its code becomes ours: 128 + number |
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

TAKEN: list[bytearray] = []


def say(text: str) -> None:
    print(text, flush=True)


def env() -> None:
    for name in sorted(os.environ):
        say(name)


def show(name: str) -> None:
    say(f"{name}={os.environ.get(name, '(not set)')}")


def sleep(seconds: str) -> None:
    if seconds == "forever":
        while True:
            signal.pause()
    time.sleep(float(seconds))  # sleep: the test said so


def memory(mib: str) -> None:
    block = bytearray(int(mib) << 20)
    block[::4096] = b"x" * len(block[::4096])
    TAKEN.append(block)
    say(f"took {mib} MiB")


def retried(seconds: str, what: str, call: object) -> object:
    deadline = time.monotonic() + float(seconds)
    while True:
        try:
            return call()  # type: ignore[operator]
        except OSError as error:
            if time.monotonic() > deadline:
                say(f"{what}: {error}")
                sys.exit(3)
            time.sleep(0.2)  # sleep: DNS and listeners of other pods tell nobody


def resolve(name: str, seconds: str) -> None:
    found = retried(seconds, name, lambda: socket.getaddrinfo(name, 0, proto=socket.IPPROTO_TCP))
    say(f"{name} {' '.join(sorted({item[4][0] for item in found}))}")  # type: ignore[attr-defined]


def listen(port: str) -> None:
    server = socket.create_server(("", int(port)))

    def answer() -> None:
        while True:
            peer, _ = server.accept()
            with peer:
                peer.sendall(socket.gethostname().encode())

    threading.Thread(target=answer, daemon=True).start()


def connect(host: str, port: str, seconds: str) -> None:
    def ask() -> str:
        with socket.create_connection((host, int(port)), 2) as peer:
            return peer.makefile().read()

    say(f"{host} is {retried(seconds, host, ask)}")


def fails(times: str, file: str, code: str) -> None:
    with open(file, "a+", encoding="utf-8") as counted:
        counted.write("x")
        counted.flush()
        counted.seek(0)
        before = len(counted.read()) - 1
    if before < int(times):
        sys.exit(int(code))


def ignore() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def on_term(code: str) -> None:
    # os._exit: sys.exit would wait for nothing here, but a sleep in another frame may swallow it.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(int(code)))


def message(text: str) -> None:
    with open("/dev/termination-log", "w", encoding="utf-8") as file:
        file.write(text)


def leave(code: str) -> None:
    sys.exit(int(code))


def kill(name: str) -> None:
    number = int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    child = os.fork()
    if child == 0:
        signal.signal(number, signal.SIG_DFL) if number not in (9, 19) else None
        os.kill(os.getpid(), number)
        signal.pause()
    _, status = os.waitpid(child, 0)
    sys.exit(128 + os.WTERMSIG(status))


# word: what it does, how many words it takes
WORDS = {
    "say": (say, 1), "env": (env, 0), "show": (show, 1), "sleep": (sleep, 1),
    "memory": (memory, 1), "resolve": (resolve, 2), "listen": (listen, 1),
    "connect": (connect, 3), "fails": (fails, 3), "ignore": (ignore, 0), "on-term": (on_term, 1),
    "message": (message, 1), "exit": (leave, 1), "kill": (kill, 1),
}  # fmt: skip


def main(words: list[str]) -> None:
    # As process 1 of a container a signal without a handler would be ignored.
    on_term("143")
    while words:
        name = words.pop(0)
        if name not in WORDS:
            say(f"probe: no word {name!r}; use {', '.join(WORDS)}")
            sys.exit(2)
        do, count = WORDS[name]
        arguments, words = words[:count], words[count:]
        if len(arguments) < count:
            say(f"probe: {name} takes {count} words")
            sys.exit(2)
        do(*arguments)  # type: ignore[operator]


if __name__ == "__main__":
    main(sys.argv[1:])
