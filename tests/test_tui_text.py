"""The small text parts of the terminal faces: thinking, files, clipboard, numbers, export."""

import base64

import pytest

from localllm.errors import BadFile, BadRequest, NotFound, TooLarge
from localllm.tui import attach, clipboard, export, meter, thinking


@pytest.mark.parametrize(
    "text, expected",
    [
        ("plain", ("", "plain")),
        ("<think>\nhm\n</think>\n\nyes", ("hm", "yes")),
        ("<think>still", ("still", "")),
        ("<think>still</thi", ("still", "")),
        ("<thi", ("", "")),
        ("a < b", ("", "a < b")),
        ("opened in the prompt</think>yes", ("opened in the prompt", "yes")),
        ("no <think> here", ("", "no <think> here")),
    ],
)
def test_thinking_is_split_off(text, expected):
    assert thinking.split(text) == expected


def test_mentioned_files_are_quoted_once(tmp_path):
    (tmp_path / "a.py").write_text("print('```')\n")
    (tmp_path / "two words.txt").write_text("hello")
    message = 'see @a.py, and @a.py and @"two words.txt" but not me@a.py or @nobody'
    whole = attach.with_files(message, tmp_path)
    assert whole.startswith(message)
    assert whole.count("a.py:\n````py\nprint('```')\n````") == 1
    assert "two words.txt:\n```txt\nhello\n```" in whole


def test_what_cannot_be_attached_says_why(tmp_path):
    (tmp_path / "bin").write_bytes(b"\0\1")
    with (tmp_path / "big").open("wb") as big:
        big.truncate(attach.LARGEST + 1)
    for name, error in [("bin", BadRequest), ("big", TooLarge), ("none", NotFound)]:
        with pytest.raises(error, match=name):
            attach.read(tmp_path / name)


def test_files_below_leaves_out_what_nobody_attaches(tmp_path):
    for name in ["b.txt", "sub/a.txt", ".git/config", "node_modules/x.js", "sub/.hidden"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert attach.files_below(tmp_path) == ["b.txt", "sub/a.txt"]
    assert attach.files_below(tmp_path, stop=lambda: True) == ["b.txt"]


def test_osc52_round_trip_and_limit():
    plain = clipboard.sequence("héllo")
    assert base64.b64decode(plain[len("\x1b]52;c;") : -1]).decode() == "héllo"
    assert clipboard.sequence("x", inside_tmux=True).startswith(clipboard.sequence("x"))
    assert "\x1bPtmux;\x1b\x1b]52" in clipboard.sequence("x", inside_tmux=True)
    assert len(clipboard.sequence("é" * 10**6)) < clipboard.LARGEST + 20


def test_code_blocks():
    text = "a\n```py\nx = 1\n```\nb\n````\n```\n````\n~~~sh\nls"
    assert clipboard.code_blocks(text) == ["x = 1\n", "```\n", "ls\n"]


def test_meter():
    stats = {
        "completion_tokens": 1234,
        "predicted_per_second": 23.44,
        "ttft_ms": 210.0,
        "prompt_tokens": 2000,
        "cached_tokens": 1500,
        "finish_reason": "length",
    }
    assert meter.speed(stats) == (
        "1,234 tokens · 23.4 t/s · first after 0.21 s · prompt 2,000 (1,500 cached) · "
        "cut at the limit"
    )
    assert meter.speed({}) == ""
    assert meter.context(3210, 8192) == "3,210 / 8,192 (39 %)"
    assert meter.is_tight(7000, 8192) and not meter.is_tight(6000, 8192)
    assert [meter.seconds(s) for s in (3.6, 125, 4200)] == ["4 s", "2 min 05 s", "1 h 10 min"]
    assert meter.progress(512, 2048, 1.0, width=8) == (
        "reading the prompt ━━────── 512 / 2,048 · 3 s left"
    )
    assert meter.progress(0, 100, 1.0, width=2) == "reading the prompt ── 0 / 100"
    assert [meter.size(n) for n in (5, 98_362_432, 1_117_320_768)] == ["5 B", "98 MB", "1.1 GB"]


def test_export_reads_back_what_it_wrote(tmp_path):
    messages = [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "ho"}]
    export.write(tmp_path / "c.json", "T", "m", messages)
    assert export.read(tmp_path / "c.json") == {"title": "T", "model": "m", "messages": messages}
    export.write(tmp_path / "c.md", "T", "m", messages)
    assert (tmp_path / "c.md").read_text("utf-8") == "# T\n\n## You\n\nhé\n\n## m\n\nho\n"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"messages": [{"role": "root", "content": "x"}]}', "[" * 100_000]
)
def test_export_refuses_other_files(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(BadFile, match=r"c\.json"):
        export.read(tmp_path / "c.json")
