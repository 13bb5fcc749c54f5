"""The pages of `paddock web`, without a browser: what they hold, and what they must not hold."""

from __future__ import annotations

import os
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

import paddock.web
from paddock.backends.common.news import with_news
from paddock.backends.kubernetes.parse import BY_US, LOST, UNSEEN
from paddock.backends.launches import KILLED
from paddock.backends.slurm.parse import REASONS, STATES, _reason
from paddock.backends.ssh.state import TOLD
from paddock.backends.text import STEPS_FROM, word_of
from paddock.backends.types import JobStatus, LogChunk, LogQuery, State
from paddock.cli.main import run as run_command
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict, decide_restart
from paddock.core.job import Restart
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.local.report.text import cancel_text, culprit_text, error_text
from paddock.local.runs.entry import registry_folder
from paddock.watch import svg
from paddock.watch.bill import KINDS
from paddock.watch.slow import MEASURES
from paddock.web.follow import LogFollower
from paddock.web.guard import EARLIER, UNKNOWN
from paddock.web.pages import NOTICES, render, report_page, run_values
from paddock.web.runs import RunSource, timeline_rows
from paddock.web.texts import _catalogue, in_chinese
from web.made import (
    BEGAN,
    COOKIE,
    PORT,
    app_of,
    ask,
    history_rows,
    make_run,
    page,
    source_of,
    stall_row,
)

