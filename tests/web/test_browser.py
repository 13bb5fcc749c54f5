"""The pages of `paddock web` in a real browser, with real launches beside them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from paddlejobs import job, role
from paddock.backends.launches import KILLED
from paddock.core.attempt.exits import Exit
from paddock.local.report.text import culprit_text
from paddock.web.pages import STATIC
from web.browser import Browser, browser, need_browser, quit_browsers, serving, training
from web.made import BEGAN, history_rows, make_run, stall_row

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real, pytest.mark.limit(240)]

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"
AS_SVG = """
const [css, width, height] = arguments;
const body = new XMLSerializer().serializeToString(document.body)
  .replace(/<(button|script|dialog)[^]*?<\\/\\1>/g, "");
const style = `<style><![CDATA[${css} header { position: static }]]></style>`;
return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}">`
  + `<foreignObject width="${width}" height="${height}"><html xmlns="http://www.w3.org/1999/xhtml">`
  + `<head>${style}</head>${body}</html></foreignObject></svg>\\n`;
"""
STEPS = """
import os, sys, time
rank = int(os.environ["RANK"])
print("the same line of all", flush=True)
for step in range(100_000):
    print(f"step {step} loss {3 / (step + 1):.4f}", flush=True)
    if step == 3 and rank == 0:
        sys.stdout.write("<script>window.pwned = 1</script>\\n<img src=x onerror='pwned = 1'>\\n")
        sys.stdout.write("\\x1b]0;title\\x07\\x1b[2J\\x1b[31mred\\x1b[0m \\u202ereversed\\n")
        sys.stdout.write("A" * 10_000_000 + "\\nafter the long line\\n")
        sys.stdout.flush()
    time.sleep(0.1)
"""


@pytest.fixture(scope="module", autouse=True)
def _browsers() -> Iterator[None]:
    need_browser()
    yield
    quit_browsers()


def base_of(address: str) -> str:
    """The address of a server, without path and token."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def sign_in(page: Browser, address: str) -> None:
    """Open the address that `paddock web` printed; it leads to the first page."""
    page.open(address)
    page.wait(lambda: page.text("h1"), "the first page")
    assert "token" not in page.driver.current_url


def is_ours(page: Browser, address: str) -> bool:
    """The page has asked this server only."""
    return all(each.startswith(base_of(address)) for each in page.requests())


def first_run(page: Browser) -> str:
    """The id of the run in the first row, once there is one."""
    return str(page.wait(lambda: page.text("a[data-row]"), "a run"))


@contextmanager
def seen_run(folder: Path, name: str) -> Iterator[tuple[Browser, str, str]]:
    """A page of a run of two ranks that goes on: the browser, the server's address, the run."""
    with (
        serving(folder) as address,
        training(folder, STEPS, "--nproc-per-node", "2"),
        browser() as page,
    ):
        sign_in(page, address)
        run = first_run(page)
        page.open(f"{base_of(address)}/runs/{run}/{name}")
        yield page, address, run


def test_a_run_is_seen_while_it_goes(tmp_path: Path) -> None:
    """From the first page to a rank's log: what moves does so by itself, and asks nobody else."""
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        assert "No runs yet" in page.text()
        with training(tmp_path, STEPS, "--nproc-per-node", "12"):
            run = first_run(page)  # it came by itself
            page.wait(lambda: re.search(r"\b\d+ · loss", page.text("#runs")), "its progress")
            page.key("j", Keys.ENTER)
            page.wait(lambda: page.text("h1").startswith(run), "the page of the run")
            steps = "#ranks td:nth-child(4)"
            seen = page.wait(lambda: page.text(steps), "a step")
            page.wait(lambda: page.text(steps) != seen, "another step, without a reload")
            page.wait(lambda: page.text("#pulse") == "Live", "the pulse")
            assert len(page.all("#ranks tbody tr")) == 12
            page.wait(lambda: page.all("#curves svg path.line"), "a curve")
            assert page.all("#attempts svg rect.useful") and page.all("#bill svg rect")

            page.key("l")
            page.wait(lambda: page.all("#lines li"), "lines")
            page.wait(lambda: "after the long line" in page.text("#lines"), "the lines of rank 0")
            counts = [each.text for each in page.all("#lines .who")]
            assert "12 ×" in counts
            last = page.text("#lines li:last-child")
            page.wait(lambda: page.text("#lines li:last-child") != last, "new lines")
            lines = page.text("#lines")
            assert "<script>window.pwned = 1</script>" in lines
            assert "^[]0;title^G^[[2Jred ?reversed" in lines
            assert "bytes cut" in lines
            assert page.run("return window.pwned === undefined && document.title !== 'title'")
            assert is_ours(page, address)
            assert page.problems() == []
        page.wait(lambda: page.text("#pulse") == "", "the end of the log")


