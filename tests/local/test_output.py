"""The output thread: real pipes in, real files and a console out."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from paddock.local.output.streams import LINE_LIMIT_BYTES, OutputThread, ProcessStream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS_MAX = 20.0
HALF_SECONDS = 0.002


class Desk:
    """An output thread with pipes for a console and for each process."""

    def __init__(self, folder: Path, *, folds: bool = False) -> None:
        self.folder = folder
        self.console, self.stdout = os.pipe()
        self.errors, self.stderr = os.pipe()
        self.output = OutputThread(stdout=self.stdout, stderr=self.stderr)
        self.streams: list[ProcessStream] = []
        self.writers: list[int] = []
        self._shown = b""
        if folds:
            self.output.fold(lambda lines, path: f"{lines} in {os.path.basename(path)}\n")
        self.output.start()
        (self._thread,) = [t for t in threading.enumerate() if t.name == "paddock-output"]

    def process(
        self, *, shown: bool = True, prefix: bytes = b"", file: str = "", header: bytes = b""
    ) -> int:
        """A new process's output; returns the descriptor it writes to."""
        rank = len(self.streams)
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        path = file or str(self.folder / f"workerlog.{rank}")
        file_fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stream = ProcessStream(("worker", rank), read_fd, file_fd, path, shown, prefix)
        stream.header = header
        self.streams.append(stream)
        self.writers.append(write_fd)
        self.output.add([stream])
        return write_fd

    def log(self, rank: int) -> bytes:
        """What the file of a process holds."""
        return (self.folder / f"workerlog.{rank}").read_bytes()

    def read_until(self, wanted: bytes) -> bytes:
        """Read the console until it has shown this."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while wanted not in self._shown:
            ready, _, _ = select.select([self.console], [], [], deadline - time.monotonic())
            assert ready, f"never saw {wanted!r}, but {self._shown[-500:]!r}"
            self._shown += os.read(self.console, 1 << 20)
        return self._shown

    def end(self) -> bytes:
        """All processes end; returns everything the console showed."""
        for fd in self.writers:
            os.close(fd)
        self.writers = []
        drained = threading.Event()
        collected = bytearray(self._shown)

        def collect() -> None:
            while data := os.read(self.console, 1 << 20):
                collected.extend(data)

        reader = threading.Thread(target=collect)
        reader.start()
        self.output.drain(self.streams, drained.set)
        assert drained.wait(WAIT_SECONDS_MAX)
        self.output.stop(WAIT_SECONDS_MAX)
        os.close(self.stdout)
        self.stdout = -1
        reader.join()
        return bytes(collected)

    def close(self) -> None:
        """Free every descriptor; ends the thread if the test has not."""
        if self.console >= 0:
            os.close(self.console)  # a thread that is stuck on it goes on
        self.output.stop(WAIT_SECONDS_MAX)
        self._thread.join(WAIT_SECONDS_MAX)
        rest = (self.stdout, self.errors, self.stderr, *self.writers)
        for fd in rest:
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """An output thread, ended after the test."""
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def short_desk(tmp_path: Path) -> Iterator[Desk]:
    """The same for a short console, in a pipe."""
    made = Desk(tmp_path, folds=True)
    yield made
    made.close()


def write_halves(fd: int, rank: int, lines: int) -> None:
    """Lines of 214 characters, each in two halves 2 ms apart."""
    for number in range(lines):
        line = f"{rank}:{number}:".ljust(213, str(rank)).encode() + b"\n"
        os.write(fd, line[:100])
        time.sleep(HALF_SECONDS)  # sleep: the fault under test is in between
        os.write(fd, line[100:])


@pytest.mark.parametrize("prefixed", [True, False])
def test_lines_written_in_halves_by_8_processes_are_not_torn(desk: Desk, prefixed: bool) -> None:
    """mpirun and torchrun tear 99 % and 2.5 % of these."""
    lines = 100
    threads = []
    for rank in range(8):
        fd = desk.process(prefix=b"[rank %d] " % rank if prefixed else b"")
        threads.append(threading.Thread(target=write_halves, args=(fd, rank, lines)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown = desk.end().decode().splitlines()
    wanted = []
    for rank in range(8):
        prefix = f"[rank {rank}] " if prefixed else ""
        wanted += [prefix + f"{rank}:{n}:".ljust(213, str(rank)) for n in range(lines)]
    torn = set(shown) - set(wanted)
    assert (torn, len(shown)) == (set(), 8 * lines)


def test_each_file_has_the_bytes_as_they_came(desk: Desk) -> None:
    """A log is evidence: binary, partial and invalid output is kept as it is."""
    data = bytes(range(256)) * 3 + "é\r\n\r50%".encode()[:-1]
    os.write(desk.process(prefix=b"[w] "), data)
    os.write(desk.process(shown=False), data)
    desk.end()
    assert (desk.log(0), desk.log(1)) == (data, data)


def test_a_file_that_others_have_written_to_gets_a_header(desk: Desk) -> None:
    """Below the log of last night; a new file begins with the process's own first line."""
    (desk.folder / "workerlog.1").write_bytes(b"old\n")
    for _ in range(2):
        os.write(desk.process(header=b"-- new --\n"), b"line\n")
    desk.end()
    assert (desk.log(0), desk.log(1)) == (b"line\n", b"old\n-- new --\nline\n")