FOLDER = Path(paddock.web.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
ENGLISH = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){2,}")  # a sentence, or a part of one
LETTERS = re.compile(r"[A-Za-z]{3,}")
HOSTILE = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """The tags of a page, its words, and its addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            v or "" for k, v in attrs if k in ("href", "src", "action", "formaction")
        ]
        self.handlers += [k for k, _ in attrs if k.startswith("on") or k == "style"]


def a_site(state: Path) -> list[str]:
    """Runs of all kinds, and the addresses of all their pages."""
    logs = {0: [(1.0, b"hello\n")], 1: [(1.0, b"hello\n"), (59.0, b"Traceback (most recent call "
                b"last):\n  File x\nValueError: <b>bad</b>\n")]}  # fmt: skip
    rows = [*history_rows(), stall_row(1, [0])]
    make_run(state, "train-1", rows, logs)
    make_run(state, "train-2", history_rows(), logs, end="succeeded", why="")
    make_run(state, "old-3")
    runs = ("train-1", "train-2", "old-3")
    pages = [f"/runs/{run}{more}" for run in runs for more in ("", "/failure", "/report")]
    return ["/", "/compare?run=train-1&run=train-2", "/compare?run=train-1&run=train-2&by=step",
            "/compare", *pages, "/runs/train-1/logs", "/runs/train-1/logs?at=failure",
            "/runs/train-1/logs?rank=1&q=HELLO&fold=0"]  # fmt: skip


# ---------------------------------------------------------------------------------------- texts


def test_every_text_of_the_templates_has_its_chinese() -> None:
    """A page half in one language looks broken; and no template has a word outside of t()."""
    for path in TEMPLATES:
        source = path.read_text("utf-8")
        for each in re.findall(r"\bt\(([^|()]*)\)", source):
            for text in re.findall(r"'([^']*)'", each):
                assert in_chinese(text) != text or text == "CPU", (path.name, text)
        words = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<style>.*?</style>|<[^>]*>", " ", source, flags=re.S)
        left = set(LETTERS.findall(words)) - {"Paddock", "Enter", "default", "none", "unsafe"}
        assert not left, path.name
    for text in (
        *NOTICES.values(),
        *KINDS,
        "allocated",
        "code there",
        *map(word_of, get_args(State)),
        EARLIER,
        UNKNOWN,
    ):
        assert in_chinese(text) != text, text


def test_sentences_that_come_with_a_run_have_their_chinese() -> None:
    """Why it failed, what it waits for, who may be slow: as the code makes them."""
    ends = [Exit("worker", 3, 1, "node-b", 1, 1, pid=9, **more) for more in (
        {"code": 7}, {"signal": 9, "cause": "signal"}, {"signal": 9, "cause": "oom"},
        {"signal": 9, "cause": "oom", "memory": "2.0 GiB"}, {"code": 1, "timed_out": True},
        {"cause": "not-found", "tail": "x"})]  # fmt: skip
    texts = [culprit_text(each) for each in ends]
    texts += [f"{each.name} {each.how}" for each in ends]
    texts += [error_text(replace(ends[0], code=code, tail=tail, attempt=attempt))
              for code, tail in ((1, 'File "a", line 1\nKeyError: 7'), (7, "x"))
              for attempt in (0, 2)]  # fmt: skip
    texts += [why for _, why in STATES.values() if why]
    texts += [_reason(word) for word, why in REASONS.items() if why]
    texts += [KILLED, TOLD, UNSEEN, BY_US, LOST, *STEPS_FROM.values(),
              "read from the log, lines as of tqdm"]  # fmt: skip
    texts += [f"ranks 0-2,5 on node-b may be slow: {text.format(1.5, 2)}"
              for *_, text in MEASURES.values()]  # fmt: skip
    for policy in (Restart(2), Restart(2, restart_on=("oom",))):
        texts.append(decide_restart(policy, ends[0], used=2, ran_seconds=0.0).reason)
    verdict = Verdict("cancel", 143, "node a was told to stop", tuple(ends))
    texts += [cancel_text(verdict), cancel_text(verdict, is_alone=True)]
    texts += [
        "waiting for node3: copying code 40 %",
        "copying code",
        "reading code",
        "connecting",
        "connecting to 3 hosts",
        "ranks 1-3 are stopped",
        "a: ranks 1-3 are stopped",
    ]
    left = [text for text in texts if text and ENGLISH.search(in_chinese(text))]
    assert left == []


@pytest.mark.parametrize("text", ["a; " * 600, "a; " * 3000, "rank 1 on " * 199])
def test_a_reason_of_any_length_breaks_no_page(text: str) -> None:
    assert len(in_chinese(text)) <= len(text)


def test_all_of_the_catalogue_is_well_formed() -> None:
    """A Chinese text takes what stands in its English one, and each is Chinese."""
    for english, chinese in _catalogue()[0].items():
        gaps = len(re.findall(r"#|\{\}", english))
        assert chinese.format(*["x"] * gaps), english
        assert chinese.count("{") == gaps or "{0}" in chinese or "{1}" in chinese, english
        is_name = english in ("Rank", "Ranks", "rank # {}", "server # {}")
        assert is_name or re.search("[\u4e00-\u9fff]", chinese), english


@pytest.mark.parametrize(
    ("header", "language"), [("zh-CN,zh;q=0.9", "zh"), ("de,en;q=0.5,zh;q=0.1", "en"), ("", "en")]
)
def test_a_page_has_the_language_of_the_browser_until_the_reader_chooses(
    tmp_path: Path, header: str, language: str
) -> None:
    """The choice stays, in a cookie."""
    host = {"host": f"127.0.0.1:{PORT}", "accept-language": header}
    app = app_of(tmp_path)
    assert f'lang="{language}"' in ask(app, "/", headers={**host, "cookie": COOKIE})[2]
    other = "en" if language == "zh" else "zh"
    answer = ask(app, f"/?lang={other}", headers={**host, "cookie": COOKIE})
    assert f'<html lang="{other}"' in answer[2]
    kept = answer[1]["set-cookie"].partition(";")[0]
    again = ask(app, "/", headers={**host, "cookie": f"{COOKIE}; {kept}"})[2]
    assert f'<html lang="{other}"' in again


# ---------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize("number", range(16))
def test_a_page_has_no_script_no_style_and_no_address_elsewhere(
    tmp_path: Path, number: int
) -> None:
    """The policy would stop them; no request leaves the machine."""
    address = a_site(tmp_path)[number]
    read = Reader(page(app_of(tmp_path), address))
    is_report = address.endswith("/report")
    assert read.tags.count("script") == (0 if is_report else 1)
    assert not read.handlers
    assert [a for a in read.addresses if not a.startswith(("/", "?")) or a.startswith("//")] == []
    assert not is_report or "link" not in read.tags


def test_the_page_of_a_run_shows_ranks_curves_and_the_bill(tmp_path: Path) -> None:
    """All of it from the history alone."""
    a_site(tmp_path)
    body = page(app_of(tmp_path), "/runs/train-1")
    assert "rank 1 (pid 101) on node-a exited with code 7" in body
    assert '/runs/train-1/logs?rank=1">rank 1</a>' in body
    assert "19/20" in body and "50.0 MiB" in body and "node-a" in body
    assert body.count('<path class="line c0"') == 4  # loss, steps/s, cores, memory
    assert "rank-hours" in body
    assert "1 × <code>read &lt;b&gt; at data.py:12</code> (rank 1)" in body


def test_the_timeline_has_a_row_for_each_node_of_an_attempt(tmp_path: Path) -> None:
    """Of many nodes only the slowest: the one whose first step came last."""
    for nodes, labels in ((2, ["Attempt 0 · node0", "Attempt 0 · node1"]),
                          (40, ["Attempt 0 · node39 (Slowest of 40)"])):  # fmt: skip
        begin = {"kind": "begin", "at": BEGAN, "version": 1}
        rows: list[dict[str, object]] = []
        for n in range(nodes):
            node = {"node": f"node{n}"}
            rows += [
                {**begin, **node, "kind": "allocated", "at": BEGAN - 20},
                {**begin, **node, "kind": "code_there", "at": BEGAN - 20 + n % 30},
                {**begin, **node},
                {**node, "kind": "attempt", "at": BEGAN + 2, "attempt": 0,
                 "ranks": [["worker", n, 100, ""]]},
                {**node, "kind": "progress", "at": BEGAN + 3 + n, "rank": n, "step": 1,
                 "profile": "plain"},
            ]  # fmt: skip
        rows += [{"kind": "attempt_end", "at": BEGAN + 50, "node": "node0", "attempt": 0}]
        rows.sort(key=lambda row: row["at"])  # type: ignore[arg-type,return-value]
        run = make_run(tmp_path, f"train-{nodes}", rows)
        found, spans = timeline_rows(source_of(tmp_path).history(run), BEGAN + 50, str.capitalize)
        assert [row.label for row in found] == labels
        assert spans == 70
        assert [kind for kind, *_ in found[-1].spans] == [
            "allocated", "code_there", "start", "warm-up", "useful",
        ]  # fmt: skip


def test_the_first_page_tells_the_progress_of_the_first_rank(tmp_path: Path) -> None:
    """As `paddock top` and `list` do: ranks differ in their loss, and the last row is of any."""
    rows = history_rows(3)
    for row in rows:
        if row["kind"] == "progress":
            row["values"] = {"loss": 1.5 + row["rank"]}
    run = make_run(tmp_path, "train-1", rows)
    state = JobStatus("running", BEGAN)
    assert source_of(tmp_path).progress(run, state) == "19/20 · loss 1.5 · 1 steps/s"


def test_a_run_that_stalls_is_shown_as_stalled_with_its_suspect(tmp_path: Path) -> None:
    """On its own page and on the first: "running" is what a reader must not see at night."""
    held = {"kind": "held", "at": BEGAN + 31, "rank": 0}  # meanwhile its user looks into one
    rows = [*history_rows(2), stall_row(1, [0]), held]
    run = make_run(tmp_path, "train-1", rows)
    source = source_of(tmp_path)
    state = with_news(JobStatus("running", BEGAN + 60), [("", rows[-2:])])
    body = render("run.html", "en", can_stop=False, is_asked=False, others=[],
                  **run_values(run, state, source.history(run), "en"))  # fmt: skip
    assert '<span class="badge stalled">stalled</span>' in body
    assert '<p class="why">stalled for 38s, the others wait for rank 1: ' in body
    assert body.count('<span class="badge failed">suspect</span>') == 1
    values = {"rows": [(run, state, "")], "hidden": 0, "search": "", "damaged": 0, "problem": ""}
    body = render("runs.html", "en", can_stop=False, others=[], **values)
    assert '<span class="badge stalled">stalled</span>' in body
    assert "the others wait for rank 1" in body


def test_the_page_of_a_failure_names_the_culprit_and_shows_its_traceback(tmp_path: Path) -> None:
    """And the stacks that were taken, with the suspect."""
    a_site(tmp_path)
    body = page(app_of(tmp_path), "/runs/train-1/failure")
    assert "ValueError: &lt;b&gt;bad&lt;/b&gt;" in body
    assert "Suspects: rank 1" in body
    assert "all_reduce at train.py:88" in body
    assert "This run has not failed." in page(app_of(tmp_path), "/runs/train-2/failure")


def test_stacks_of_the_survivors_are_shown_in_full(tmp_path: Path) -> None:
    """They were taken before the attempt was stopped, and say why."""
    row = {"kind": "stacks", "at": BEGAN + 9, "why": "rank 1 exited with code 7",
           "groups": [[[0, 2], "all_reduce at train.py:88"]],
           "stacks": [["all_reduce (dist.py:4)", "main <b> (train.py:88)"]]}  # fmt: skip
    make_run(tmp_path, "train-1", [*history_rows(), row])
    body = page(app_of(tmp_path), "/runs/train-1/failure")
    assert "Stacks · rank 1 exited with code 7" in body
    assert "all_reduce (dist.py:4)\nmain &lt;b&gt; (train.py:88)" in body


def test_logs_jump_to_the_failure(tmp_path: Path) -> None:
    """Lines that came much later are not shown, those before it are."""
    logs = {0: [(n, b"line %d.\n" % n) for n in range(0, 120, 5)]}
    make_run(tmp_path, "train-1", logs=logs)
    body = page(app_of(tmp_path), "/runs/train-1/logs?at=failure")
    assert "line 60." in body and "line 65." not in body


def test_curves_of_runs_lie_over_one_another(tmp_path: Path) -> None:
    """By time and by step; a run keeps its colour, also where it lacks a value."""
    a_site(tmp_path)
    for by in ("time", "step"):
        body = page(app_of(tmp_path), f"/compare?run=old-3&run=train-1&run=train-2&by={by}")
        for colour in ("c1", "c2"):
            assert f'<path class="line {colour}" d="M' in body
        assert '<path class="line c0" d=""' in body


@pytest.mark.parametrize("path", ["/runs/nothing", "/runs/nothing/logs", "/compare?run=nothing"])
def test_a_run_that_is_not_there_is_a_sentence(tmp_path: Path, path: str) -> None:
    """A link of yesterday, to a run that was deleted."""
    status, _, body = ask(app_of(tmp_path), path)
    assert status == 404
    assert "no run &#39;nothing&#39; is recorded here" in body


def test_bad_ranks_are_a_sentence(tmp_path: Path) -> None:
    """They were typed by hand."""
    make_run(tmp_path, "train-1")
    status, _, body = ask(app_of(tmp_path), "/runs/train-1/logs?rank=x<b>")
    assert status == 400
    assert "not a list of ranks" in body and "<b>" not in body


def test_damaged_records_and_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    """A launcher was killed while it wrote, or a disk was full."""
    rows = history_rows()
    make_run(
        tmp_path, "train-1", rows, torn=b'{"kind": "sam\x00ple"}\n[]\n{"kind": "progress", "at'
    )
    broken = Path(registry_folder({"XDG_STATE_HOME": str(tmp_path)})) / "broken-1"
    broken.mkdir()
    (broken / "run.json").write_text("{", "utf-8")
    app = app_of(tmp_path)
    assert "1 records cannot be read" in page(app, "/")
    assert "3 damaged rows of the history were skipped" in page(app, "/runs/train-1")


@pytest.mark.parametrize(
    ("file", "field"),
    [("run.json", "created_at"), ("events.jsonl", "at"), ("status.json", "attempt"),
     ("status.json", "failed_at")],
)  # fmt: skip
@pytest.mark.parametrize("number", ["1e300", "-1e300", "1" + "0" * 400, "NaN"])
def test_a_record_with_an_absurd_number_breaks_no_page(
    tmp_path: Path, file: str, field: str, number: str
) -> None:
    """Nor the page of all runs."""
    run = make_run(tmp_path, "train-1", history_rows())
    make_run(tmp_path, "train-2")
    path = run.folder / file
    text = re.sub(f'"{field}": [0-9.]+', f'"{field}": {number}', path.read_text("utf-8"))
    path.write_text(text, "utf-8")
    app = app_of(tmp_path)
    assert "train-2" in page(app, "/")
    for each in ("", "/failure", "/logs?at=failure", "/report"):
        assert ask(app, f"/runs/train-1{each}")[0] in (200, 404), each


@pytest.mark.parametrize("field", ["suspects", "differing", "groups"])
def test_ranks_that_are_no_list_break_no_page(tmp_path: Path, field: str) -> None:
    row = {**stall_row(1, [0]), field: ""}
    run = make_run(tmp_path, "train-1", [*history_rows(2), row])
    found = source_of(tmp_path).history(run)
    assert found.history.skipped == 1
    run_values(run, JobStatus("running", BEGAN, is_stalled=True), found, "en")


def test_a_run_that_has_the_id_of_one_that_was_deleted_is_another(tmp_path: Path) -> None:
    """A page is open all the while, and the new history may have the old one's inode."""
    source = source_of(tmp_path)
    for steps, end in ((20, "failed"), (30, "succeeded")):
        run = make_run(tmp_path, "train-1", history_rows(steps=steps), end=end)
        run.created_at += steps
        run.keep()
        run = source.run("train-1")
        assert source.state(run).state == end
        assert source.progress(run, source.state(run)).startswith(f"{steps - 1}/{steps} ")
        view = source.history(run).view
        assert view is not None and view.ranks[0].steps == steps
        shutil.rmtree(run.folder)
        shutil.rmtree(tmp_path / "log")