def test_the_timeline_shows_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two launchers of one job, the second later: what each node did, by its name."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("PADDOCK_TOKEN", "t" * 32)
    flags = ("--nnodes", "2", "--master", f"127.0.0.1:{port}", "--devices", "cpu", "--rank")
    with (
        serving(tmp_path) as address,
        training(tmp_path, STEPS, *flags, "0"),
        browser() as page,  # takes a moment
        training(tmp_path, STEPS, *flags, "1"),
    ):
        sign_in(page, address)
        page.open(f"{base_of(address)}/runs/{first_run(page)}")
        page.wait(lambda: len(page.all("#attempts svg rect.useful")) == 2, "steps of both")
        labels = [each.text for each in page.all("#attempts svg text.label")]
        assert len(labels) == 2
        assert all(f" 0 · {os.uname().nodename}" in label for label in labels)
        assert page.all("#attempts svg rect.rendezvous")
        assert "useful" in page.text("#attempts .legend")
        assert page.problems() == []


def test_stacks_that_a_reader_has_opened_stay_open(tmp_path: Path) -> None:
    """Of a run that goes on, whose page is made anew twice a second."""
    with seen_run(tmp_path, "failure") as (page, _, run):
        argv = [sys.executable, "-m", "paddock", "stacks", run]
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        page.wait(lambda: subprocess.run(argv, env=env, capture_output=True).returncode == 0)
        page.wait(lambda: page.all("details"), "the stacks, by themselves")
        page.one("details summary").click()
        page.run("window.asked = 0; const f = fetch; fetch = (...a) => (asked += 1, f(...a))")
        page.wait(lambda: page.run("return asked") > 3, "three looks")
        assert page.one("details").get_attribute("open") is not None
        assert page.problems() == []


def test_logs_are_searched_and_paused(tmp_path: Path) -> None:
    """By the keyboard alone."""
    with seen_run(tmp_path, "logs") as (page, address, run):
        page.key("/")
        page.key("STEP 1", Keys.ENTER)
        page.wait(lambda: "q=STEP" in page.driver.current_url, "the search")
        page.wait(lambda: len(page.all("#lines li")) > 3, "lines that are found")
        assert all("step 1" in each.text for each in page.all("#lines code"))
        page.key("p")
        page.wait(lambda: page.text("#pulse") == "Paused", "the pause")
        page.open(f"{base_of(address)}/runs/{run}/logs?rank=1&fold=0")
        page.wait(lambda: len(page.all("#lines li")) > 3, "lines of rank 1")
        assert {each.text.split()[-2:][1] for each in page.all("#lines .who")} == {"1"}
        page.key("?")
        assert page.one("#keys").is_displayed()
        page.key(Keys.ESCAPE)
        assert page.problems() == []


def test_a_run_is_stopped_where_that_is_allowed(tmp_path: Path) -> None:
    """With --control there is a button that asks once more."""
    with serving(tmp_path, "--control") as address, browser() as page:
        sign_in(page, address)
        with training(tmp_path, STEPS, "--nproc-per-node", "2") as launch:
            page.open(f"{base_of(address)}/runs/{first_run(page)}")
            page.one("details.stop summary").click()
            page.one("details.stop button").click()
            page.wait(lambda: "asked to stop" in page.text() or page.all(".badge.cancelled"))
            page.wait(lambda: page.all("#head .badge.cancelled"), "the end, by itself")
            assert launch.wait(30) != 0
            assert page.problems() == []


