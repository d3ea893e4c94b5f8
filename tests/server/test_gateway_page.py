"""The page of the gateway in a real browser, where there is one: Playwright with the system's Chromium.

On Debian `apt-get install chromium` and `pip install playwright` are enough: Playwright's own browsers are not used.
"""

import shutil

import pytest

from .gateways import running_gateway

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
TEXTS = ["A cat sleeps.", "A kitten naps.", "<b>The bill</b> is due in March."]


@pytest.fixture
def page(server, tmp_path):
    with (
        running_gateway(tmp_path / "log", [server.grpc]) as gateway,
        playwright.sync_playwright() as starter,
    ):
        browser = starter.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if gateway.url not in request.url else None)
        page.goto(gateway.url)
        yield page
        browser.close()
        assert [one for one in problems if not one.startswith("data:")] == []


def test_a_person_compares_texts(page):
    page.fill("#texts", "\n".join(TEXTS))
    page.fill("#query", "when must I pay?")
    page.click("button")
    page.wait_for_selector("#results:not([hidden])")
    assert page.locator("#ranking li").first.inner_text().endswith(TEXTS[2])
    cells = [
        [float(text) for text in row.locator("td").all_inner_texts()] for row in page.locator("#matrix tr").all()[1:]
    ]
    assert [cells[place][place] for place in range(3)] == [1.0, 1.0, 1.0]
    assert cells[0][1] == cells[1][0] > cells[0][2]
    stages = page.locator("#times tr").all_inner_texts()
    assert [any(f"embed: {stage}" in line for line in stages) for stage in ("engine", "encode", "all")] == [True] * 3


def test_it_says_what_is_wrong(page):
    page.fill("#texts", "word " * 300)
    page.click("button")
    page.wait_for_selector("#message:not(:empty)")
    assert "input[0]: 302 tokens, but at most 256" in page.inner_text("#message")


def test_the_description_of_the_api(page):
    page.goto(page.url + "docs")
    page.wait_for_selector("h2")
    assert "POST /v1/embeddings" in page.locator("h2").all_inner_texts()
    assert "curl -s" in page.locator("pre").first.inner_text()