def test_a_history_of_a_newer_paddock_says_so(tmp_path: Path) -> None:
    """Rows of unknown kinds are not shown, and do no harm."""
    rows = [*history_rows(version=99), {"kind": "hologram", "at": BEGAN + 9, "depth": 3}]
    make_run(tmp_path, "train-1", rows)
    assert "A newer Paddock wrote this history" in page(app_of(tmp_path), "/runs/train-1")


@pytest.mark.parametrize(
    "row",
    [{"kind": "attempt"}, {"kind": "attempt", "attempt": [], "ranks": 3}, {"kind": "stall"},
     {"kind": "progress", "rank": {}, "values": 3}, {"kind": "sample", "rank": 0, "cpu": "x"},
     {"kind": "stall", "seconds": 1, "groups": 7}, {"kind": "stacks", "groups": [[1]]},
     {"kind": "stall", "seconds": "x", "suspects": 5}, {"kind": "waited"},
     {"kind": "progress", "rank": 0, "groups": 7}, {"kind": "stacks", "groups": [["", "x"]]}],
)  # fmt: skip
def test_rows_with_other_fields_break_no_page(tmp_path: Path, row: dict[str, object]) -> None:
    """A newer Paddock, or a script that writes what it likes."""
    make_run(tmp_path, "train-1", [*history_rows(), {"at": BEGAN + 40, **row}])
    app = app_of(tmp_path)
    for path in ("/", "/runs/train-1", "/runs/train-1/failure", "/compare?run=train-1"):
        assert "train-1" in page(app, path)


