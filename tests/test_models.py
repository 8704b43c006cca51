"""Architectures against exact logits of llama.cpp; and what a file may not say about itself."""

import math
from pathlib import Path

import numpy as np
import pytest
import tiny
from interpreter import Interpreter, nmse
from recorded import logits

from localllm import models
from localllm.errors import BadFile, Unsupported
from localllm.gguf import GGUF
from localllm.models.rope import rope_of
from localllm.models.spec import Spec

DATA = Path(__file__).parent / "data" / "logits"
TOKENS = [
    17, 3, 99, 42, 7, 64, 120, 5, 88, 31, 2, 77, 11, 54, 101, 23, 9, 66, 48, 15, 127, 36, 80, 1,
    90, 13, 71, 28, 104, 59, 6, 33, 118, 45, 8, 97, 62, 20, 111, 39, 74, 14, 85, 50, 103, 26, 69,
    12,
]  # fmt: skip
# NMSE of llama.cpp itself, with int8 activations, times the slack of three (architectures: few
# weights, so the luck of rounding counts) and of 1.1 (formats).
ARCHITECTURES = {
    "llama-dense": 3 * 5.89e-5,
    "qwen2-dense": 3 * 2.53e-5,
    "gemma3-dense": 3 * 6.31e-5,
}
FORMATS = {
    "Q4_1": 1.1 * 1.04e-4, "Q5_0": 1.1 * 1.02e-4, "Q4_K": 1.1 * 2.44e-4, "Q6_K": 1.1 * 2.68e-4
}  # fmt: skip


# ---- right -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FORMATS])
def test_logits_are_as_close_to_exact_as_llama_cpps(name, kept_kernels):
    want = np.load(DATA / f"{name}.npy")
    with GGUF.open(DATA / f"{name}.gguf") as file:
        model = models.load(file, device="cpu", threads=2, max_rows=64)
        got = logits(model, TOKENS[: len(want)])
        model.close()
    assert nmse(got, want) < {**ARCHITECTURES, **FORMATS}[name]


@pytest.mark.parametrize("name", [*ARCHITECTURES, "Q4_K"])
def test_recorded_programs_are_exact(name):
    """The program itself, walked in f64; llama.cpp's GELU reads a table of half floats."""
    want = np.load(DATA / f"{name}.npy")
    with GGUF.open(DATA / f"{name}.gguf") as file:
        walk = Interpreter(models.record(file), file, rows8=False)
        assert nmse(walk.logits(TOKENS[: len(want)]), want) < (1e-8 if "gemma" in name else 1e-10)


def test_the_folder_is_the_list():
    assert {"llama", "qwen2", "gemma3"} <= set(models.supported())


@pytest.mark.parametrize("architecture", models.supported())
def test_the_estimate_counts_pages_and_weights(architecture, tmp_path):
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture)
    with GGUF.open(path) as file:
        some, more = models.estimate(file, 64), models.estimate(file, 128)
        assert (some.pages, more.pages) == (4, 8)
        assert more.total - some.total == 4 * some.page_bytes
        assert some.page_bytes >= 2 * 2 * 16 * 2 * 16 * 2  # layers, K and V, tokens, heads, dims
        assert some.weights == sum(info.nbytes for info in file.tensors.values())
        assert models.estimate(file).pages == 16


# ---- wrong -----------------------------------------------------------------------------------


@pytest.fixture
def edited(tmp_path):
    """edited("llama", {"key": value}) -> a file whose metadata says so; None takes a key away."""
    opened = []

    def edit(architecture, changes, **numbers):
        path = tiny.write(
            tmp_path / f"{len(opened)}.gguf", architecture=architecture, text=False, **numbers
        )
        file = GGUF.open(path)
        opened.append(file)
        keys = dict(file.metadata)
        for key, value in changes.items():
            key = key if key.startswith("general.") else f"{architecture}.{key}"
            keys[key] = value
        file.metadata = {key: value for key, value in keys.items() if value is not None}
        return file

    yield edit
    for file in opened:
        file.close()


