"""What the command line writes: text, tables, figures, and signs of life."""

import io
import time

from localllm.cli.printing import stats_line, write_table, write_text
from localllm.tui.waiting import Waiting


def test_answers_give_a_terminal_no_orders(capsys):
    class Terminal:
        text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    terminal = Terminal()
    write_text("a\x1b[2Jb\tc\nd\x07\x9b", terminal)
    assert terminal.text == "a[2Jb\tc\nd"
    write_text("\x1b[2J")
    assert capsys.readouterr().out == "\x1b[2J"  # a file gets what the model said


def test_numbers_stand_to_the_right(capsys):
    write_table(("name", "size"), [("a", 5), ("long", 12.5), ("none", None)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME   SIZE",
        "a         5",
        "long  12.50",
        "none      -",
    ]


def test_waiting_names_a_stage_once_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr("localllm.tui.waiting.PATIENCE", 0)
    with Waiting() as waiting:
        for done in range(4):
            waiting("compiling", done, 3)
    assert capsys.readouterr().err == "compiling ...\n"


def test_waiting_moves_on_a_terminal_while_nothing_is_reported(monkeypatch):
    class Terminal(io.StringIO):
        encoding = "ascii"

        def isatty(self):
            return True

    monkeypatch.setattr("localllm.tui.waiting.PATIENCE", 0)
    terminal = Terminal()
    with Waiting(terminal) as waiting:
        waiting("compiling", 1, 2)
        end = time.monotonic() + 20
        while terminal.getvalue().count("compiling") < 4 and time.monotonic() < end:
            time.sleep(0.02)
    shown = terminal.getvalue()
    assert len({line[0] for line in shown.split("\r")[1:5]}) == 4, "the wheel has turned"
    assert "############............ 1/2" in shown and shown.endswith("\r\x1b[K")


def test_stats_line():
    usage = {"prompt_tokens": 1, "cached_tokens": 2, "completion_tokens": 3}
    rates = {"prompt_per_second": 4, "predicted_per_second": 5, "ttft_ms": 60, "load_ms": 700}
    line = stats_line(usage, rates)
    assert "(2 cached)" in line and "after 0.06 s" in line and "in 0.70 s" in line
    assert "guess" not in line
    line = stats_line(usage, {**rates, "draft_n": 9, "draft_n_accepted": 7})
    assert "5.0 t/s (7 of 9 guesses right)" in line
