"""The node's pages in a browser, on a desk and on a phone: nothing is complained of, nothing is asked of anybody else,
nothing is wider than the screen, and the keyboard reaches every link."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ..waits import LIMIT_SECONDS
from .cli import serving
from .console import VIEWS, fill

TOKEN = "open sesame"
SIZES = {"desk": (1280, 900), "phone": (360, 740)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        assert "CI_HAS_CHROMIUM" not in os.environ, "CI has chromium: apt-get install chromium"
        pytest.skip("chromium isn't installed: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("console")
    with serving(folder / "store", "--token", TOKEN) as url:
        fill(folder / "home", url, TOKEN)
        yield url


def log_in(page: Page, url: str) -> None:
    page.goto(f"{url}/ui/")
    assert urlsplit(page.url).path == "/ui/login"
    page.get_by_label("The node's token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/ui/")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view(browser: Browser, url: str, size: str, scheme: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    context.set_default_timeout(LIMIT_SECONDS * 1000)
    page = context.new_page()
    said: list[str] = []
    asked: set[str] = set()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    log_in(page, url)
    for path in VIEWS:
        page.goto(f"{url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.locator("h1").count() == 1, path
    # Chromium says so of an answer that is none of success, which the last one is.
    assert [line for line in said if "404" not in line] == []
    assert asked <= {urlsplit(url).netloc, ""}
    context.close()


def test_the_keyboard_reaches_every_link(browser: Browser, url: str) -> None:
    context = browser.new_context()
    context.set_default_timeout(LIMIT_SECONDS * 1000)
    page = context.new_page()
    log_in(page, url)
    page.goto(f"{url}/ui/volume?name=shop/orders")
    links = page.locator("a").count()
    reached: set[str] = set()
    for _ in range(links + 10):
        page.keyboard.press("Tab")
        here = page.evaluate("document.activeElement.tagName.toLowerCase() + ' ' + document.activeElement.outerHTML")
        if str(here).startswith("a "):
            reached.add(str(here))
    assert len(reached) == links - page.locator("a").evaluate_all(
        "each => each.length - new Set(each.map(a => a.outerHTML)).size"
    )
    # From a commit to its rows, without a mouse.
    page.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/changes?**")
    assert page.get_by_role("heading", name="Changed rows of shop/orders").count() == 1
    context.close()
