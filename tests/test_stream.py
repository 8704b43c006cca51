"""Streams of text: whole characters, no stop strings, and the same whatever the cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.errors import BadRequest
from localllm.text.stream import TextStream

PIECES = st.lists(st.sampled_from(["a", "b", "c", "ab", "é", "🙂", "\n", "<end>", "<e", "d>"]))
STOPS = st.lists(
    st.sampled_from(["ab", "abc", "bc", "<end>", "é", "aab", "\n\n", "🙂a"]), max_size=4
)


def run(chunks, stops=()):
    stream = TextStream(stops)
    return [stream.push(chunk) for chunk in chunks] + [stream.flush()], stream.stopped


def expected(text, stops):
    """Letter by letter: the first stop string to be complete, the longest of equals."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


def test_half_characters_and_half_stop_strings_wait():
    chunks = [b"\xc3", b"\xa9a<e", b"x<en", b"d>zz"]
    assert run(chunks, ["<end>"]) == (["", "éa", "<ex", "", ""], "<end>")


def test_what_was_held_back_comes_at_the_end():
    assert run([b"a<en"], ["<end>"]) == (["a", "<en"], None)
    assert run([b"a\xf0\x9f"]) == (["a", "\ufffd"], None)


def test_bytes_that_are_no_text_become_replacement_characters():
    assert run([b"a\xffb\xc3(", b"\xed\xa0\x80"])[0][0] == "a\ufffdb\ufffd("


@given(PIECES, STOPS, st.randoms())
def test_cuts_change_nothing(pieces, stops, random):
    data = "".join(pieces).encode()
    cuts = sorted(random.choices(range(len(data) + 1), k=5))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    want = expected("".join(pieces), stops)
    for way in (chunks, [data], [bytes([byte]) for byte in data]):
        texts, stopped = run(way, stops)
        assert ("".join(texts), stopped) == want


@given(PIECES, STOPS)
def test_no_more_is_held_than_may_become_a_stop(pieces, stops):
    stream, text, shown = TextStream(stops), "", ""
    for piece in pieces:
        text, shown = text + piece, shown + stream.push(piece.encode())
        if stream.stopped is not None:
            return
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_stops_are_bounded():
    for stops in ([""], ["x"] * 33, ["x" * 1025]):
        with pytest.raises(BadRequest):
            TextStream(stops)
