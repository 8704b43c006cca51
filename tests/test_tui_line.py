"""Line mode: what is typed goes in through a pipe, what is printed comes out as text."""

import io
import re
import signal
import threading

import pytest
from fakes_tui import FakeDelta, FakeLLM
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from localllm.errors import BadFile, NotFound, Unavailable
from localllm.sampling import Sampling
from localllm.tui import export
from localllm.tui.history import History
from localllm.tui.line import chat_loop

SGR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """Types keys into chat_loop and keeps what it printed."""

    def __init__(self, *llms: FakeLLM):
        self.llms = {llm.name: llm for llm in llms}
        self.code: int | None = None

    def open(self, name, progress):
        progress("loading", 1, 2)
        if name not in self.llms:
            raise NotFound(f"There is no model {name}.", "localllm list shows them.")
        return self.llms[name]

    def type(self, *keys: str, model: str = "fake", **options) -> str:
        out = io.StringIO()
        output = Vt100_Output(out, lambda: Size(rows=40, columns=80), term="xterm-256color")
        with create_pipe_input() as keyboard:
            keyboard.send_text("".join(keys))
            self.code = chat_loop(self.open, model, input=keyboard, output=output, **options)
        self.raw = out.getvalue()
        return SGR.sub("", self.raw)


@pytest.fixture
def terminal(home, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    llm = FakeLLM(defaults=Sampling())
    terminal = Terminal(llm, FakeLLM("other", defaults=Sampling()))
    terminal.llm = llm
    return terminal


def asked(terminal, at=-1):
    return [m["content"] for m in terminal.llm.asked[at][0]]


def test_a_chat_keeps_what_was_said(terminal):
    shown = terminal.type("hello\r", "again\r", "/bye\r")
    assert "You said: hello" in shown and "You said: again" in shown
    assert asked(terminal) == ["hello", "You said: hello ", "again"]
    assert terminal.code == 0 and terminal.llm.closed


def test_a_served_model_is_said_to_be_one_and_opened_again_when_its_server_has_gone(terminal):
    served = FakeLLM(server="http://127.0.0.1:1", answers=[["First."], [Unavailable("Gone.")]])
    llms = [served, terminal.llm]
    terminal.open = lambda name, progress: llms.pop(0)
    shown = terminal.type("one\r", "/show model\r", "two\r", "\r", "/bye\r")
    assert "fake is loaded in the server at http://127.0.0.1:1" in shown
    assert shown.count("in the server at") == 2, "said when it was opened, and by /show model"
    assert "Gone." in shown and "open again" in shown
    assert asked(terminal) == ["one", "First.", "two"]


def test_a_long_message_that_got_no_answer_does_not_hide_why(terminal):
    terminal.llm.context = 40
    many = "\n".join(f"line {i}" for i in range(99))
    shown = terminal.type(f"\x1b[200~{many}\x1b[201~", "\r", "/show messages\r", "/bye\r")
    assert "40 tokens is full" in shown and "The up key brings your message back." in shown
    assert "Nothing has been said yet." in shown and terminal.llm.asked == []


def test_control_d_leaves(terminal):
    terminal.type("\x04")
    assert terminal.code == 0


def test_a_model_that_is_not_there_ends_with_its_message(terminal):
    shown = terminal.type(model="nope")
    assert terminal.code == 1
    assert "There is no model nope." in shown and "localllm list shows them." in shown


def test_three_quotes_hold_several_lines(terminal):
    terminal.type('"""one\r', "two\r", '"""\r', "/bye\r")
    assert asked(terminal) == ["one\ntwo"]


def test_a_paste_with_newlines_does_not_send(terminal):
    terminal.type("\x1b[200~one\ntwo\x1b[201~", "!\r", "/bye\r")
    assert asked(terminal) == ["one\ntwo!"]


def test_a_path_is_a_question_not_a_command(terminal):
    terminal.type("/usr/bin is what?\r", "/bye\r")
    assert asked(terminal) == ["/usr/bin is what?"]


def test_an_unknown_command_is_named(terminal):
    assert "There is no command /frob." in terminal.type("/frob\r", "/bye\r")
    assert terminal.llm.asked == []


def test_help_lists_every_command(terminal):
    shown = terminal.type("/help\r", "/bye\r")
    names = "help model system set show save load retry edit undo clear file copy stats bye"
    for name in names.split():
        assert f"/{name} " in shown


def test_markdown_is_rendered_and_plain_is_not(terminal):
    terminal.llm.answers = [["# Tit", "le\n\nsome **bo", "ld** text\n"]] * 2
    shown = terminal.type("x\r", "/bye\r")
    assert "Title\n\nsome bold text\n" in shown and "\x1b[1m" in terminal.raw
    shown = terminal.type("x\r", "/bye\r", plain=True)
    assert "# Title\n\nsome **bold** text\n" in shown


@pytest.mark.parametrize("variable, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_environment_can_ask_for_plain(terminal, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    terminal.llm.answers = [["**bold**"]]
    assert "**bold**\n" in terminal.type("x\r", "/bye\r")


def test_the_model_cannot_send_control_codes(terminal):
    terminal.llm.answers = [["a\x1b]52;c;AAAA\x07b\x9b2J"]] * 2
    for plain in (True, False):
        terminal.type("x\r", "/bye\r", plain=plain)
        assert "\x1b]52" not in terminal.raw and "\x9b" not in terminal.raw


def test_control_c_keeps_the_partial_answer(terminal):
    terminal.llm.answers = [["one ", "two ", 60.0, "three"], ["fine"]]

    def interrupt():
        while not (terminal.llm.replies and terminal.llm.replies[0].text == "one two "):
            pass
        signal.raise_signal(signal.SIGINT)

    pressing = threading.Thread(target=interrupt)
    pressing.start()
    shown = terminal.type("x\r", "and?\r", "/bye\r")
    pressing.join()
    assert "stopped; what there is stays" in shown
    assert asked(terminal) == ["x", "one two ", "and?"]


def test_system_and_settings_go_with_the_request(terminal):
    shown = terminal.type(
        "/system Be brief.\r", "/set temp 0\r", "/set max_tokens 5\r", "/set top_k auto\r",
        "/set seed x\r", "/set temperature 1000\r", "/set nothing 1\r", "hi\r", "/show settings\r",
        "/bye\r", sampling={"min_p": 0.2},
    )  # fmt: skip
    messages, options = terminal.llm.asked[-1]
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert options == {"temperature": 0.0, "max_tokens": 5, "min_p": 0.2}
    assert "seed must be a whole number" in shown and "from 0 to 100" in shown
    assert "There is no setting 'nothing'" in shown
    assert re.search(r"\* temperature +0 ", shown)


def test_retry_undo_and_edit(terminal):
    terminal.type("a\r", "b\r", "/retry\r", "/undo\r", "/edit\r", "c\r", "/bye\r")
    assert asked(terminal, 2) == ["a", "You said: a ", "b"]
    assert asked(terminal, 3) == ["ac"]


def test_undo_with_nothing_said(terminal):
    assert "nothing to take back" in terminal.type("/undo\r", "/bye\r")


def test_clear_and_model(terminal):
    shown = terminal.type("a\r", "/clear\r", "/model nope\r", "/model other\r", "b\r", "/bye\r")
    assert "There is no model nope." in shown and "Now talking to other." in shown
    assert terminal.llms["other"].asked[0][0] == [{"role": "user", "content": "b"}]
    assert terminal.llm.closed


def test_file_and_copy(terminal, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    terminal.llm.answers = [["```py\ny = 2\n```\n"]]
    terminal.type(f"/file {tmp_path / 'a.py'}\r", "what?\r", "/copy code\r", "/bye\r")
    assert asked(terminal)[0].endswith("a.py:\n```py\nx = 1\n```")
    assert "\x1b]52;c;eSA9IDIK\x07" in terminal.raw


def test_save_and_load_by_file_and_by_title(terminal, home, tmp_path):
    file = tmp_path / "c.json"
    terminal.type("a\r", f"/save {file}\r", "/save My chat\r", "/bye\r")
    assert [m["content"] for m in export.read(file)["messages"]] == ["a", "You said: a "]
    for source in (str(file), "My chat"):
        terminal.type(f"/load {source}\r", "b\r", "/bye\r")
        assert asked(terminal) == ["a", "You said: a ", "b"]
    stored = History(home / "data" / "chats.db")
    assert [e.title for e in stored.find()] == ["My chat"]
    stored.close()


def test_lines_are_kept_unless_the_user_says_no(terminal, home):
    file = home / "data" / "prompts"
    terminal.type("secret one\r", "/bye\r", history=False)
    assert not file.exists()
    terminal.type("/set history off\r", "secret two\r", "/bye\r")
    terminal.type("known\r", "/bye\r")
    assert "known" in file.read_text() and "secret" not in file.read_text()


def test_a_message_that_does_not_fit_is_refused_and_offered_again(terminal):
    terminal.llm.context = 40
    shown = terminal.type("w " * 30 + "\r", "\x15short\r", "/bye\r")
    assert "The context of 40 tokens is full" in shown
    assert len(terminal.llm.asked) == 1 and asked(terminal) == ["short"]


def test_a_file_that_does_not_fit_stays_attached_and_only_the_line_is_offered(terminal, tmp_path):
    (tmp_path / "a.txt").write_text("w " * 50)
    terminal.llm.context = 60
    shown = terminal.type(
        f"/file {tmp_path / 'a.txt'}\r", "what?\r", "\x15/clear\r", "what?\r", "/bye\r"
    )
    assert shown.count("is full") == 1 and asked(terminal) == ["what?"]


def test_a_nearly_full_context_is_told(terminal):
    terminal.llm.context = 40
    terminal.llm.answers = [[f"w{i} " for i in range(36)]]
    assert "The context is nearly full: 37 / 40" in terminal.type("x\r", "/bye\r")


def test_an_error_in_the_middle_takes_the_question_back(terminal):
    terminal.llm.answers = [["half", BadFile("The file changed.")], ["fine"]]
    shown = terminal.type("x\r", "!\r", "/bye\r")
    assert "The file changed." in shown
    assert asked(terminal) == ["x!"]


def test_reasoning_is_dim_and_apart(terminal):
    terminal.llm.answers = [["<thi", "nk>hm", "m</think>", "\n\nyes"]]
    shown = terminal.type("x\r", "/bye\r")
    assert "hmm\n\nyes\n" in shown and "<think>" not in shown
    assert re.search(r"\x1b\[2m\S*hmm", terminal.raw)


def test_a_long_prompt_shows_how_far_it_is(terminal, monkeypatch):
    monkeypatch.setattr("localllm.tui.answer.PATIENCE", 0.0)
    terminal.llm.answers = [[FakeDelta(progress=(512, 2048)), "yes"]]
    shown = terminal.type("x\r", "/bye\r")
    assert "reading the prompt" in shown and "512 / 2,048" in shown and " left" in shown


def test_stats_after_each_answer_when_wanted(terminal):
    shown = terminal.type("/set stats on\r", "x\r", "/stats\r", "/bye\r")
    assert shown.count("42.0 t/s") == 2 and "context 4 / 4,096" in shown


def test_a_base_model_goes_on_with_the_text(terminal):
    terminal.llm.template = None
    prompts = []
    terminal.llm.generate = lambda text, **options: (
        prompts.append(text) or terminal.llm.chat([{"role": "user", "content": text}])
    )
    terminal.type("Once upon\r", "/bye\r")
    assert prompts == ["Once upon"]
