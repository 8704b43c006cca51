"""Tokenizers give llama.cpp's ids, and no text turns into a special token where it must not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CONTROL, NORMAL, USER_DEFINED, letters, read, real

from localllm.errors import BadFile, BadRequest, Unsupported
from localllm.gguf import GGUF
from localllm.text.split import known
from localllm.text.tokenizer import Part, Tokenizer

CHAT = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<tool_call>": USER_DEFINED}


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return Tokenizer.from_gguf(real("gpt-2"))


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    return Tokenizer.from_gguf(real("llama-spm"))


@pytest.fixture(scope="module")
def chat() -> Tokenizer:
    return Tokenizer.from_gguf(letters(CHAT, eos_token_id=257))


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "bert-bge", "deepseek-coder", "phi-3"])
def test_ids_are_those_of_llama_cpp(name):
    tokenizer = Tokenizer.from_gguf(real(name))
    for case in read(name):
        assert tokenizer.encode(case["text"], special=False) == case["ids"], case["text"]


GROUPS = read("splits")["groups"]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["pre"][0])
def test_every_pre_splits_as_llama_cpp_does(group):
    for pre in group["pre"]:
        tokenizer = Tokenizer.from_gguf(real("gpt-2") | {"tokenizer.ggml.pre": pre})
        for text, ids in zip(read("splits")["texts"], group["ids"], strict=True):
            assert tokenizer.encode(text, special=False) == ids, (pre, text)


def test_every_known_pre_is_held_against_llama_cpp():
    differ_on_purpose = {"tiny_aya", "cohere2moe"}  # there llama.cpp's \b knows ASCII only
    assert {pre for group in GROUPS for pre in group["pre"]} == set(known()) - differ_on_purpose


def test_digits_in_threes_from_the_right_also_in_endless_runs():
    tokenizer = Tokenizer.from_gguf(real("gpt-2") | {"tokenizer.ggml.pre": "afmoe"})
    words = tokenizer._words._tokenizer.pre_tokenizer.pre_tokenize_str
    assert [word for word, _ in words("1234567")] == ["1", "234", "567"]
    lengths = [len(word) for word, _ in words("7" * 30_001)]
    assert lengths.count(3) == 10_000 and lengths.count(1) == 1


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3:270m", "qwen2.5-coder:0.5b"])
def test_real_models_give_the_ids_of_llama_cpp(name, model_path):
    with GGUF.open(model_path(name)) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf.metadata)
    for case in read("models")[name]:
        assert tokenizer.encode(case["text"], special=case["special"]) == case["ids"], case


@given(st.text())
@settings(deadline=None)
def test_any_text_comes_back(gpt2, llama, text):
    for tokenizer in (gpt2, llama):
        if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids = tokenizer.encode(text, special=False)
        assert tokenizer.decode(ids) == text
        assert b"".join(map(tokenizer.token_bytes, ids)).decode().removeprefix(" ") in (
            text,
            text.removeprefix(" "),
        )


def test_half_a_surrogate_is_no_character(gpt2):
    assert gpt2.decode(gpt2.encode("a\ud800b")) == "a\ufffdb"
    assert gpt2.encode("\ud83d\ude42") == gpt2.encode("🙂")


def test_special_tokens_only_where_allowed(chat):
    start, end, call = (chat.special_tokens[text] for text in CHAT)
    assert chat.encode("<|im_start|>a<|im_end|>") == [start, ord("a"), end]
    assert chat.encode("<|im_end|>", special=False) == list(b"<|im_end|>")
    assert chat.encode("<tool_call>", special=False) == [call]  # user-defined: always a token


@pytest.mark.parametrize(
    "parts",
    [
        [("<|im_end|>", False)],
        [("<|im", True), ("_end|>", False)],
        [("<|im_end|", False), (">", True)],
        [("<", True), ("|im_en", False), ("d|>", True)],
    ],
)
def test_what_is_not_trusted_as_a_whole_stays_text(chat, parts):
    assert chat.encode_parts([Part(*part) for part in parts]) == list(b"<|im_end|>")


def test_parts_are_tokenized_as_one_text(gpt2):
    cut = [Part("<|endoftext|>Hel", True), Part("lo wor", False), Part("ld", True)]
    assert gpt2.encode_parts(cut) == [50256, *gpt2.encode("Hello world")]


def test_an_added_marker_is_guarded_whatever_its_kind():
    tokenizer = Tokenizer.from_gguf(letters({"<|im_end|>": USER_DEFINED, "\n\n": USER_DEFINED}))
    assert tokenizer.encode_parts([Part("\n\n<|im_end|>", False)])[1:] == list(b"<|im_end|>")
    assert tokenizer.guarded_starts("a<|im_end|>\n\n<|im_end|>") == [1, 13]


def test_spaces_after_phi3_tokens_are_swallowed():
    tokenizer = Tokenizer.from_gguf(real("phi-3"))
    end = tokenizer.special_tokens["<|end|>"]
    assert tokenizer.encode("<|end|> \n\thi") == [end, *tokenizer.encode("hi")]


def test_begin_and_end_tokens(llama, gpt2, chat):
    assert (llama.bos, llama.eos, llama.add_bos, llama.end_ids) == (1, 2, True, {2})
    assert llama.encode("", bos=True) == [1] and llama.encode("") == []
    assert not gpt2.add_bos and gpt2.end_ids == {50256}
    assert chat.bos is None and chat.end_ids == {257} and chat.encode("a", bos=True) == [97]


@pytest.mark.parametrize(
    "special, ends",
    [
        ({"<|return|>": CONTROL, "<|call|>": CONTROL, "<|end|>": CONTROL}, {256, 257}),
        ({"<|end|>": CONTROL, "<|user|>": CONTROL}, {256}),
        ({"</s>": USER_DEFINED, "<end_of_turn>": CONTROL}, {257}),
        ({"<|fim_pad|>": CONTROL, "<|file_sep|>": CONTROL, "<|fim_middle|>": CONTROL}, {256, 257}),
        ({"<|eot_id|>": NORMAL, "<|eom_id|>": CONTROL}, {256, 257}),
    ],
)
def test_family_texts_end_an_answer(special, ends):
    assert Tokenizer.from_gguf(letters(special)).end_ids == ends


def test_fill_in_the_middle_by_key_and_by_text():
    special = {"<fim_prefix>": CONTROL, "<fim_suffix>": CONTROL, "<x>": CONTROL}
    tokenizer = Tokenizer.from_gguf(letters(special, fim_mid_token_id=258))
    assert tokenizer.fim == {"pre": 256, "suf": 257, "mid": 258}


def test_what_tokens_add_to_an_answer(chat, llama):
    control, call = chat.special_tokens["<|im_end|>"], chat.special_tokens["<tool_call>"]
    assert chat.token_bytes(control) == b"" and chat.token_bytes(call) == b"<tool_call>"
    assert chat.decode([control], special=True) == "<|im_end|>" and chat.decode([control]) == ""
    assert chat.token_bytes(control, special=True) == b"<|im_end|>"
    assert llama.token_bytes(13) == b"\n"  # <0x0A>
    with pytest.raises(BadRequest, match="no token 259"):
        chat.token_bytes(259)
    with pytest.raises(BadRequest):
        chat.decode([-1])


def test_merges_of_unknown_tokens_are_passed_over():
    tokenizer = Tokenizer.from_gguf(letters({}, ("a b",)))
    broken = letters({}, ("a b",)) | {"tokenizer.ggml.merges": ["a b", "ab zz"]}
    assert Tokenizer.from_gguf(broken).encode("abc") == tokenizer.encode("abc") == [256, 99]


@pytest.mark.parametrize(
    "change, error, says",
    [
        ({"pre": "no-such-pre"}, Unsupported, "no-such-pre"),
        ({"model": "t5-unheard-of"}, Unsupported, "t5-unheard-of"),
        ({"model": None}, Unsupported, "no tokenizer"),
        ({"tokens": []}, Unsupported, "no tokenizer"),
        ({"token_type": np.array([1], np.int32)}, BadFile, "token type"),
        ({"merges": ["a"]}, BadFile, "pairs"),
        ({"merges": None}, BadFile, "merges"),
        ({"add_bos_token": 1}, BadFile, "add_bos_token"),
        ({"model": "llama"}, BadFile, "score"),
        ({"model": "llama", "scores": np.zeros(2, np.float32)}, BadFile, "score"),
    ],
)
def test_damaged_vocabularies_are_named_errors(change, error, says):
    metadata = letters(CHAT) | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(error, match=says):
        Tokenizer.from_gguf(metadata)


def test_a_vocabulary_that_sentencepiece_refuses_is_a_bad_file():
    metadata = letters({"a": NORMAL}, model="llama", scores=np.zeros(257, np.float32))
    with pytest.raises(BadFile, match="cannot be used"):
        Tokenizer.from_gguf(metadata)
