"""The other screens of the chat: models, files, sampling, system prompts, chats, comparison."""

import json
import threading
from dataclasses import replace

import pytest
from fake_doors import fake_doors
from fakes_tui import FakeDelta, FakeLLM
from screen import SMALL, WIDE, chat

from localllm.errors import Cancelled, Unavailable
from localllm.request import Logprob
from localllm.tui.history import History


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_another_model_is_picked(tmp_path, size):
    first, second = FakeLLM(), FakeLLM("other")

    async def flow(screen):
        await screen.keys("ctrl+o")
        await screen.shows("fake", "98 MB", "Q4_1", "here", "fits", "1.1 GB", "Q4_K_M")
        await screen.shows("huge", "too big", "to pull", "0.2 GB needed, 3 GB free")
        await screen.type("oth")
        await screen.hides("huge")
        await screen.keys("enter")
        await screen.until(lambda: second.asked == [] and first.closed)
        await screen.ask("hi")
        assert second.asked[0][0] == [{"role": "user", "content": "hi"}]

    chat(tmp_path, flow, first, second, size=size)
    stored = History(tmp_path / "chats.db")
    assert stored.setting("model") == "other"
    stored.close()


def test_a_model_that_is_not_here_is_pulled_with_progress(tmp_path):
    started, go_on = threading.Event(), threading.Event()

    def pull(name, progress):
        progress(f"pulling {name}", 100_000_000, 491_000_000)
        started.set()
        go_on.wait(10)

    async def flow(screen):
        await screen.keys("ctrl+o")
        await screen.type("far")
        await screen.keys("enter")
        await screen.until(started.is_set)
        await screen.shows("pulling far: 100 MB of 491 MB", "20%")
        go_on.set()
        await screen.hides("pulling")
        await screen.ask("hi")
        await screen.shows("You said: hi")

    chat(tmp_path, flow, doors=fake_doors(tmp_path, FakeLLM(), FakeLLM("far"), pull=pull))


def test_a_pull_can_be_stopped_and_its_error_is_shown(tmp_path):
    ended = []

    def pull(name, progress):
        if name == "huge":
            raise Unavailable("No network.", "Try --from FILE.")
        try:
            while True:
                progress("pulling", 1, 2)
        except Cancelled:
            ended.append(name)
            raise

    async def flow(screen):
        await screen.keys("ctrl+o")
        await screen.type("huge")
        await screen.keys("enter")
        await screen.shows("No network.", "Try --from FILE.")
        await screen.keys("backspace", "backspace", "backspace", "backspace")
        await screen.type("far")
        await screen.keys("enter")
        await screen.shows("pulling")
        await screen.keys("escape")
        await screen.until(lambda: ended == ["far"])

    chat(tmp_path, flow, doors=fake_doors(tmp_path, FakeLLM(), pull=pull))


def test_the_picker_opens_by_itself_when_there_is_no_model(tmp_path):
    async def flow(screen):
        await screen.shows("There is no model nope. Pull it first.", "Choose a model")
        await screen.keys("escape")
        await screen.shows("no model")

    chat(tmp_path, flow, model="nope")


def test_a_file_is_found_by_letters_and_sent_along(tmp_path):
    llm = FakeLLM()
    doors = fake_doors(tmp_path, llm)
    (doors.files / "sub dir").mkdir()
    (doors.files / "sub dir" / "notes.txt").write_text("buy milk\n")
    (doors.files / "other.py").write_text("x = 1\n")

    async def flow(screen):
        await screen.type("read @")
        await screen.shows("other.py", "sub dir/notes.txt")
        await screen.type("nts")
        await screen.hides("other.py")
        await screen.keys("enter")
        await screen.until(lambda: screen.app.screen.query_one("Prompt").text.endswith('txt" '))
        await screen.ask("now")
        assert llm.asked[0][0][0]["content"] == (
            'read @"sub dir/notes.txt" now\n\nsub dir/notes.txt:\n```txt\nbuy milk\n```'
        )

    chat(tmp_path, flow, doors=doors)


def test_an_at_sign_inside_a_word_asks_for_nothing(tmp_path):
    async def flow(screen):
        await screen.type("me@home")
        assert "Attach a file" not in screen.text()

    chat(tmp_path, flow)


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_knobs_are_turned_in_the_panel(tmp_path, size):
    llm = FakeLLM()

    async def flow(screen):
        await screen.keys("ctrl+g")
        await screen.shows("Sampling", "temperature", "0.8", "top_k", "Higher surprises more")
        await screen.keys("up", "tab")
        await screen.type("7")
        await screen.shows("0.85", "Keep this many")
        await screen.keys("tab")
        await screen.type("9")
        await screen.shows("it must be from 0 to 1")
        await screen.keys("ctrl+g")
        await screen.ask("hi")
        assert llm.asked[0][1] == {"temperature": 0.85, "top_k": 7}
        await screen.keys("ctrl+g", "ctrl+l", "ctrl+g")
        await screen.ask("again")
        assert llm.asked[1][1] == {}

    chat(tmp_path, flow, llm, size=size)