def test_two_viewers_and_a_server_that_goes(tmp_path: Path) -> None:
    """Both see new lines; when the server has ended the page says so."""
    with (
        browser() as one,
        browser(language="zh-CN", dark=True) as other,
        training(tmp_path, STEPS, "--nproc-per-node", "2"),
    ):
        with serving(tmp_path) as address:
            for page in (one, other):
                sign_in(page, address)
                page.open(f"{base_of(address)}/runs/{first_run(page)}/logs")
            for page in (one, other):
                last = page.wait(lambda p=page: p.text("#lines li:last-child"), "lines")
                page.wait(lambda p=page, t=last: p.text("#lines li:last-child") != t, "more")
            assert "搜索" in other.text() and "Search" in one.text()
            colours = [p.run("return getComputedStyle(document.body).backgroundColor")
                       for p in (one, other)]  # fmt: skip
            assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]
        one.wait(lambda: "No answer" in one.text("#pulse"), "the word that it has gone")


def test_pages_of_an_ended_run_on_a_phone_and_in_chinese(tmp_path: Path) -> None:
    """Nothing is wider than the screen but tables, which are moved by themselves."""
    logs = {1: [(50.0, b"Traceback (most recent call last):\nValueError: bad\n")]}
    make_run(tmp_path, "train-1", [*history_rows(ranks=8), stall_row(1, [0, 2, 3])], logs)
    make_run(tmp_path, "train-2", history_rows(), end="succeeded", why="")
    compare = "/compare?run=train-1&run=train-2"
    with serving(tmp_path) as address, browser(language="zh-CN,zh", width=390) as page:
        sign_in(page, address)
        for path in ("/", "/runs/train-1", "/runs/train-1/logs", "/runs/train-1/failure", compare):
            page.open(base_of(address) + path)
            width = page.run("return document.documentElement.scrollWidth")
            assert width <= 390, path
            assert re.search("[\u4e00-\u9fff]", page.text("main")), path
            assert page.problems() == []
        page.one("a[lang=en]").click()
        page.wait(lambda: page.text("h1") == "Compare", "English")
        assert is_ours(page, address)


SENTENCES = """
const kept = document.querySelector("main").cloneNode(true), found = [];
for (const one of kept.querySelectorAll("code, pre, #lines, [lang=en]")) one.replaceWith("|");
const walker = document.createTreeWalker(kept, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
for (let node; (node = walker.nextNode());) {
  found.push(node.nodeType === 3 ? node.textContent : "");
  for (const name of node.getAttributeNames ? ["title", "aria-label", "placeholder"] : [])
    found.push(node.getAttribute(name) || "");
}
return [...found, document.title, ...Object.values(document.body.dataset)];
"""