def test_a_clock_that_jumps_back_breaks_no_page(tmp_path: Path) -> None:
    """Somebody sets it while the run goes: what came later stays later, and nothing is below 0."""
    rows = [{**row, "at": row["at"] - 3600 * (row["at"] > BEGAN + 9)} for row in history_rows()]
    rows.append({"kind": "end", "at": BEGAN - 3000})
    make_run(tmp_path, "train-1", rows)
    app = app_of(tmp_path)
    for path in ("/runs/train-1", "/runs/train-1/report", "/compare?run=train-1", "/"):
        body = page(app, path)
        assert "train-1" in body
        assert not re.search(r'(?:width|height)="-', body), path
    assert "19/20" in page(app, "/runs/train-1") and "useful 9" in page(app, "/runs/train-1")


def test_hostile_text_in_records_is_text(tmp_path: Path) -> None:
    """A history, a reason and a command come from hosts and scripts."""
    rows = history_rows()
    rows[0]["host"] = rows[-1]["profile"] = HOSTILE
    values = {HOSTILE: 1.0, "loss": float("nan")}
    rows.append({"kind": "progress", "at": BEGAN + 50, "rank": 0, "profile": HOSTILE,
                 "values": values, "unit": HOSTILE, "rate": 1.0})  # fmt: skip
    rows.append({"kind": "stall", "at": BEGAN + 51, "seconds": 1.0, "suspects": [0],
                 "groups": [[[0], HOSTILE]]})  # fmt: skip
    rows.append({"kind": "exit", "at": BEGAN + 52, "rank": 0, "how": HOSTILE})
    bad = "\x1b[2J\u202e\ud800"
    rows.append({"kind": bad, "at": BEGAN + 53, "groups": [[[0], bad]], "why": bad})
    rows.append({"kind": "progress", "at": BEGAN + 54, "rank": 0, "profile": bad, "rate": 1.0,
                 "unit": bad, "values": {bad: 2.0}})  # fmt: skip
    rows.append({"kind": "seen", "at": BEGAN + 55, "name": bad, "text": f"https://a/{bad}"})
    run = make_run(tmp_path, "train-1", rows, {1: [(1.0, HOSTILE.encode() + b"\n")]},
                   why=f"rank 1 {HOSTILE}")  # fmt: skip
    run.command = HOSTILE
    run.keep()
    app = app_of(tmp_path)
    for path in ("", "/logs", "/failure", "/report"):
        body = page(app, f"/runs/train-1{path}")
        assert "<script>alert" not in body
        assert "&lt;script&gt;alert" in body
        assert not {"\x1b", "\u202e"} & set(body), path
    assert "<script>alert" not in page(app, f"/runs/train-1/logs?q={HOSTILE}")
    assert "<script>alert" not in page(app, "/")