def test_invalid_utf8_is_shown_with_replacement(desk: Desk) -> None:
    """A terminal must not be put in another state by a rank's binary output."""
    os.write(desk.process(), b"a\xff\xfeb\nnext\n")
    assert desk.end().decode("utf-8") == "a��b\nnext\n"


def test_a_character_in_two_writes_stays_one_character(desk: Desk) -> None:
    """Pipes cut where they like; a Chinese log must not fill with question marks."""
    fd = desk.process()
    text = "训练开始 é 😀 完成\n".encode()
    for i in range(len(text)):
        os.write(fd, text[i : i + 1])
        time.sleep(HALF_SECONDS)  # sleep: lets the output thread see single bytes
    assert desk.end() == text


def test_a_prompt_without_newline_is_shown(desk: Desk) -> None:
    """`input("continue? ")` of rank 0 waits for an answer to something one can read."""
    os.write(desk.process(), b"continue? ")
    assert desk.read_until(b"continue? ") == b"continue? "


def test_a_progress_bar_is_shown_as_it_moves(desk: Desk) -> None:
    """Without a prefix the bytes go to the terminal as they are."""
    fd = desk.process()
    for percent in (b"\r10%", b"\r50%", b"\r99%"):
        os.write(fd, percent)
        desk.read_until(percent)
    assert desk.end().startswith(b"\r10%\r50%\r99%")


def test_a_prefixed_progress_bar_shows_its_last_state(desk: Desk) -> None:
    """With several ranks on one console a redrawn line would erase the others'."""
    os.write(desk.process(prefix=b"[rank 0] "), b"\r10%\r50%\r100%\ndone\r\n")
    assert desk.end() == b"[rank 0] 100%\n[rank 0] done\n"


def test_a_pipe_gets_the_last_state_of_a_progress_line(short_desk: Desk) -> None:
    """In a file or a CI log redrawn states would stand side by side; a prompt is shown at once."""
    fd = short_desk.process()
    os.write(fd, b"continue? ")
    short_desk.read_until(b"continue? ")
    for part in (b"yes\n", b"epoch 1", b"\r", b"epoch 2", b"\r", b"epoch 3\ndone\r\n", b"\r7%"):
        os.write(fd, part)
        time.sleep(HALF_SECONDS)  # sleep: an unbuffered writer's parts come one by one
    assert short_desk.end() == b"continue? yes\nepoch 3\ndone\n7%\n"


