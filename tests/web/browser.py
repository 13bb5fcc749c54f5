"""A real browser and a real `paddock web`, for tests: headless Chromium by Selenium."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 30.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
    "--disable-background-networking", "--no-first-run", "--disable-component-update",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)  # fmt: skip


def need_browser() -> None:
    """Skip without Chromium and its driver; in CI, fail."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if not lacking:
        return
    message = f"{' and '.join(lacking)} not found: apt-get install chromium chromium-driver"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


class Browser:
    """A window. Elements are named by CSS."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Load a page."""
        self.driver.get(address)

    def text(self, css: str = "body") -> str:
        """The text of the first element, as it is seen; "" without it."""
        found = self.driver.execute_script(
            "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", css
        )
        return str(found)

    def all(self, css: str) -> list[Any]:
        """All such elements."""
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def one(self, css: str) -> Any:
        """The first such element; it must be there."""
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def key(self, *keys: str) -> None:
        """Type keys, one after the other."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def run(self, script: str, *values: object) -> Any:
        """The result of a script, run by the driver: the page's policy does not stop it."""
        return self.driver.execute_script(script, *values)

    def point(self, css: str) -> None:
        """Move the pointer to the middle of an element."""
        webdriver.ActionChains(self.driver).move_to_element(self.one(css)).perform()

    def fetch(self, address: str) -> str:
        """What the server answers to the page that is open."""
        ask = "const done = arguments[1]; fetch(arguments[0]).then(r => r.text()).then(done)"
        return str(self.driver.execute_async_script(ask, address))

    def wait(self, is_true: Callable[[], object], what: str = "") -> Any:
        """Wait until something is true; returns it."""
        deadline = time.monotonic() + SECONDS
        while not (found := is_true()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {SECONDS:g} s: {what}\n{self.text()[:2000]}")
            time.sleep(0.05)  # sleep: a page changes when it likes
        return found

    def problems(self) -> list[str]:
        """What the browser's console has said since the last time."""
        return [str(each["message"]) for each in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        found = self.run("return performance.getEntriesByType('resource').map(e => e.name)")
        return [*map(str, found), str(self.driver.current_url)]


_left: dict[tuple[str, bool, int, int], Any] = {}  # browsers that a test has left


@contextmanager
def browser(
    *, language: str = "en", dark: bool = False, width: int = 1200, height: int = 900
) -> Iterator[Browser]:
    """A window of a browser that knows no page and no cookie."""
    key = language, dark, width, height
    driver = _left.pop(key, None) or _start(*key)
    try:
        yield Browser(driver)
        driver.get("about:blank")
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        driver.get_log("browser")
    except BaseException:
        driver.quit()
        raise
    _left[key] = driver


def quit_browsers() -> None:
    """End the browsers that tests have left; every module that has used one calls this."""
    while _left:
        _left.popitem()[1].quit()


def _start(language: str, dark: bool, width: int, height: int) -> Any:
    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for one in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(one)
    options.add_experimental_option("prefs", {"intl.accept_languages": language})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    driver.set_page_load_timeout(2 * SECONDS)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    if width < 600:  # a window of Chromium is no smaller than that
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return driver


@contextmanager
def serving(state: Path, *flags: str) -> Iterator[str]:
    """`paddock web` of the runs of a state directory; its address, with the token."""
    argv = [sys.executable, "-m", "paddock", "web", *flags]
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)


@contextmanager
def training(state: Path, script: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A real launch of a script, until it is stopped or ends."""
    (state / "train.py").write_text(script, "utf-8")
    argv = [sys.executable, "-m", "paddock", "launch", *flags, "train.py"]
    env = {**os.environ, "XDG_STATE_HOME": str(state)}
    with open(state / "launch.txt", "w", encoding="utf-8") as out:
        process = subprocess.Popen(argv, env=env, cwd=state, stdout=out, stderr=out, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS)