ABSURD = {
    "block_count": [0, 10**6, None, "two", 2.5],
    "context_length": [0, 1 << 40, None],
    "embedding_length": [0, 1 << 32, 63, None],
    "attention.head_count": [0, 65, 10**9, None, "4", 5],
    "attention.head_count_kv": [0, 3, 8],
    "attention.key_length": [0, 15, 1 << 20, 32],
    "attention.value_length": [0, 1 << 20, 8],
    "rope.dimension_count": [18, 7, 1 << 30],
    "attention.layer_norm_rms_epsilon": [0.0, -1e-6, math.nan, math.inf, 1.5, None],
    "rope.freq_base": [0.0, -1.0, math.nan, math.inf, "many"],
    "rope.scaling.factor": [0.0, -2.0, math.nan, math.inf],
}
GEMMA = {
    "attention.sliding_window": [0, 1 << 40, None],
    "attention.sliding_window_pattern": [0, np.ones(1, bool)],
    "final_logit_softcapping": [-1.0, math.nan, math.inf],
    "rope.freq_base_swa": [0.0, -1.0, math.nan, math.inf],
}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
YARNS = [
    {},
    {"rope.scaling.original_context_length": 0},
    {"rope.scaling.original_context_length": 64, "rope.scaling.yarn_beta_fast": 0.0},
    {"rope.scaling.original_context_length": 64, "rope.scaling.yarn_beta_slow": math.nan},
    {"rope.scaling.original_context_length": 64, "rope.freq_base": 1.0},
    {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": math.nan},
    {"rope.scaling.original_context_length": 64, "rope.scaling.factor": 1e-300},
]
CASES = [
    (arch, {key: value}) for arch in ("llama", "gemma3") for key in ABSURD for value in ABSURD[key]
]
CASES += [("gemma3", {key: value}) for key in GEMMA for value in GEMMA[key]]
CASES += [("llama", YARN | more) for more in YARNS]


@pytest.mark.parametrize(("architecture", "changes"), CASES, ids=str)
def test_absurd_numbers_are_named(architecture, changes, edited):
    with pytest.raises(BadFile) as error:
        models.record(edited(architecture, changes))
    key = list(changes)[-1].split(".")[-1]
    words = str(error.value) + error.value.hint
    assert len(changes) > 1 or any(word in words for word in (key, "head", "wide", "columns", "of"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "perceptron"}, "perceptron"),
        ({"general.architecture": "../arch/llama"}, "../arch/llama"),
        ({"general.architecture": "__init__"}, "__init__"),
        ({"expert_count": 8, "expert_used_count": 2}, "mixture of experts"),
        ({"rope.scaling.type": "sideways", "rope.scaling.factor": 2.0}, "sideways"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(changes, named, edited):
    with pytest.raises(Unsupported) as error:
        models.record(edited("llama", changes))
    assert named in error.value.message and error.value.message.endswith(".")


def reshaped(file, name, shape=None, kind=None):
    """The same file with a tensor of another shape or type; without it when shape is ()."""
    info = file.tensors.pop(name)
    if shape != ():
        changes = {"shape": shape or info.shape, "type": kind or info.type}
        file.tensors[name] = type(info)(info.name, changes["type"], changes["shape"], info.offset,
                                        info.nbytes)  # fmt: skip
    return file


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("token_embd.weight", ()),
        ("token_embd.weight", (64,)),
        ("token_embd.weight", (320, 32)),
        ("token_embd.weight", (160, 64)),
        ("output.weight", (640, 64)),
        ("output_norm.weight", ()),
        ("blk.0.attn_norm.weight", (32,)),
        ("blk.1.attn_q.weight", (64, 32)),
        ("blk.1.attn_k.weight", (64, 64)),
        ("blk.0.attn_q.bias", (32,)),
        ("blk.1.ffn_up.weight", (48, 64)),
        ("blk.1.ffn_down.weight", ()),
    ],
)
def test_tensors_that_do_not_fit_are_named(name, shape, edited):
    file = edited("qwen2", {})
    with pytest.raises(BadFile):
        models.record(reshaped(file, name, shape))


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("blk.0.attn_q.weight", "IQ1_S", Unsupported),
        ("token_embd.weight", "Q3_K", Unsupported),
        ("output_norm.weight", "F16", BadFile),
        ("blk.0.attn_k.bias", "BF16", BadFile),
    ],
)
def test_types_that_do_not_fit_are_refused(name, kind, error, edited, kept_kernels):
    file = reshaped(edited("qwen2", {}), name, None, kind)
    with pytest.raises(error, match=name):
        models.load(file, device="cpu", threads=1)


# ---- how fast heads turn -----------------------------------------------------------------------


def speeds(edited, changes, **options):
    file = edited("llama", changes)
    return np.array(rope_of(file, Spec.of(file), "halves", **options).speeds)


def test_rope_scaling(edited):
    plain = speeds(edited, {})
    np.testing.assert_allclose(plain, 10000.0 ** (-np.arange(8) / 8))
    linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    np.testing.assert_allclose(speeds(edited, linear), plain / 4)
    np.testing.assert_allclose(speeds(edited, linear, scaled=False), plain)
    np.testing.assert_allclose(speeds(edited, {}, base=500.0), 500.0 ** (-np.arange(8) / 8))


def test_yarn_leaves_fast_dims_and_slows_the_rest(edited):
    """As YaRN's formula has it: what turns 32 times in the original context stays."""
    file = edited("llama", YARN | {"rope.scaling.original_context_length": 4096})
    rope, plain = rope_of(file, Spec.of(file), "halves"), 10000.0 ** (-np.arange(8) / 8)
    turns = 4096 * plain / (2 * np.pi)
    slowed = plain / np.array(rope.speeds)
    np.testing.assert_allclose(slowed[turns > 40], 1)
    np.testing.assert_allclose(slowed[turns < 0.7], 4)
    assert (np.diff(slowed) >= 0).all()
    assert rope.magnitude == pytest.approx(1 + 0.1 * math.log(4))