def test_a_system_prompt_from_a_preset_and_a_preset_of_ones_own(tmp_path):
    llm = FakeLLM()

    async def flow(screen):
        await screen.keys("f2")
        await screen.shows("System prompt", "Brief", "Programmer")
        await screen.keys("shift+tab", "down", "down", "enter", "ctrl+n")
        await screen.shows("Name of the preset")
        await screen.type("mine")
        await screen.keys("enter")
        await screen.shows("mine")
        await screen.keys("ctrl+s")
        await screen.ask("hi")
        assert llm.asked[0][0][0] == {
            "role": "system",
            "content": "Answer in as few words as the question allows.",
        }

    chat(tmp_path, flow, llm)
    stored = History(tmp_path / "chats.db")
    assert list(stored.presets()) == ["mine"]
    assert stored.get(1).system.startswith("Answer in as few")
    stored.close()


def test_chats_are_searched_renamed_exported_and_deleted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = History(tmp_path / "chats.db")
    for title in ("about apples", "about pears"):
        before.add(before.create("m", title=title), "user", f"tell me {title}")
    before.close()

    async def flow(screen):
        await screen.keys("ctrl+s")
        await screen.type("apple")
        await screen.hides("about pears")
        await screen.keys("down", "r", *["backspace"] * 12)
        await screen.type("fruit one")
        await screen.keys("enter")
        await screen.shows("fruit one")
        await screen.keys("x")
        await screen.shows("Written")
        await screen.keys("d")
        await screen.shows("Delete “fruit one” for good?")
        await screen.keys("n", "d", "y")
        await screen.hides("fruit one")

    chat(tmp_path, flow)
    whole = json.loads((tmp_path / "fruit-one.json").read_text())
    assert whole["messages"] == [{"role": "user", "content": "tell me about apples"}]
    assert (tmp_path / "fruit-one.md").read_text().startswith("# fruit one")
    after = History(tmp_path / "chats.db")
    assert [e.title for e in after.find()] == ["about pears"]
    after.close()


def test_deleting_the_chat_on_the_screen_begins_a_new_one(tmp_path):
    async def flow(screen):
        await screen.ask("gone soon")
        await screen.keys("ctrl+s", "down", "d", "y")
        await screen.shows("Nothing you write leaves this machine")

    chat(tmp_path, flow)


def token(id, *shares):
    return FakeDelta(f"t{id} ", (id,), [Logprob(id, shares[0], tuple(enumerate(shares, id)))])


def test_alternatives_of_each_token(tmp_path):
    llm = FakeLLM(answers=[["plain"], [token(5, -0.01, -5.0), token(7, -1.5, -0.4)]])

    async def flow(screen):
        await screen.ask("x")
        await screen.keys("f3")
        await screen.shows("recorded from the next answer on")
        await screen.keys("ctrl+r")
        await screen.shows("t5 t7")
        await screen.idle()
        await screen.keys("f3")
        await screen.shows("▸  99.00%", "'t5'", "0.67%", "'t6'")
        await screen.keys("down")
        await screen.shows("▸  22.31%", "'t7'", "67.03%", "'t8'")
        await screen.keys("escape")

    chat(tmp_path, flow, llm)
    assert [options.get("logprobs") for _, options in llm.asked] == [None, 8]


def test_two_models_answer_side_by_side(tmp_path):
    left, right = FakeLLM(), FakeLLM("other")

    async def flow(screen):
        await screen.keys("f4")
        await screen.shows("Compare with")
        await screen.type("other")
        await screen.keys("enter")
        await screen.until(lambda: len(screen.app.screen.query("Pane")) == 2)
        await screen.shows("other", "context 0 / 4,096")
        await screen.ask("hi")
        assert screen.text().count("You said: hi") == 2
        await screen.keys("escape")
        await screen.until(lambda: right.closed)
        await screen.ask("still there")
        await screen.shows("You said: still there")

    chat(tmp_path, flow, left, right)
    assert len(left.asked) == 2 and len(right.asked) == 1


def test_the_palette_finds_commands_and_the_theme_stays(tmp_path):
    async def flow(screen):
        await screen.keys("ctrl+p")
        await screen.shows("Search for commands")
        await screen.type("light or")
        await screen.shows("Switch the theme")
        await screen.keys("enter")
        await screen.until(lambda: screen.app.theme == "localllm-light")

    async def later(screen):
        assert screen.app.theme == "localllm-light"

    chat(tmp_path, flow)
    chat(tmp_path, later)


def test_a_broken_catalogue_is_told(tmp_path):
    def choices():
        raise Unavailable("The catalogue is broken.", "Mend it.")

    async def flow(screen):
        await screen.keys("ctrl+o")
        await screen.shows("The catalogue is broken.", "Mend it.")

    chat(tmp_path, flow, doors=replace(fake_doors(tmp_path, FakeLLM()), choices=choices))