def test_no_page_has_a_value_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the server either."""
    monkeypatch.setenv("API_KEY", "tops3cret-value-1")
    monkeypatch.setenv("UNSUSPICIOUS", "another-value-of-mine-2")
    addresses = a_site(tmp_path)
    run = make_run(tmp_path, "train-4", history_rows())
    run.keep(env={"TOKEN": "tops3cret-value-3"}, environment=["API_KEY"])
    addresses += ["/runs/train-4", "/runs/train-4/logs", "/runs/train-4/report"]
    secrets = ["tops3cret", "another-value-of-mine"]
    secrets += [v for v in os.environ.values() if len(v) > 24 and not v.startswith("/")]
    app = app_of(tmp_path)
    for address in addresses:
        body = page(app, address)
        assert [text for text in secrets if text in body] == []


def test_a_thousand_ranks_have_a_row_each(tmp_path: Path) -> None:
    """In one page, whatever their state."""
    make_run(tmp_path, "train-1", history_rows(ranks=1000, steps=2))
    assert page(app_of(tmp_path), "/runs/train-1").count("data-row") == 1000


# ------------------------------------------------------------------------------- report, charts


def test_a_report_is_one_file_that_needs_no_other(tmp_path: Path) -> None:
    """It is sent by mail, and opened on a machine without Paddock."""
    a_site(tmp_path)
    source = source_of(tmp_path)
    body = report_page(source, source.run("train-1"), "en")
    read = Reader(body)
    assert "script" not in read.tags and "link" not in read.tags and "img" not in read.tags
    assert ".badge.failed" in body and "ValueError" in body and "<svg" in body
    assert "default-src 'none'" in body
    assert "<td>rank 1</td>" in body and 'href="/' not in body  # links lead nowhere there
    assert '<html lang="zh"' in report_page(source, source.run("train-1"), "zh")


def test_a_report_is_utf_8_everywhere_and_a_bad_name_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    make_run(tmp_path, "train-1", history_rows())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert run_command(["report", "train-1", "--lang", "zh", "--out", "-"]) == 0
    assert "时间线".encode() in capfdbinary.readouterr().out
    name = "a" * 300
    assert run_command(["report", "train-1", "--out", name]) == 2
    assert f"--out {name}: ".encode() in capfdbinary.readouterr().err


def test_a_report_of_a_run_without_logs_says_why(tmp_path: Path) -> None:
    """They were removed; the history went with them."""
    run = make_run(tmp_path, "train-1")
    run.keep(logs=str(tmp_path / "gone"))
    source = source_of(tmp_path)
    assert "were removed" in report_page(source, source.run("train-1"), "en")


@pytest.mark.parametrize(
    "points",
    [(), ((0.0, 1.0),), ((0.0, 1.0), (1.0, 1.0)), ((0.0, float("nan")), (1.0, 2.0), (2.0, 1e300)),
     ((0.0, -1e-300), (1e9, float("inf"))), ((0.0, 0.0), (0.0, 5.0)),
     ((0.0, 1.7e308), (1.0, -1.7e308)), ((0.0, 0.0), (1.0, 5e-324))],
)  # fmt: skip
def test_a_chart_is_drawn_of_any_numbers(points: tuple[tuple[float, float], ...]) -> None:
    """A loss becomes NaN or infinite on bad days, and those are the days a chart is looked at."""
    text = svg.chart("a < b", [svg.ChartLine("x & y", points)], empty="nothing")
    assert ElementTree.fromstring(text).get("aria-label") == "a < b"
    assert "nan" not in text.replace("nothing", "") and "inf" not in text


def test_a_gap_in_a_curve_stays_a_gap() -> None:
    """A line over it would show values that never were."""
    points = ((0.0, 1.0), (1.0, 2.0), (2.0, float("nan")), (3.0, 1.0), (4.0, 2.0))
    path = re.search(r' d="([^"]*)"', svg.chart("", [svg.ChartLine("", points)]))
    assert path is not None and path[1].count("M") == 2


# --------------------------------------------------------------------------------------- states


def test_a_host_that_is_silent_holds_up_no_page(tmp_path: Path) -> None:
    """Its run is shown as unknown until it answers."""
    from threading import Event

    from paddock.backends.registry import Registry
    from paddock.backends.types import Handle, JobStatus

    answer = Event()

    def ask_slowly(runs: object) -> list[JobStatus]:
        answer.wait(20)
        return [JobStatus("running", time.time())]

    env = {"XDG_STATE_HOME": str(tmp_path)}
    run = Registry(env).add("far", Handle("ssh", "lab", "far-1"), "train.py", 1)
    source = RunSource(env, ask_slowly)
    assert source.state(run).state == "unknown"
    answer.set()
    deadline = time.monotonic() + 10
    while source.state(run).state == "unknown" and time.monotonic() < deadline:
        time.sleep(0.01)  # sleep: the answer comes in another thread
    assert source.state(run).state == "running"


def test_a_report_waits_for_its_hosts(tmp_path: Path) -> None:
    """It is written once: a state that is not known yet would stay so."""
    from paddock.backends.registry import Registry
    from paddock.backends.types import Handle, JobStatus

    def ask_slowly(runs: object) -> list[JobStatus]:
        time.sleep(1.0)  # sleep: longer than a page waits
        return [JobStatus("running", time.time())]

    env = {"XDG_STATE_HOME": str(tmp_path)}
    run = Registry(env).add("far", Handle("ssh", "lab", "far-1"), "train.py", 1)
    source = RunSource(env, ask_slowly, first_seconds=30.0)
    assert source.state(run).state == "running"


def test_new_lines_come_once_to_each_viewer(tmp_path: Path) -> None:
    """Two viewers share a reader, each with its own place."""
    chunks = [LogChunk(5, "a rank 0", b"old\n"), LogChunk(20, "a rank 0", b"one\ntwo\n"),
              LogChunk(30, "a rank 10", b"three\n")]  # fmt: skip
    follower = LogFollower(lambda: iter(chunks))
    follower._thread.join(10)
    for _ in range(2):
        lines, left_out, number = follower.after(0, 10, (), "")
        assert [line.text for line in lines] == ["one", "two", "three"]
        assert (left_out, number) == (0, 4)
        assert follower.after(number, 10, (), "")[0] == []
    assert [line.text for line in follower.after(0, 10, (0,), "")[0]] == ["one", "two"]
    assert [line.text for line in follower.after(0, 10, (), "TWO")[0]] == ["two"]
    assert [line.text for line in follower.after(3, 10, (), "")[0]] == ["three"]


def test_lines_that_come_too_fast_are_counted(tmp_path: Path) -> None:
    """The newest are shown, and how many were left out."""
    data = b"".join(b"line %d\n" % n for n in range(30_000))
    follower = LogFollower(lambda: iter([LogChunk(20, "a rank 0", data)]))
    follower._thread.join(10)
    lines, left_out, number = follower.after(0, 10, (), "")
    assert lines[-1].text == "line 29999"
    assert len(lines) + left_out in (20_000, 30_000)
    lines, left_out, _ = follower.after(100, 10, (), "")
    assert (len(lines) + left_out, number) == (29_900, 30_000)


def test_a_log_that_cannot_be_followed_ends_the_follower(tmp_path: Path) -> None:
    """The next look begins a new one."""

    def refuse(_: LogQuery | None = None) -> object:
        raise UsageError("the logs were removed")

    follower = LogFollower(refuse)  # type: ignore[arg-type]  # it never returns
    follower._thread.join(10)
    assert follower.is_over and follower.is_stale