def test_no_page_in_chinese_has_a_sentence_in_english(tmp_path: Path) -> None:
    """Of ours: what a program printed, names and code stay as they are."""
    late = {"at": BEGAN + 31, "kind": "attempt", "attempt": 1,
            "ranks": [["worker", r, 200 + r, "x"] for r in range(4)]}  # fmt: skip
    seen = {"kind": "seen", "at": BEGAN, "name": "progress", "text": "tqdm"}
    ended = {"kind": "exit", "at": BEGAN + 30, "rank": 1, "how": "exited with code 7"}
    rows = [*history_rows(ranks=4), seen, ended, late]
    rows += [{"kind": "sample", "at": BEGAN + at, "rank": rank, "cpu": at, "rss": 1 << 20,
              "waited": at * 0.5 * (rank == 2)}
             for at in range(32, 92, 10) for rank in range(4)]  # fmt: skip
    rows += [{"kind": "held", "at": BEGAN + 93, "rank": 0}, stall_row(1, [0, 2, 3], at=94),
             {"kind": "stacks", "at": BEGAN + 95, "why": "rank 1 exited with code 7",
              "groups": [[[0], "f at x.py:1"]]}]  # fmt: skip
    killed = Exit("worker", 1, 0, "node-a", 1, 1, signal=9, cause="signal", pid=101)
    again = "no restart is left of 1 (--max-restart)"
    make_run(tmp_path, "train-1", rows, why=f"{culprit_text(killed)}; {again}")
    make_run(tmp_path, "train-2", end="lost", why=KILLED)
    make_run(tmp_path, "train-3", history_rows(), end="cancelled",
             why="stopped by SIGTERM; 2 ranks did not exit cleanly")  # fmt: skip
    pages = [f"/runs/train-{number}{path}" for number in (1, 2, 3)
             for path in ("", "/logs", "/failure", "/report")]  # fmt: skip
    pages += ["/", "/?q=nothing", "/compare", "/compare?run=train-1&run=train-3", "/runs/none"]
    with serving(tmp_path) as address, browser(language="zh-CN,zh", width=390) as page:
        sign_in(page, address)
        for path in pages:
            if path.endswith("/report"):
                (tmp_path / "report.html").write_text(page.fetch(base_of(address) + path), "utf-8")
                page.open(f"file://{tmp_path}/report.html")
                found = page.run(SENTENCES)
                page.open(base_of(address))
            else:
                page.open(base_of(address) + path)
                found = page.run(SENTENCES)
            left = [text for text in found if re.search(r"[A-Za-z]+(?: [A-Za-z]+){2,}", text)]
            assert left == [], path


def test_a_page_of_an_earlier_server_says_so(tmp_path: Path) -> None:
    """The same port, another token: that is not the same as no answer."""
    make_run(tmp_path, "train-1", history_rows())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    with browser() as page:
        with serving(tmp_path, "--port", port) as address:
            sign_in(page, address)
            page.wait(lambda: page.text("#pulse") == "Live", "the pulse")
        page.wait(lambda: "No answer" in page.text("#pulse"), "the word that it has gone")
        with serving(tmp_path, "--port", port):
            page.wait(lambda: "of an earlier" in page.text("#pulse"), "the word that it is another")
            page.open(base_of(address))
            assert "of an earlier `paddock web`" in page.text()


def test_runs_are_chosen_and_compared(tmp_path: Path) -> None:
    """The boxes stay while the page is live; what lies below the pointer is written out."""
    for name in ("train-1", "train-2", "train-3"):
        make_run(tmp_path, name, history_rows())
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        for box in page.all("input[name=run]")[:2]:
            box.click()
        old = page.one("#runs tbody tr")
        page.run("document.querySelector('#runs tbody').dataset.old = 1")
        make_run(tmp_path, "train-4", history_rows())
        page.wait(lambda: "train-4" in page.text("#runs"), "the new run")
        assert old is not None
        page.one("button[form=choose]").click()
        page.wait(lambda: page.text("h1") == "Compare", "the page")
        assert len(page.all(".legend a")) == 2
        assert page.all("#charts path.c1")
        page.one("button[name=by]").click()
        page.wait(lambda: "by=step" in page.driver.current_url, "by step")
        for number in range(5, 11):
            make_run(tmp_path, f"train-{number}", history_rows())
        page.point("#charts svg")
        told = page.text("#charts output")
        assert re.fullmatch(r"8\.[78]\d?:( 0\.3\d*){2}", told), told  # step 9 is the next: 3/10
        page.point("h1")
        assert page.text("#charts output") == ""
        ten = "&".join(f"run=train-{number}" for number in range(1, 11))
        page.open(f"{base_of(address)}/compare?{ten}")
        assert len(page.all(".legend a")) == 8 and "2 more runs are not shown" in page.text()


