"""The full-screen chat, flow by flow: keys go in, the rendered screen is read."""

import threading
import time
from dataclasses import replace

import pytest
from fake_doors import fake_doors
from fakes_tui import FakeDelta, FakeLLM
from screen import SMALL, WIDE, chat

from localllm.errors import BadFile, Cancelled, Unavailable
from localllm.tui.bubble import Bubble
from localllm.tui.history import History
from localllm.tui.prompt import Prompt


@pytest.mark.parametrize("size", [WIDE, SMALL])
def test_a_question_is_answered(tmp_path, size):
    llm = FakeLLM(answers=[["Some **bold** ", "text.\n\n```python\nx = 1\n```\n"]])

    async def flow(screen):
        await screen.shows("Nothing you write leaves this machine", "fake", "context 0 / 4,096")
        await screen.ask("hello there")
        await screen.shows("You", "hello there", "Some bold text.", "python", "copy", "x = 1")
        await screen.shows("42.0 t/s", "first after 0.21 s", "context 4 / 4,096")

    chat(tmp_path, flow, llm, size=size)
    assert llm.asked[0][0] == [{"role": "user", "content": "hello there"}]
    assert llm.closed
    stored = History(tmp_path / "chats.db")
    (entry,) = stored.find("bold")
    assert entry.title == "hello there" and entry.model == "fake"
    assert [t.done for t in stored.get(entry.id).path()] == [True, True]
    stored.close()


def test_a_served_model_is_said_to_be_one_and_opened_again_when_its_server_has_gone(tmp_path):
    served = FakeLLM(server="http://127.0.0.1:1", answers=[[Unavailable("Gone.")]])
    here = FakeLLM()
    llms = [served, here]
    doors = replace(fake_doors(tmp_path, here), open=lambda name, progress: llms.pop(0))

    async def flow(screen):
        await screen.shows("in the server at http://127.0.0.1:1")
        await screen.ask("hello")
        await screen.shows("Gone.", "opened again")
        await screen.until(lambda: screen.app._talk.llm is here)
        await screen.hides("in the server at")
        await screen.keys("ctrl+r")
        await screen.shows("You said: hello")

    chat(tmp_path, flow, doors=doors)


def test_a_history_that_cannot_be_kept_is_told(tmp_path):
    async def flow(screen):
        await screen.shows("Chats are lost when you leave")
        await screen.ask("hello")
        await screen.shows("You said: hello")

    doors = fake_doors(tmp_path, FakeLLM())
    (tmp_path / "chats.db").mkdir()
    chat(tmp_path, flow, doors=doors)


def test_enter_sends_and_other_keys_break_the_line(tmp_path):
    llm = FakeLLM()

    async def flow(screen):
        await screen.type("one")
        await screen.keys("ctrl+j")
        await screen.ask("two")
        assert llm.asked[0][0][0]["content"] == "one\ntwo"

    chat(tmp_path, flow, llm)


def test_escape_stops_and_keeps_the_partial_answer(tmp_path):
    llm = FakeLLM(answers=[["one ", "two ", 60.0, "three"]])

    async def flow(screen):
        await screen.type("x")
        await screen.keys("enter")
        await screen.shows("one two", " t/s")
        await screen.type("more")
        await screen.keys("enter")
        await screen.shows("still answering")
        await screen.keys("escape")
        await screen.shows("stopped")
        await screen.ask("")
        assert [m["content"] for m in llm.asked[-1][0]] == ["x", "one two ", "more"]

    chat(tmp_path, flow, llm)


def test_retry_makes_branches_and_keys_walk_over_them(tmp_path):
    llm = FakeLLM(answers=[["primo"], ["second"], ["third"]])

    async def flow(screen):
        await screen.ask("x")
        await screen.keys("ctrl+r")
        await screen.shows("second", "‹ 2/2 ›")
        assert "primo" not in screen.text()
        await screen.idle()
        await screen.keys("up", "left")
        await screen.shows("primo", "‹ 1/2 ›")
        await screen.keys("r")
        await screen.shows("third", "‹ 3/3 ›")

    chat(tmp_path, flow, llm)
    assert [len(messages) for messages, _ in llm.asked] == [1, 1, 1]