def test_a_bar_of_many_states_is_one_line_for_each_rank(short_desk: Desk) -> None:
    """tqdm in all ranks, --tail all: no more than the last state, however long it takes."""
    bar = b"".join(b"\r%6d/100000 [%s]" % (n, b"#" * 60) for n in range(0, 100_000, 25))
    for rank in range(2):
        fd = short_desk.process(prefix=b"[rank %d] " % rank)
        os.write(fd, bar[:60_000])
        short_desk.output.do(lambda: None)
        os.write(fd, bar[-60_000:] + b"\n")
    lines = short_desk.end().splitlines()
    wanted = b" 99975/100000 [" + b"#" * 60 + b"]"
    assert sorted(lines) == [b"[rank %d] %s" % (rank, wanted) for rank in range(2)]


def test_framework_messages_are_one_line_and_whole_in_the_log(short_desk: Desk) -> None:
    """The line comes once, before the next one of the user's."""
    news = b"I1125 20:42:34.510118  2509 tcp_store.cc:336] create server\n"
    fd = short_desk.process()
    data = news * 2 + b"rank 0 is up\n" + news + b"done\n"
    os.write(fd, data)
    assert short_desk.end() == b"rank 0 is up\ndone\n"
    assert os.read(short_desk.errors, 1000) == b"3 in workerlog.0\n"
    assert short_desk.log(0) == data


def test_framework_messages_alone_are_told_at_the_end(short_desk: Desk) -> None:
    """Nothing is left out without a word, said once: when the first of the logs is closed."""
    news = b"W1125 20:42:34.510118  2509 tcp_utils.cc:109] Retry to connect\n"
    os.write(short_desk.process(), news[:-1])
    os.write(short_desk.process(prefix=b"[rank 1] "), news)
    assert short_desk.end() == b""
    said = os.read(short_desk.errors, 1000)
    assert (said[:5] in (b"1 in ", b"2 in "), said.count(b" in ")) == (True, 1)


def test_a_last_line_without_newline_is_shown_whole(desk: Desk) -> None:
    """The last words of a process that died are the ones that matter."""
    os.write(desk.process(prefix=b"[rank 0] "), b"one\ntwo")
    assert desk.end() == b"[rank 0] one\n[rank 0] two\n"


def test_a_line_longer_than_the_limit_loses_nothing(desk: Desk) -> None:
    """A base64 image on one line is cut into lines, not dropped, and memory stays bounded."""
    fd = desk.process(prefix=b"> ")
    data = b"x" * (3 * LINE_LIMIT_BYTES)
    writer = threading.Thread(target=os.write, args=(fd, data + b"\n"))
    writer.start()
    desk.read_until(b">")
    writer.join()
    assert desk.end().replace(b"\n", b"").replace(b"> ", b"") == data
    assert desk.log(0) == data + b"\n"


def test_own_lines_begin_on_a_line_of_their_own(desk: Desk) -> None:
    """A report after a progress bar must not be glued to it."""
    os.write(desk.process(), b"50%")
    desk.read_until(b"50%")
    desk.output.say("LAUNCH INFO\n")
    desk.end()
    assert os.read(desk.errors, 1000) == b"\nLAUNCH INFO\n"


def test_64_processes_are_all_read(desk: Desk) -> None:
    """More than one turn of epoll, every line in its own file and on the console once."""
    for rank in range(64):
        os.write(desk.process(prefix=b"[%d] " % rank), b"line of %d\n" % rank)
    shown = desk.end().splitlines()
    assert sorted(shown) == sorted(b"[%d] line of %d" % (r, r) for r in range(64))
    assert [desk.log(r) for r in range(64)] == [b"line of %d\n" % r for r in range(64)]


def test_a_closed_console_does_not_stop_the_files(desk: Desk) -> None:
    """`paddock launch ... | head -1`: the job goes on, the files are complete."""
    fd = desk.process()
    os.close(desk.console)
    desk.console = -1
    for number in range(2000):
        os.write(fd, b"%d\n" % number)
    for writer in desk.writers:
        os.close(writer)
    desk.writers = []
    drained = threading.Event()
    desk.output.drain(desk.streams, drained.set)
    assert drained.wait(WAIT_SECONDS_MAX)
    assert desk.log(0) == b"".join(b"%d\n" % n for n in range(2000))


