"""Who is let in to `paddock web`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from web.made import COOKIE, PORT, TOKEN, app_of, ask, make_run

if TYPE_CHECKING:
    from pathlib import Path

OURS = f"127.0.0.1:{PORT}"


def browser(**more: str) -> dict[str, str]:
    """Headers of a browser that has the cookie."""
    return {"host": OURS, "cookie": COOKIE, **{k.replace("_", "-"): v for k, v in more.items()}}


@pytest.mark.parametrize("path", ["/", "/compare", "/static/web.js", "/runs/x", "/nothing"])
def test_nothing_is_shown_without_the_token(tmp_path: Path, path: str) -> None:
    """Another user of this machine can reach the port."""
    for headers in ({"host": OURS}, {"host": OURS, "cookie": f"paddock-{PORT}=wrong"}):
        status, _, body = ask(app_of(tmp_path), path, headers=headers)
        assert status == 401
        assert TOKEN not in body


def test_a_wrong_token_in_the_address_is_refused(tmp_path: Path) -> None:
    """Also with a cookie that is right: somebody mistyped, and should see it."""
    for token in ("wrong", "", "%E4%BD%A0"):
        assert ask(app_of(tmp_path), f"/?token={token}x", headers={"host": OURS})[0] == 401


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(tmp_path: Path) -> None:
    """The address bar and the history of the browser do not keep the token."""
    status, headers, body = ask(
        app_of(tmp_path), f"/?token={TOKEN}&lang=zh", headers={"host": OURS}
    )
    assert status == 200
    cookie = headers["set-cookie"]
    assert cookie.startswith(COOKIE)
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert TOKEN not in body
    assert 'url=/?lang=zh"' in body


def test_the_address_that_follows_the_token_stays_on_this_server(tmp_path: Path) -> None:
    """//evil.example is an address of another host."""
    _, _, body = ask(app_of(tmp_path), f"//evil.example/?token={TOKEN}", headers={"host": OURS})
    assert "url=/evil.example/" in body


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "a@127.0.0.1", "x["]
)
def test_a_name_that_is_not_this_machines_own_is_refused(tmp_path: Path, host: str) -> None:
    """DNS rebinding: evil.example resolves to 127.0.0.1, and the browser sends its name."""
    assert ask(app_of(tmp_path), "/", headers={**browser(), "host": host})[0] == 421


@pytest.mark.parametrize("host", [OURS, "localhost:1", "[::1]:8000", "localhost"])
def test_a_tunnel_may_have_another_port(tmp_path: Path, host: str) -> None:
    """`ssh -L 9000:127.0.0.1:8000` makes it localhost:9000."""
    assert ask(app_of(tmp_path), "/", headers={**browser(), "host": host})[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_site_gets_no_answer(tmp_path: Path, site: str) -> None:
    """Neither by a script or an image of it, nor by a link."""
    for mode in ("no-cors", "cors", "navigate"):
        headers = browser(sec_fetch_site=site, sec_fetch_mode=mode)
        assert ask(app_of(tmp_path), "/", headers=headers)[0] == 403


def test_a_link_with_the_token_may_stand_on_another_site(tmp_path: Path) -> None:
    """A notebook or a web terminal shows what `paddock web` prints."""
    headers = {"host": OURS, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert ask(app_of(tmp_path), f"/?token={TOKEN}", headers=headers)[0] == 200
    headers["sec-fetch-mode"] = "no-cors"
    assert ask(app_of(tmp_path), f"/?token={TOKEN}", headers=headers)[0] == 403


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://127.0.0.1:9"])
def test_a_run_is_stopped_from_a_page_of_this_server_only(tmp_path: Path, origin: str) -> None:
    """A form of another site is sent with no script at all."""
    make_run(tmp_path, "train-1")
    headers = browser(**({"origin": origin} if origin else {}))
    app = app_of(tmp_path, can_stop=True)
    assert ask(app, "/runs/train-1/stop", method="POST", headers=headers)[0] == 403
    own = browser(origin=f"http://{OURS}")
    assert ask(app, "/runs/train-1/stop", method="POST", headers=own)[0] == 303


def test_without_control_no_page_changes_anything(tmp_path: Path) -> None:
    """The address that stops a run does not exist then."""
    make_run(tmp_path, "train-1")
    own = browser(origin=f"http://{OURS}")
    for path in ("/runs/train-1/stop", "/", "/runs/train-1", "/compare"):
        status = ask(app_of(tmp_path), path, method="POST", headers=own)[0]
        assert status in (404, 405)


@pytest.mark.parametrize("path", ["/", "/static/web.css", "/nothing", "/runs/nothing"])
def test_every_answer_forbids_scripts_of_others(tmp_path: Path, path: str) -> None:
    """Also those that say no."""
    for headers in (browser(), {"host": OURS}, {"host": "evil.example"}):
        policy = ask(app_of(tmp_path), path, headers=headers)[1]["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("name", ["..%2fapp.py", "../app.py", "..", ".", "%2e%2e/app.py", "web.py"])
def test_static_files_are_those_of_one_folder(tmp_path: Path, name: str) -> None:
    """Not the source, not a file above it."""
    assert ask(app_of(tmp_path), f"/static/{name}")[0] == 404
