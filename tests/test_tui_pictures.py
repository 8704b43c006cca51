"""Every screen as a picture, compared with the one kept in __snapshots__.

`pytest tests/test_tui_pictures.py --snapshot-update` takes them anew; look at each before you keep
it. What draws them is pinned in pyproject.toml: with other versions they are skipped.
"""

import math
from dataclasses import replace
from importlib.metadata import version

import pytest
from fake_doors import fake_doors
from fakes_tui import FakeDelta, FakeLLM
from screen import SMALL, Screen
from textual.widgets import Input, Label, TextArea

from localllm.errors import Unavailable
from localllm.request import Logprob
from localllm.tui.app import ChatApp
from localllm.tui.doors import Choice
from localllm.tui.history import History
from localllm.tui.themes import DARK, LIGHT

pytest.importorskip("pytest_textual_snapshot")
RECORDED = {"textual": "8.2.8", "rich": "15.0.0", "pygments": "2.21.0"}
pytestmark = pytest.mark.skipif(
    any(version(name) != recorded for name, recorded in RECORDED.items()),
    reason=f"the pictures were taken with {RECORDED}",
)

CHOICES = [
    Choice(
        "smollm2", 98_362_432, "Q4_1", True, True, "weights 98 MB + pages 94 MB for 8,192 tokens"
    ),
    Choice("qwen2.5-coder:1.5b", 1_117_320_768, "Q4_K_M", True, True, "1.6 GB of 3.2 GB free"),
    Choice("gemma3:270m", 253_113_024, "Q4_K_M", False, True, "Gemma 3 270M, a base model."),
    Choice(
        "hf:someone/a-model-with-a-long-name-70B-Instruct", 40_000_000_000, "Q8_0", False, False
    ),
]
ANSWER = """\
<think>
The user wants a sorting function. A plain quicksort is short and clear.
</think>

Here is **quicksort**, which takes `O(n log n)` steps on average:

```python
def quicksort(items: list[int]) -> list[int]:
    if len(items) < 2:
        return items
    pivot, *rest = items
    low = [x for x in rest if x < pivot]
    return quicksort(low) + [pivot] + quicksort([x for x in rest if x >= pivot])
```

1. The first item is the *pivot*.
2. Smaller ones go before it, the others behind.

| case | steps |
|---|---|
| average | n log n |
| sorted input | n² |

> Already sorted lists are the worst case.
"""