def test_an_earlier_message_is_edited_into_a_branch(tmp_path):
    llm = FakeLLM()

    async def flow(screen):
        await screen.ask("alpha")
        await screen.ask("beta")
        await screen.keys("up", "up", "up", "up", "e")
        await screen.shows("Editing an earlier message")
        await screen.ask("bet")
        await screen.shows("You said: alphabet", "‹ 2/2 ›")
        assert "beta" not in screen.text()

    chat(tmp_path, flow, llm)
    assert llm.asked[-1][0] == [{"role": "user", "content": "alphabet"}]


def test_an_edit_can_be_left(tmp_path):
    async def flow(screen):
        await screen.ask("alpha")
        await screen.keys("up", "up", "e", "escape")
        assert "Editing" not in screen.text()
        assert screen.app.screen.query_one(Prompt).text == ""

    chat(tmp_path, flow)


def test_reasoning_is_folded(tmp_path):
    llm = FakeLLM(answers=[["<think>", "secret thoughts", "</think>", "The answer."]])

    async def flow(screen):
        await screen.ask("x")
        await screen.shows("Thinking", "The answer.")
        assert "secret thoughts" not in screen.text()
        await screen.keys("up", "t")
        await screen.shows("secret thoughts")

    chat(tmp_path, flow, llm)


def test_an_error_is_shown_in_the_bubble_and_can_be_retried(tmp_path):
    llm = FakeLLM(answers=[["half ", BadFile("The file changed.", "Open it again.")], ["fine"]])

    async def flow(screen):
        await screen.ask("x")
        await screen.shows("half", "The file changed. Open it again.")
        await screen.keys("ctrl+n", "ctrl+s", "down", "enter")
        await screen.shows("half", "The file changed. Open it again.")
        await screen.keys("ctrl+r")
        await screen.shows("fine")

    chat(tmp_path, flow, llm)


def test_a_bug_below_does_not_end_the_app(tmp_path):
    llm = FakeLLM(answers=[[ZeroDivisionError("oops")]])

    async def flow(screen):
        await screen.ask("x")
        await screen.shows("Something unexpected went wrong", "oops")

    chat(tmp_path, flow, llm)


def test_a_long_prompt_shows_how_far_it_is(tmp_path):
    llm = FakeLLM(answers=[[FakeDelta(progress=(512, 2048)), 30.0]])

    async def flow(screen):
        await screen.type("x")
        await screen.keys("enter")
        await screen.shows("reading the prompt", "512 / 2,048", "left")
        await screen.keys("escape")

    chat(tmp_path, flow, llm)


def test_a_full_context_is_told(tmp_path):
    llm = FakeLLM(context=10, answers=[[f"w{i} " for i in range(9)]])

    async def flow(screen):
        await screen.ask("x")
        await screen.shows("The context is nearly full: 10 / 10")

    chat(tmp_path, flow, llm)


def test_a_question_waits_for_the_model(tmp_path):
    doors, loaded = fake_doors(tmp_path, FakeLLM()), threading.Event()

    def open(name, progress):
        loaded.wait(10)
        return doors.open(name, progress)

    async def flow(screen):
        await screen.type("early")
        await screen.keys("enter")
        await screen.shows("You", "early", "opening")
        loaded.set()
        await screen.shows("You said: early")

    chat(tmp_path, flow, doors=replace(doors, open=open))


def test_copy_goes_to_the_clipboard(tmp_path):
    llm = FakeLLM(answers=[["see\n```py\ny = 2\n```\nand\n```sh\nls\n```\n"]])

    async def flow(screen):
        await screen.ask("x")
        await screen.keys("up", "k")
        assert screen.app.clipboard == "ls\n"
        await screen.keys("c")
        assert screen.app.clipboard.startswith("see\n```py")
        row = next(y for y, line in enumerate(screen.text().splitlines()) if " py" in line)
        await screen.pilot.click(offset=(screen.app.size.width - 6, row))
        assert screen.app.clipboard == "y = 2"

    chat(tmp_path, flow, llm)