def test_runs_are_found_by_what_they_are(tmp_path: Path) -> None:
    """A name, a state, a word of the command: by the keyboard."""
    make_run(tmp_path, "train-1", history_rows())
    make_run(tmp_path, "eval-2", history_rows(), end="succeeded", why="")
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        for text, found in (("EVAL", ["eval-2"]), ("failed", ["train-1"]), ("no such", [])):
            page.open(f"{base_of(address)}/")
            page.key("/")
            page.key(text, Keys.ENTER)
            page.wait(lambda: "q=" in page.driver.current_url, "the search")
            assert [each.text for each in page.all("a[data-row]")] == found
        assert "No run has this" in page.text()
        assert page.problems() == []


def test_a_thousand_ranks_and_a_million_lines_are_a_page(tmp_path: Path) -> None:
    """It comes, it can be used, and older lines are one link away."""
    lines = [b"line %d of the million\n" % n for n in range(1_000_000)]
    chunks = [(n / 1000, b"".join(lines[n * 1000 : n * 1000 + 1000])) for n in range(1000)]
    make_run(tmp_path, "train-1", history_rows(ranks=1000, steps=3), {0: chunks})
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        page.open(f"{base_of(address)}/runs/train-1")
        assert len(page.all("#ranks tbody tr")) == 1000
        page.key("j", "j")
        assert page.run("return document.activeElement.innerText") == "rank 1"
        page.open(f"{base_of(address)}/runs/train-1/logs")
        assert "line 999999 of the million" in page.text("#lines li:last-child")
        page.key("j", Keys.ENTER)
        page.wait(lambda: "line 999599 of" in page.text("#lines li:last-child"), "older lines")
        page.open(f"{base_of(address)}/runs/train-1/logs?q=line+1234+of")
        assert page.text("#lines li code") == "line 1234 of the million"
        assert page.problems() == []


ATTACK = """<!doctype html><title>evil</title><script>
const target = "TARGET"; window.found = [];
const tell = (name) => (r) => r.text().then((t) => found.push(name + ":" + r.status));
const no = (name) => () => found.push(name + ":refused");
fetch(target + "/", {credentials: "include"}).then(tell("get"), no("get"));
fetch(target + "/runs/train-1/stop", {method: "POST", credentials: "include", mode: "no-cors"})
  .then(tell("post"), no("post"));
const script = document.createElement("script"); script.src = target + "/static/web.js";
script.onload = () => found.push("script:loaded"); script.onerror = no("script");
document.head.append(script);
</script><form method=post action="TARGET/runs/train-1/stop?now=1"><button>go</button></form>"""


@contextmanager
def another_site(target: str) -> Iterator[int]:
    """A page of somebody else that tries what it can; its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(ATTACK.replace("TARGET", target).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
def test_another_site_reads_nothing_and_stops_nothing(tmp_path: Path, host: str) -> None:
    """Another port of this machine, where a browser sends the cookie, and another name."""
    with (
        serving(tmp_path, "--control") as address,
        browser() as page,
        training(tmp_path, STEPS) as launch,
        another_site(base_of(address)) as port,
    ):
        sign_in(page, address)
        first_run(page)
        page.open(f"http://{host}:{port}/")
        page.wait(lambda: page.run("return found.length") == 3, "all three attempts")
        found = page.run("return found.sort()")
        assert found == ["get:refused", "post:refused", "script:refused"]
        page.one("button").click()
        page.wait(lambda: "/stop" in page.driver.current_url, "the answer to the form")
        assert "no page" in page.text() or "another site" in page.text()
        assert launch.poll() is None


def test_a_name_that_leads_to_this_machine_is_turned_away(tmp_path: Path) -> None:
    """DNS rebinding: the browser takes evil.example for the server's own name."""
    make_run(tmp_path, "train-1", history_rows())
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        page.open(address.replace("127.0.0.1", "evil.example"))
        assert page.text() == "this server has another name"
        page.open(f"{base_of(address)}/?token=wrong")
        assert "has printed" in page.text() and "train-1" not in page.text()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_picture_of_the_guide_shows_a_run(
    tmp_path: Path, language: str, recording: bool
) -> None:
    """`pytest -m real --record tests/web` draws it anew: the page itself, as SVG."""
    rows = [*history_rows(ranks=4, steps=44), stall_row(3, [0, 1, 2], at=54)]
    rows.insert(2, {"kind": "waited", "at": BEGAN, "seconds": 0.8})
    rows.append({"kind": "exit", "at": BEGAN + 62, "role": "worker", "rank": 3, "ok": False,
                 "how": "exited with code 7"})  # fmt: skip
    rows.append({"kind": "end", "at": BEGAN + 63})
    make_run(tmp_path, "train-3f2a", rows, why="rank 3 (pid 103) on node-a exited with code 7")
    picture = PICTURES / ("web.svg" if language == "en" else "web.zh.svg")
    with serving(tmp_path) as address, browser(language=language, width=1000) as page:
        sign_in(page, address)
        page.open(f"{base_of(address)}/runs/train-3f2a")
        headings = [each.text for each in page.all("h2")]
        if recording:
            css = (STATIC / "web.css").read_text("utf-8")
            picture.write_text(page.run(AS_SVG, css, 1000, 800), "utf-8")
        page.open(f"file://{picture}")
        drawn = page.run("return [...document.querySelectorAll('h2')].map(e => e.innerText)")
    assert drawn == headings, "pytest -m real --record tests/web"


