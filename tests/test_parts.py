"""Reasoning and tool calls come out of a text whatever its cuts, and nothing gets lost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.text.calls import Call, read_calls, read_cut
from localllm.text.parts import DIALECTS, Parts, Piece, dialect_of, opens_thinking

HERMES, MISTRAL, LLAMA3 = DIALECTS
F = '{"name": "f", "arguments": {"a": "é"}}'
CALL = [("call", "f"), ("arguments", '{"a": "é"}')]


def run(chunks, dialect=None, names=(), thinking=False):
    """All pieces, with neighbours of one kind joined."""
    parts, pieces = Parts(dialect, names, thinking), []
    for chunk in [*chunks, None]:
        for piece in parts.flush() if chunk is None else parts.push(chunk):
            assert isinstance(piece, Piece) and piece.text
            if pieces and piece.kind in ("text", "thinking") and pieces[-1][0] == piece.kind:
                pieces[-1] = (piece.kind, pieces[-1][1] + piece.text)
            else:
                pieces.append(tuple(piece))
    return pieces


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    "dialect, text, want",
    [
        (None, "  plain <tool_call> text\n", [("text", "  plain <tool_call> text\n")]),
        (None, "<think>\nhm\n</think>\n\nyes <think>",
         [("thinking", "hm"), ("text", "yes <think>")]),
        (None, " <think></think>yes", [("text", "yes")]),
        (None, "<think>and on", [("thinking", "and on")]),
        (None, "[THINK]a[/THINK]b", [("thinking", "a"), ("text", "b")]),
        (None, "<thin", [("text", "<thin")]),
        (None, "<|channel|>final<|message|>a", [("text", "a")]),
        (HERMES, f"Sure.\n<tool_call>\n{F}\n</tool_call>\n", [("text", "Sure."), *CALL]),
        (HERMES, f"<think>t</think>\n<tool_call>{F}</tool_call>", [("thinking", "t"), *CALL]),
        (HERMES, f"<tool_call>{F}</tool_call>\n<tool_call>{F}</tool_call>", [*CALL, *CALL]),
        (HERMES, f"<tool_call>{F}", CALL),
        (HERMES, "<tool_call>{oh}</tool_call> so", [("text", "<tool_call>{oh}</tool_call> so")]),
        (HERMES, "a <tool_c b <", [("text", "a <tool_c b <")]),
        (HERMES, "<tool_call>{", [("text", "<tool_call>{")]),
        (HERMES, "", []),
        (MISTRAL, f"[TOOL_CALLS] [{F}, {F}]", [*CALL, *CALL]),
        (MISTRAL, 'x[TOOL_CALLS]f[ARGS]{"a": "é"}[TOOL_CALLS]f{"a":"é"}',
         [("text", "x"), *CALL, *CALL]),
        (HERMES, F, CALL),
        (HERMES, f"{{{F}}}", CALL),
        (HERMES, f" \n{F}\n", CALL),
        (HERMES, f"```json\n{F}\n```", CALL),
        (HERMES, f"Sure:\n```json\n{F}\n```\nDone.", [("text", "Sure:"), *CALL, ("text", "Done.")]),
        (HERMES, f"```json\n[{F}, {F}]\n```", [*CALL, *CALL]),
        (HERMES, f"```json {F}```", CALL),
        (HERMES, f"```json\n{F}", CALL),
        (HERMES, f"```tool_call\n{F}\n```\n<tool_call>{F}</tool_call>", [*CALL, *CALL]),
        (HERMES, f"<tools>\n{F}\n</tools>", CALL),
        (HERMES, f"<think>so</think>\n{F}", [("thinking", "so"), *CALL]),
        (HERMES, '{"name": "g"}', [("text", '{"name": "g"}')]),
        (HERMES, '```json\n{"name": "g"}\n```', [("text", '```json\n{"name": "g"}\n```')]),
        (HERMES, 'A:\n```json\n{"x": 1}\n```\nB', [("text", 'A:\n```json\n{"x": 1}\n```\nB')]),
        (HERMES, "```python\nf()\n```", [("text", "```python\nf()\n```")]),
        (HERMES, f"```json\n{{{'w' * 70}\n<tool_call>{F}</tool_call>",
         [("text", f"```json\n{{{'w' * 70}"), *CALL]),
        (HERMES, "<tools>" + "w " * 50, [("text", "<tools>" + "w " * 50)]),
        (MISTRAL, f"```json\n{F}\n```", [("text", f"```json\n{F}\n```")]),
        (LLAMA3, '{"name": "f", "parameters": {"a": "é"}}', CALL),
        (LLAMA3, f"<|python_tag|>{F}; {F}", [*CALL, *CALL]),
        (LLAMA3, '{"name": "Bob", "age": 3}', [("text", '{"name": "Bob", "age": 3}')]),
        (LLAMA3, '{"x": 1} ' + "words " * 20, [("text", '{"x": 1} ' + "words " * 20)]),
    ],
)  # fmt: skip
def test_pieces(dialect, text, want, size):
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    assert run(chunks, dialect, names=["f"]) == want


def test_the_answer_may_begin_inside_of_reasoning():
    assert opens_thinking("<|im_start|>assistant\n<think>\n") and not opens_thinking("assistant\n")
    want = [("thinking", "so"), ("text", "yes")]
    assert run(["\nso\n</th", "ink>\n\nyes"], thinking=True) == want


def test_text_that_is_certain_does_not_wait():
    parts = Parts(HERMES)
    assert parts.push("Hello, <b") == [Piece("text", "Hello, <b")]
    assert parts.push(" <tool") == []
    assert parts.push("x>") == [Piece("text", " <toolx>")]


@pytest.mark.parametrize("text", ["<", "[TOOL", "<think", " <tool"])
def test_what_only_begins_a_mark_is_shown_at_the_end(text):
    for dialect in (None, *DIALECTS):
        assert "".join(part for _, part in run(text, dialect, ["f"])).strip() == text.strip()


MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"]
MARKS += ["```json\n", "\n```", "<tools>", "</tools>"]
WORDS = st.lists(st.sampled_from([*MARKS, F, "{", "}", "a", " ", "\n", "<", "tool", "f", '"']))


@given(WORDS, st.sampled_from([None, *DIALECTS]), st.booleans(), st.randoms())
def test_cuts_change_nothing_and_nothing_is_lost(words, dialect, thinking, random):
    text = "".join(words)
    cuts = sorted(random.choices(range(len(text) + 1), k=6))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = run([text], dialect, ["f"], thinking)
    assert run(chunks, dialect, ["f"], thinking) == run(text, dialect, ["f"], thinking) == whole
    if all(kind == "text" for kind, _ in whole):
        shown = "".join(part for _, part in whole)
        for mark in MARKS[:2]:
            text, shown = text.replace(mark, ""), shown.replace(mark, "")
        assert "".join(shown.split()) == "".join(text.split())


@pytest.mark.parametrize(
    "text, calls",
    [
        ('{"name": "f"}', [Call("f", "{}")]),
        ('{"function": {"name": "f", "arguments": "{\\"a\\": 1}"}}', [Call("f", '{"a": 1}')]),
        ('{"name": "f", "arguments": null}', [Call("f", "{}")]),
        ('{"name": "f", "arguments": {"code": "a\nb"}}', [Call("f", '{"code": "a\\nb"}')]),
        (
            "<function=f>\n<parameter=n>\n3\n</parameter>\n"
            "<parameter=s>\na b\n</parameter>\n</function>",
            [Call("f", '{"n": 3, "s": "a b"}')],
        ),
        ("", []),
        ("[]", []),
        ("3", []),
        ('{"name": 3}', []),
        ('{"name": "f", "arguments": [1]}', []),
        ('{"name": "f"} trailing words', []),
        ("[" * 100_000, []),
    ],
)  # fmt: skip
def test_reading_calls(text, calls):
    assert read_calls(text) == calls


G = '{"name": "g", "arguments": {"a": [1, "b'


@pytest.mark.parametrize(
    "dialect, text, want",
    [
        (HERMES, f"Sure.<tool_call>\n{G}", ["Sure.", "g", '{"a": [1, "b']),
        (HERMES, G, ["g", '{"a": [1, "b']),
        (HERMES, '<tool_call>{"name": "g", "argum', ["g"]),
        (HERMES, '<tool_call>{"name": "g"', ["g"]),
        (HERMES, '<tool_call>{"name": "g', ['<tool_call>{"name": "g']),
        (HERMES, '<tool_call>{"name": "other"', ['<tool_call>{"name": "other"']),
        (HERMES, f"<tool_call>{F}\n</tool_c", ["f", '{"a": "é"}']),
        (MISTRAL, f"[TOOL_CALLS][{F}, {G}", ["f", '{"a": "é"}', "g", '{"a": [1, "b']),
        (MISTRAL, f"[TOOL_CALLS][{F}", ["f", '{"a": "é"}']),
        (LLAMA3, '{"name": "g", "parameters": {"a', ["g", '{"a']),
    ],
)
def test_a_call_that_was_cut_short(dialect, text, want):
    parts = Parts(dialect, ["f", "g"])
    pieces = parts.push(text) + parts.flush(cut=True)
    assert [piece.text for piece in pieces] == want


@given(st.text(st.sampled_from(list('{}[]",:; \nfname<>=/\\01')), max_size=60))
def test_any_text_is_read_without_an_error(text):
    for call in read_calls(text):
        assert isinstance(json.loads(call.arguments), dict)
    assert all(call.name for call in read_cut(text))


@pytest.mark.parametrize(
    "template, dialect",
    [
        ("... <tool_call> ...", HERMES),
        ("[TOOL_CALLS]", MISTRAL),
        ('{"name": n, "parameters": {}} <|eot_id|>', LLAMA3),
        ("plain", None),
    ],
)
def test_dialects_by_template(template, dialect):
    assert dialect_of(template) == dialect
