"""The page in a real browser: values arrive, zoom, names, a restart of the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from server_helpers import CHROMIUM

from regimekit import datasets as data

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if not CHROMIUM.exists():
    pytest.skip("Chromium is not installed (Debian: chromium)", allow_module_level=True)

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Y = data.regime_stream(seed=2, n=3000, stay=0.98).y.tolist()
WAIT = 300_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda m: page.wrong.append(m.text) if "Content Security" in m.text else 0)
    yield page
    context.close()
    assert page.wrong == []


def until(page: Any, expression: str, seconds: float = 300) -> None:
    """Asked from outside: the page's policy forbids scripts made from text."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression}; the page says: {page.inner_text('body')}"
        time.sleep(0.05)


def fact(page: Any, name: str, value: str) -> None:
    until(page, f"document.querySelector(`[data-fact='{name}']`)?.textContent === '{value}'")


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": str(i), "y": Y[i]} for i in range(first, last)]


def test_a_day_with_the_page(start: Callable[..., Any], page: Any) -> None:
    server = start()
    server.make("press")
    server.send("press", rows(0, 2000))

    page.goto(server.url)
    page.wait_for_selector("a.card")
    page.keyboard.press("/")
    page.keyboard.type("nothing like it")
    page.wait_for_selector(".empty")
    page.fill("input[type=search]", "pre")
    page.wait_for_selector("a.card")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    fact(page, "observations", "2,000")

    server.send("press", rows(2000, 2010))
    fact(page, "observations", "2,010")
    page.wait_for_selector(".status.live")

    for shown in (".heat td", ".gauge-fill", ".regime .shape svg", ".event", ".numbers td"):
        page.wait_for_selector(shown)  # transitions, calibration, library, events, next steps

    page.keyboard.press("0")
    until(page, "document.getElementById('where').textContent === '0 … 2010 of 2010'")
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 120, steps=5)
    page.mouse.up()
    until(
        page,
        "(() => { const [a, b] = document.getElementById('where').textContent.match(/\\d+/g);"
        " return a > 400 && a < 600 && b > 900 && b < 1100; })()",
    )
    page.keyboard.press("ArrowRight")
    page.keyboard.press("l")
    page.wait_for_selector("button.on")

    name = page.locator(".regime-name").first
    name.fill("night shift")
    name.press("Enter")
    until(
        page,
        "document.querySelector('.regime-name').value === 'night shift' && "
        "[...document.querySelectorAll('.event')].some(e => e.textContent.includes('night shift'))",
    )
    unseen = page.locator(".event:not(.acknowledged)").count()
    page.locator(".event button").first.click()
    page.wait_for_selector(".event.acknowledged")
    assert unseen > 0

    with page.expect_download() as saved:
        page.keyboard.press("r")
    assert saved.value.suggested_filename == "press.html"
    report = page.context.new_page()
    report.on("pageerror", lambda error: page.wrong.append(str(error)))
    report.goto(f"{server.url}/streams/press/report")
    report.wait_for_selector("body[data-ready]")
    assert "night shift" in report.inner_text("#regimes")
    report.close()

    server.kill()
    page.wait_for_selector(".status.lost")
    page.wait_for_selector("#notice:not([hidden])")
    server.start()
    server.send("press", rows(2005, 2015))
    fact(page, "observations", "2,015")
    page.wait_for_selector(".status.live")
    assert "night shift" in page.locator(".regime-name").first.input_value()


def test_dark_phone_and_a_name_that_is_markup(server: Any, browser: Any) -> None:
    server.make("page.small")
    server.send("page.small", rows(0, 60))
    label = "<img src=x onerror=alert(1)>"
    server.client.put("/streams/page.small/regimes/0", json={"name": label})
    context = browser.new_context(
        viewport={"width": 390, "height": 800}, color_scheme="dark", has_touch=True
    )
    page = context.new_page()
    page.goto(f"{server.url}/#/s/page.small")
    page.wait_for_selector(".regime-name")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, background.removeprefix("rgb(").rstrip(")").split(","))) < 150
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no sideways scroll"
    assert page.locator("img[src=x]").count() == 0
    page.click("#theme")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != background
    context.close()


def test_the_page_asks_for_a_token(start: Callable[..., Any], page: Any) -> None:
    from regimekit.server.storage import tokens
    from regimekit.server.storage.database import database, write_transaction

    server = start("--require-token")
    with database(server.db) as engine, write_transaction(engine) as connection:
        token = tokens.add(connection, "me", [("write", "")], 0)
    page.goto(server.url)
    page.fill("dialog input", token)
    page.keyboard.press("Enter")
    page.wait_for_selector(".empty")


