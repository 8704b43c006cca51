"""Both terminal faces with a real model behind them: they show what the model says by itself."""

from dataclasses import replace

import pytest
from fake_doors import fake_doors
from screen import chat
from test_tui_line import Terminal

pytestmark = pytest.mark.model
QUESTION = "Name three colours."
GREEDY = {"temperature": 0.0, "max_tokens": 24}


@pytest.fixture
def opened(open_llm, model_path):
    llm = open_llm(model_path("smollm2"), context=512)
    reply = llm.chat([{"role": "user", "content": QUESTION}], **GREEDY)
    return llm, reply.text.split()[:4]


def test_line_mode(opened, monkeypatch):
    llm, words = opened
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    terminal.open = lambda name, progress: llm
    shown = terminal.type(f"{QUESTION}\r", "/stats\r", "/bye\r", sampling=GREEDY, history=False)
    assert " ".join(words) in " ".join(shown.split())
    assert "24 tokens" in shown and " t/s" in shown and " / 512" in shown


def test_full_screen(opened, tmp_path):
    llm, words = opened

    async def flow(screen):
        screen.app._talk.options.update(GREEDY)
        screen.app._talk.records_alternatives = True
        await screen.ask(QUESTION)
        await screen.shows(" ".join(words[:2]), " t/s", " / 512")
        await screen.keys("f3")
        await screen.shows("▸", "%", words[0])

    doors = fake_doors(tmp_path)
    chat(tmp_path, flow, doors=replace(doors, open=lambda name, progress: llm))