SECRETS = ("se-cret-of-the-shell", "se-cret-of-a-flag", "se-cret-of-the-file")
SECRETIVE = """
import os, time
found = [os.environ[name] for name in ("SHELL_KEY", "FLAG_KEY", "FILE_KEY")]
assert all(text.startswith("se-cret") for text in found)
for step in range(100_000):
    print(f"step {step} loss {3 / (step + 1):.4f}", flush=True)
    time.sleep(0.1)
"""


def test_no_page_and_no_file_has_a_value_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shell, of --env and of the job's file: all that is served, and what it is made of."""
    shell, flag, file = SECRETS
    monkeypatch.setenv("SHELL_KEY", shell)
    found = job("train", worker=role(1, env=[{"name": "FILE_KEY", "value": file}]))
    (tmp_path / "job.json").write_text(json.dumps(found), "utf-8")
    flags = ("-f", "job.json", "--env", f"FLAG_KEY={flag}", "--nproc-per-node", "2")
    with serving(tmp_path) as address, browser() as page:
        sign_in(page, address)
        with training(tmp_path, SECRETIVE, *flags):
            run = first_run(page)
            page.open(f"{base_of(address)}/runs/{run}")
            page.wait(lambda: page.all("#curves svg path.line"), "a curve")
            for path in ("", "/logs", "/logs/new", "/failure", "/report"):
                body = page.fetch(f"{base_of(address)}/runs/{run}{path}")
                assert body and not [text for text in SECRETS if text in body], path
        for path in ("/", f"/compare?run={run}", f"/runs/{run}", f"/runs/{run}/report"):
            body = page.fetch(base_of(address) + path)
            assert run in body and not [text for text in SECRETS if text in body], path
    histories = list(tmp_path.rglob("history.jsonl"))
    assert histories
    for one in histories:
        assert not [text for text in SECRETS if text in one.read_text("utf-8")]


def test_a_report_opens_without_a_server(tmp_path: Path) -> None:
    """From a file, with its pictures, and without a word on the console."""
    make_run(tmp_path, "train-1", [*history_rows(), stall_row(1, [0])], {1: [(50.0, b"bad\n")]})
    argv = [sys.executable, "-m", "paddock", "report", "train-1", "--out", "report.html"]
    env = {"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "zh_CN.UTF-8"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "report.html\n"), done.stderr
    with browser(dark=True) as page:
        page.open(f"file://{tmp_path}/report.html")
        assert "train-1" in page.text("h1") and "时间线" in page.text()
        assert len(page.all("svg path.line")) == 4
        assert page.problems() == []


def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    """With the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        argv = [sys.executable, "-m", "paddock", "web", "--port", port]
        done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"--port {port}: Address already in use" in done.stderr
    assert "leave --port out" in done.stderr