@pytest.fixture
def picture(snap_compare, tmp_path, monkeypatch):
    """picture(flow, llm, ...) plays a flow and compares what the screen shows then."""
    for name in ("NO_COLOR", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    for field in (Input, TextArea):
        monkeypatch.setattr(field.cursor_blink, "_default", False)

    def take(flow, *llms, size=SMALL, theme=DARK):
        llms = llms or (FakeLLM("smollm2", context=8192),)
        doors = fake_doors(tmp_path, *llms)
        app = ChatApp(replace(doors, choices=lambda: CHOICES, default=llms[0].name))
        app.theme, app.animation_level = theme.name, "none"

        async def play(pilot):
            screen = Screen(app, pilot)
            await screen.shows("context 0 / ")
            await flow(screen)
            doing = [*app.screen.query("#doing").results(Label)]
            await screen.until(lambda: not any(str(label.content) for label in doing))
            await screen.until(lambda: app.focused is None or app.focused.has_focus)
            await at_rest(app, pilot)

        try:
            assert snap_compare(app, run_before=play, terminal_size=size)
        finally:
            app.close()

    return take


async def still(screen):
    """Nothing is done: the screen as it begins."""


def coder():
    return FakeLLM("qwen2.5-coder:1.5b", answers=[[ANSWER], ["Shorter."]], context=32768)


WIDE = (110, 32)
LOOKS = pytest.mark.parametrize(
    ("size", "theme"),
    [(SMALL, DARK), (WIDE, LIGHT)],
    ids=["small-dark", "wide-light"],
)


async def at_rest(app, pilot):
    """Until the picture stays as it is, with what lies behind a dialog drawn too."""
    before, now = "", app.export_screenshot()
    while now != before:
        for screen in app.screen_stack:
            screen.refresh(layout=True)
        await pilot.pause(0.05)
        before, now = now, app.export_screenshot()


@LOOKS
def test_the_empty_chat(picture, size, theme):
    picture(still, size=size, theme=theme)


@LOOKS
def test_an_answer_with_code_and_folded_reasoning(picture, size, theme):
    async def flow(screen):
        await screen.ask("Write quicksort in Python, please")

    picture(flow, coder(), size=size, theme=theme)


def test_an_answer_in_the_middle(picture):
    async def flow(screen):
        await screen.ask("Write quicksort in Python, please")
        await screen.keys("up", "t", *["pageup"] * 3)
        await screen.shows("▼ Thinking", "You")

    picture(flow, coder())


def test_branches_and_an_edit(picture):
    async def flow(screen):
        await screen.ask("Say something")
        await screen.keys("ctrl+r")
        await screen.shows("‹ 2/2 ›", "Second.")
        await screen.idle()
        await screen.keys("up", "up", "e")
        await screen.shows("Editing")
        await screen.until(lambda: screen.app.focused.id == "prompt")

    picture(flow, FakeLLM("smollm2", answers=[["First."], ["Second."]], context=60))


@LOOKS
def test_the_model_picker(picture, size, theme):
    async def flow(screen):
        await screen.keys("ctrl+o")
        await screen.shows("gemma3")

    picture(flow, size=size, theme=theme)


@LOOKS
def test_the_sampling_panel(picture, size, theme):
    async def flow(screen):
        await screen.keys("ctrl+g", "up")
        await screen.shows("0.85")

    picture(flow, size=size, theme=theme)


def test_the_command_palette(picture):
    async def flow(screen):
        await screen.keys("ctrl+p")
        await screen.shows("Another answer")

    picture(flow)


@LOOKS
def test_two_models_side_by_side(picture, size, theme):
    async def flow(screen):
        await screen.keys("f4")
        await screen.shows("gemma3")
        await screen.type("coder")
        await screen.keys("enter")
        await screen.until(lambda: len(screen.app.screen.query("Pane")) == 2)
        await screen.shows("of 32,768" if size == SMALL else "0 / 32,768")
        await screen.ask("Write quicksort in Python, please")

    small = FakeLLM("smollm2", answers=[["Sorting is a way to put things in order."]], context=8192)
    picture(flow, small, coder(), size=size, theme=theme)


def test_the_alternatives_of_a_token(picture):
    def token(id, *shares):
        top = tuple(enumerate(map(math.log, shares), id))
        return FakeDelta(f"t{id} ", (id,), [Logprob(id, top[0][1], top)])

    async def flow(screen):
        screen.app._talk.records_alternatives = True
        await screen.ask("Count")
        await screen.keys("f3", "down")
        await screen.shows("▸", "t7")

    tokens = [token(5, 0.99, 0.005), token(7, 0.3, 0.45, 0.2, 0.01), token(9, 0.7, 0.2)]
    picture(flow, FakeLLM("smollm2", answers=[tokens]))


def test_the_sidebar_with_a_search(picture, tmp_path):
    before = History(tmp_path / "chats.db")
    titles = ["Apples and pears", "Quicksort in Python", "A much longer title about pears and more"]
    for title in titles:
        before.add(before.create("smollm2", title=title), "user", title)
    before.close()

    async def flow(screen):
        await screen.keys("ctrl+s")
        await screen.type("pears")
        await screen.hides("Quicksort")
        await screen.keys("down")
        await screen.until(lambda: screen.app.focused.id == "conversations")

    picture(flow)


def test_a_question_before_something_is_deleted(picture):
    async def flow(screen):
        await screen.ask("Gone soon")
        await screen.keys("ctrl+s", "down", "d")
        await screen.shows("for good?")

    picture(flow)


def test_the_system_prompt(picture):
    async def flow(screen):
        await screen.keys("f2")
        await screen.shows("Programmer")
        await screen.keys("shift+tab", "down", "down", "enter")
        await screen.shows("as few words")

    picture(flow)


def test_the_files_that_can_be_attached(picture, tmp_path):
    files = tmp_path / "files"
    (files / "source").mkdir(parents=True)
    for name in ("README.md", "notes.txt", "source/main.py", "source/reading.py"):
        (files / name).write_text("text")

    async def flow(screen):
        await screen.type("read ")
        await screen.keys("@")
        await screen.type("read")
        await screen.shows("reading.py", "README.md")

    picture(flow)


def test_an_error(picture):
    async def flow(screen):
        await screen.ask("Hello")

    broken = Unavailable("The model was taken away.", "Choose it again with ^o.")
    picture(flow, FakeLLM("smollm2", answers=[["Half an answer ", broken]], context=8192))