def test_what_was_cut_off_by_a_crash_is_there_again(tmp_path):
    before = History(tmp_path / "chats.db")
    stored = before.create(title="Old talk")
    before.add(stored, "user", "count")
    cut = before.add(stored, "assistant", model="fake", done=False)
    before.append(cut.id, "one two thr")
    before.close()

    async def flow(screen):
        await screen.keys("ctrl+s", "down", "enter")
        await screen.shows("count", "one two thr", "cut off")

    chat(tmp_path, flow)


def test_an_answer_goes_on_while_another_chat_is_shown(tmp_path):
    llm = FakeLLM(answers=[["one ", 0.6, "two"], ["other"]])

    async def flow(screen):
        await screen.type("slow")
        await screen.keys("enter")
        await screen.shows("one")
        await screen.keys("ctrl+n")
        await screen.ask("quick")
        await screen.shows("other")
        await screen.pilot.pause(0.8)
        await screen.keys("ctrl+s", "down", "down", "enter")
        await screen.shows("one two")

    chat(tmp_path, flow, llm)


def test_a_long_conversation_shows_its_end_first(tmp_path):
    before = History(tmp_path / "chats.db")
    stored = before.create(title="Long")
    for number in range(50):
        before.add(stored, "user", f"question {number}")
        before.add(stored, "assistant", f"answer {number}.")
    before.close()

    async def flow(screen):
        await screen.keys("ctrl+s", "down", "enter")
        await screen.shows("answer 49.")
        assert len(screen.app.screen.query(Bubble)) == 20
        screen.app.screen.query_one("Earlier").focus()
        await screen.keys("enter")
        await screen.until(lambda: len(screen.app.screen.query(Bubble)) == 40)
        assert screen.app.screen.query(Bubble).first().turn.content == "question 30"

    chat(tmp_path, flow)


def test_markup_in_what_is_said_stays_text(tmp_path):
    llm = FakeLLM("we[b]ird", answers=[["[red]no[/red]"]])

    async def flow(screen):
        await screen.ask("[bold]x[/bold] [")
        await screen.shows("[bold]x[/bold] [", "[red]no[/red]", "we[b]ird")

    chat(tmp_path, flow, llm, model="we[b]ird")


def test_enter_in_the_same_burst_as_the_text_sends_all_of_it(tmp_path):
    llm = FakeLLM()

    async def flow(screen):
        for char in "hello":
            screen.app.simulate_key(char)
        screen.app.simulate_key("enter")
        await screen.shows("You said: hello")
        assert llm.asked[0][0][0]["content"] == "hello"

    chat(tmp_path, flow, llm)


def test_control_codes_of_a_model_do_not_reach_the_terminal(tmp_path):
    llm = FakeLLM(answers=[["a\x1b]52;c;AAAA\x07b \x1b[2J\n```\nc\x1b[31m\n```\n"]])

    async def flow(screen):
        await screen.ask("x\x9b")
        strips = screen.app.screen._compositor.render_strips()
        drawn = "".join(segment.text for strip in strips for segment in strip)
        assert "AAAA" in drawn and not set(drawn) & {"\x1b", "\x07", "\x9b"}

    chat(tmp_path, flow, llm)


def test_quitting_does_not_wait_for_a_model_that_is_opening(tmp_path):
    doors, ended = fake_doors(tmp_path, FakeLLM()), []

    def open(name, progress):
        try:
            while True:
                time.sleep(0.05)
                progress("compiling", 1, 2)
        except Cancelled:
            ended.append(name)
            raise

    async def flow(screen):
        await screen.shows("compiling 50 %")

    chat(tmp_path, flow, doors=replace(doors, open=open))
    assert ended == ["fake"]


def test_while_an_answer_streams_the_others_are_not_laid_out_again(tmp_path, monkeypatch):
    llm = FakeLLM(answers=[["old"], ["new ", 0.5, "words ", 0.5, "come"]])
    laid_out = []
    real = Bubble._laid_out
    monkeypatch.setattr(
        Bubble, "_laid_out", lambda self, width: laid_out.append(self.turn.id) or real(self, width)
    )

    async def flow(screen):
        await screen.ask("one")
        await screen.type("two")
        await screen.keys("enter")
        await screen.shows("new")
        laid_out.clear()
        await screen.shows("new words come")
        await screen.idle()
        assert set(laid_out) == {screen.app.screen.query(Bubble).last().turn.id}

    chat(tmp_path, flow, llm)
