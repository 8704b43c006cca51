"""The chat page in a real browser, offline: choice of model, streaming, stop, tokens per second."""

import re
import shutil

import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def llms():
    marked = "<b>bold</b> and\n```python\nprint(1)\n```\n`code`"
    return FakeLLM(answer=marked), FakeLLM("slow", answer="word " * 5000, seconds=0.01)


@pytest.fixture(scope="module")
def site(llms, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(FakeLibrary(*llms), ["fake"]) as site:
            assert until(lambda: "fake" in site.pool.entries)
            yield site


@pytest.fixture
def page(site):
    """A page that fails the test for an error in a script, or a request to anywhere else."""
    wrong = []
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if complains(said) else None)
        page.on("request", lambda r: wrong.append(r.url) if not local(r.url, site) else None)
        yield page
        browser.close()
    assert not wrong


def complains(said):
    """An answer of 400 is no fault of the page."""
    return said.type == "error" and "the server responded with" not in said.text


def local(url, site):
    return url.startswith((site.note.url, "data:"))


def say(page, text):
    page.fill("#text", text)
    page.press("#text", "Enter")


def test_a_chat(page, site, llms):
    page.goto(site.note.url)
    page.wait_for_selector("#model option", state="attached")
    assert page.eval_on_selector_all("#model option", "all => all.map(one => one.value)") == [
        "fake", "slow",
    ]  # fmt: skip
    say(page, "hello")
    page.wait_for_selector("small:has-text('tokens, ')")
    assert page.inner_text("article.user") == "hello"
    answer = page.locator("article.assistant")
    assert answer.locator("pre").inner_text().strip() == "print(1)"
    assert "<b>bold</b>" in answer.inner_text() and answer.locator("b").count() == 0
    assert re.search(r"\d+ tokens, [\d.]+ tokens/s", page.inner_text("small"))
    say(page, "again")
    assert until(lambda: len(llms[0].asked) == 2)
    prompt = bytes(id for id in llms[0].asked[-1]["ids"] if id < 256).decode()
    assert prompt.startswith("[user]hello[assistant]<b>bold") and "[user]again" in prompt


def test_stop_and_a_new_chat(page, site, llms):
    page.goto(site.note.url)
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#model", "slow")
    say(page, "hello")
    page.wait_for_selector("article.assistant:has-text('word word')")
    assert page.is_visible("#stop") and not page.is_visible("#send")
    page.click("#stop")
    page.wait_for_selector("small:has-text('stopped')")
    assert until(lambda: llms[1].running == 0)
    assert page.is_visible("#send")
    page.click("#fresh")
    assert page.locator("article").count() == 0


def test_the_api_page(page, site):
    page.goto(f"{site.note.url}/docs")
    page.wait_for_selector("section")
    assert page.locator("section").count() >= 12
    section = page.locator("section:has(code:text-is('POST /tokenize'))")
    section.locator("summary").click()
    section.locator("button").click()
    section.locator("pre:has-text('tokens')").wait_for()
    assert section.locator("pre").inner_text().startswith("200")


def test_an_error_is_shown(page, site):
    page.goto(site.note.url)
    page.wait_for_selector("#model option", state="attached")
    say(page, "x" * 9000)
    page.wait_for_selector("small.error:has-text('context size of 4096')")
