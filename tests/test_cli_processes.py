"""The command line as a whole process: how it stops, and what its streams may be."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SLOW = """
import sys, time
sys.path.insert(0, {tests!r})
import fakes
from localllm.llm import LLM
from localllm.cli.app import build
class Slow(fakes.Ticket):
    def __iter__(self):
        for event in super().__iter__():
            yield event
            time.sleep({pause})
fakes.Ticket = Slow
LLM.open = lambda name, **options: fakes.fake_llm("word " * 400)
sys.argv = ["localllm", "run", "m", "hi"]
build()()
"""


def slow(pause: float, **options) -> subprocess.Popen:
    code = textwrap.dedent(SLOW).format(tests=str(TESTS), pause=pause)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], text=True, **pipes, **options)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_stops_the_answer_and_keeps_what_came():
    process = slow(0.02)
    assert process.stdout.read(5) == "word "
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130 and out.endswith("\n") and len(out) < 1900
    assert err == ""


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_twice_leaves():
    process = slow(5)
    assert process.stdout.read(1) == "w"
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130 and time.monotonic() - since < 4


@pytest.mark.skipif(os.name == "nt", reason="closes a pipe")
def test_any_text_can_be_printed_under_any_locale():
    code = """
from localllm.cli import printing, streams
streams.prepare()
print("naïve")
printing.write_json("naïve")
"""
    narrow = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=narrow, timeout=60)
    assert done.stdout.split() == [b"na?ve", b'"na\\u00efve"'], done.stderr


@pytest.mark.skipif(os.name == "nt", reason="closes streams as a shell does")
def test_closed_streams_are_empty_ones():
    code = "import sys; from localllm.cli import streams; streams.prepare();"
    code += "sys.stdout.write(sys.stdin.read())"
    words = f"'{sys.executable}' -c '{code}' <&- >&-"
    assert subprocess.run(words, shell=True, timeout=60).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
def test_a_full_disk_is_told_in_a_line(home):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "localllm", "list", "--all"],
            stdout=full, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
    assert done.returncode and b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_broken_pipe_is_quiet():
    process = slow(0.001)
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=20) != 0