def test_a_stream_that_comes_later_is_shown(server: Any, page: Any) -> None:
    page.goto(f"{server.url}/#/s/page.later")
    page.wait_for_selector("#notice:not([hidden])")
    server.make("page.later")
    server.send("page.later", rows(0, 12))
    fact(page, "observations", "12")


def test_the_page_says_when_data_is_stale(server: Any, page: Any) -> None:
    server.make("page.stale")
    server.send("page.stale", rows(0, 12))
    page.goto(f"{server.url}/#/s/page.stale")
    page.wait_for_selector(".status.live")
    page.clock.set_system_time(datetime.now() + timedelta(minutes=5))
    page.wait_for_selector(".status.stale")
    assert "No new observations" in page.inner_text("#notice")


def test_the_page_and_the_report_share_charts_and_styles(server: Any, page: Any) -> None:
    server.make("page.shared")
    server.send("page.shared", rows(0, 80))
    loaded: list[str] = []
    page.on("response", lambda r: loaded.append(r.url.removeprefix(server.url)))
    page.goto(f"{server.url}/#/s/page.shared")
    page.wait_for_selector(".plot canvas")
    assert {"/static/assets/charts.js", "/static/assets/style.css"} <= set(loaded)
    read = "getComputedStyle(document.documentElement).getPropertyValue('--regime-0').trim()"
    live = page.evaluate(read)
    page.goto(f"{server.url}/streams/page.shared/report")
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(read) == live == "#0072B2"


def test_the_overview_is_sorted(server: Any, page: Any) -> None:
    for name, n in (("page.sort.a", 3), ("page.sort.b", 9)):
        server.make(name)
        server.send(name, rows(0, n))
    page.goto(server.url)
    page.fill("input[type=search]", "page.sort")
    for order, first in (("key", "page.sort.a"), ("rows", "page.sort.b")):
        page.select_option("select", order)
        until(page, f"document.querySelector('a.card')?.dataset.key === '{first}'")


def test_the_demonstration_moves(start: Callable[..., Any], page: Any) -> None:
    server = start("--demo")
    page.goto(f"{server.url}/#/s/demo")
    page.wait_for_selector("[data-fact=observations]")
    read = "Number(document.querySelector('[data-fact=observations]').textContent.replace(',', ''))"
    before = page.evaluate(read)
    until(page, f"{read} > {before + 2}")
    page.wait_for_selector(".bar-row")  # the members of `auto` and their weights


def test_streams_rules_and_receivers_are_created_on_the_page(
    start: Callable[..., Any], page: Any
) -> None:
    server = start("--allow-private-webhooks")
    page.goto(server.url)
    page.fill("#new-stream input[name=key]", "hall.fan")
    page.fill("#new-stream input[name=model]", "br_ihmm")
    page.click("#new-stream button")
    page.wait_for_selector("#facts")
    server.send("hall.fan", [{"y": y} for y in Y[:31]])
    page.click("a.brand")
    until(page, "document.querySelector('.card-note')?.textContent === 'learning: 31 of 60 rows'")

    page.click("a[href='#/alerts']")
    page.locator("#new-rule").locator("..").locator("summary").click()
    page.fill("#new-rule input[name=name]", "fan stops")
    page.select_option("#new-rule select[name=kind]", "forecast limit")
    page.fill("#new-rule input[name=above]", "-1000")
    page.fill("#new-rule input[name=prefix]", "hall.")
    page.select_option("#new-rule select[name=severity]", "critical")
    page.click("#new-rule button")
    until(page, "document.body.textContent.includes('fan stops (critical): forecast limit, hall.')")
    page.locator("#new-receiver").locator("..").locator("summary").click()
    page.fill("#new-receiver input[name=url]", "http://127.0.0.1:9/hook")
    page.click("#new-receiver button")
    until(page, "document.body.textContent.includes('Secret of the signature, shown once: ')")

    server.send("hall.fan", [{"y": y} for y in Y[31:80]])
    page.wait_for_selector(".alert .tag.critical")
    page.locator(".alert button").first.click()
    page.wait_for_selector(".alert.acknowledged")
    (rule,) = server.client.get("/rules").json()["rules"]
    assert rule["rule"]["above"] == -1000

    page.goto(f"{server.url}/docs")
    page.wait_for_selector(".operation")
    shown = page.locator(".operation").count()
    paths = server.client.get("/openapi.json").json()["paths"].values()
    assert shown == sum(len(operations) for operations in paths)
    probe = page.locator(".operation", has_text="/healthz")
    probe.locator("summary").click()
    probe.locator("button").click()
    until(page, "document.body.textContent.includes('200 OK')")