def test_a_stuck_console_holds_back_only_what_is_shown(desk: Desk) -> None:
    """Ctrl-S in the terminal must not stop training on the other ranks."""
    shown, quiet = desk.process(), desk.process(shown=False)
    stop = threading.Event()
    os.set_blocking(shown, False)

    def flood() -> None:
        while not stop.is_set():
            try:
                os.write(shown, b"x" * 4096)
            except BlockingIOError:
                stop.wait(0.01)

    flooder = threading.Thread(target=flood)
    flooder.start()
    data = b"".join(b"line %d\n" % n for n in range(400_000))
    view = memoryview(data)
    while view:  # blocks for ever if nobody reads; the test's limit ends that
        view = view[os.write(quiet, view) :]
    stop.set()
    flooder.join()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(desk.log(1)) < len(data) and time.monotonic() < deadline:
        time.sleep(0.01)  # sleep: a file tells nobody that it has grown
    assert desk.log(1) == data


def test_a_console_that_drains_again_gets_everything(desk: Desk) -> None:
    """What was held back is late, not lost, and in order."""
    fd = desk.process()
    data = b"".join(b"line %d\n" % n for n in range(500_000))

    def feed() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    feeder = threading.Thread(target=feed)
    feeder.start()
    select.select([desk.console], [], [], WAIT_SECONDS_MAX)
    # Nobody reads until the thread has as much as it takes; then everything is wanted.
    feeder.join(0.5)
    assert feeder.is_alive(), "the console never held anything back"
    reader_done = threading.Event()
    threading.Thread(target=lambda: (feeder.join(), reader_done.set())).start()
    desk.read_until(b"line 499999\n")
    assert reader_done.wait(WAIT_SECONDS_MAX)
    assert desk.end() == data
    assert desk.log(0) == data


def test_a_full_disk_is_reported_once_and_the_console_goes_on(desk: Desk) -> None:
    """Training is worth more than its log (/dev/full answers ENOSPC to every write)."""
    fd = desk.process(file="/dev/full")
    for number in range(3):
        os.write(fd, b"step %d\n" % number)
        desk.read_until(b"step %d\n" % number)
    desk.end()
    said = os.read(desk.errors, 1 << 16).decode()
    assert said.count("No space left on device") == 1
    assert "output of rank 0 is being lost, the job goes on" in said


def test_the_thread_ends_although_the_console_is_stuck(desk: Desk) -> None:
    """The end of a job must not wait for somebody to press Ctrl-Q."""
    fd = desk.process()
    os.set_blocking(fd, False)
    try:
        for _ in range(1000):
            os.write(fd, b"x" * 4095 + b"\n")
    except BlockingIOError:
        pass
    began = time.monotonic()
    desk.output.stop(0.5)
    assert time.monotonic() - began < WAIT_SECONDS_MAX


def test_the_last_bytes_are_kept_for_evidence(desk: Desk) -> None:
    """Whatever came last is what the report quotes, traceback time included."""
    fd = desk.process(shown=False)
    os.write(fd, b"early\n" * 10_000)
    os.write(fd, b"Traceback (most recent call last):\nValueError: 7\n")
    seen: list[tuple[bytes, int]] = []
    came = threading.Event()

    def done(tail: bytes, error_at_ns: int) -> None:
        seen.append((tail, error_at_ns))
        came.set()

    desk.output.peek(desk.streams[0], done)
    assert came.wait(WAIT_SECONDS_MAX)
    tail, error_at_ns = seen[0]
    assert tail.endswith(b"ValueError: 7\n") and len(tail) <= 1 << 16
    assert 0 < error_at_ns <= time.monotonic_ns()
