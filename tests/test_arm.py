"""Formats on Arm: their kernels, cross-compiled and run under qemu, against NumPy."""

import os

import emulated
import naive
import numpy as np
import pytest
from blocks import random_blocks
from crosscompile import cross

from quant.formats import format_of, supported
from quant.rows import PANEL

LANES, COLUMNS, TOKENS = 4, 512, 11
ALL = os.environ.get("LOCALLLM_TEST_TARGETS") == "all"
SOME = {"neon-dotprod": ["Q4_K", "Q5_0", "Q6_K", "Q8_0", "F16"], "neon": ["Q4_1", "Q6_K"]}
# Which qemu runs them: without dot products where none may be used.
CPUS = {"neon-dotprod": "max", "neon": "cortex-a53"}

pytestmark = pytest.mark.skipif(
    bool(emulated.missing()), reason=f"{emulated.missing()} not installed"
)


@pytest.fixture(scope="module", params=CPUS)
def built(request, kernel_folder):
    """(target, formats, kernels, program)."""
    names = supported() if ALL else SOME[request.param]
    words = [
        f"quant.formats.{name.lower()}:{name.lower()}_{kind}"
        for name in names
        for kind in ("repack", "product")
    ]
    kernels = [word.split(":")[1] for word in words]
    folder = cross(request.param, words, kernel_folder)
    return request.param, names, kernels, emulated.link(folder, kernels)


def test_products_on_arm(built):
    """Right for 11 tokens, and the same bits for each of them alone."""
    target, names, kernels, program = built
    run, rng = emulated.Run(kernels), np.random.default_rng(4)
    cases = [_case(run, format_of(name), rng) for name in names]
    found = run.go(program, CPUS[target])
    for name, (out, alone, want) in zip(names, cases, strict=True):
        got = found[out][:, :TOKENS].transpose(1, 0, 2).reshape(TOKENS, -1)
        one = found[alone][:, :, 0].transpose(1, 0, 2).reshape(TOKENS, -1)
        assert np.abs(got - want).max() < 3e-6 * np.abs(want).max(), name
        np.testing.assert_array_equal(one, got, name)


def _case(run, form, rng):
    """The buffers of results, many tokens' and single ones', and what should be in them."""
    rows, lower = 3 * LANES, form.name.lower()
    blocks = random_blocks(form, rows, COLUMNS, rng)
    x = rng.normal(size=(TOKENS, COLUMNS)).astype("f4")
    weights = form.unpack(blocks.reshape(-1, form.bytes)).reshape(rows, COLUMNS)
    tiles, stride = run.buffer(np.zeros(blocks.size, np.uint8)), blocks.shape[1]
    run.call(
        f"{lower}_repack", (run.buffer(blocks), 0), (tiles, 0), stride // form.bytes, stride,
        0, rows // LANES,
    )  # fmt: skip
    source = naive.panels(x) if form.integer else x
    pitch = source.size // -(-TOKENS // PANEL) if form.integer else 4 * COLUMNS
    singles = np.stack([naive.panel(row[None], 1) for row in x]) if form.integer else x
    many, each = run.buffer(source), run.buffer(singles)
    out = run.buffer(np.zeros((rows // LANES, TOKENS + 8, LANES), np.float32))
    alone = run.buffer(np.zeros((rows // LANES, TOKENS, 1, LANES), np.float32))
    for k in range(rows // LANES):
        w = (tiles, k * stride * LANES)
        where = (out, k * (TOKENS + 8) * LANES * 4)
        blocks_of = COLUMNS // form.step
        run.call(f"{lower}_product", w, (many, 0), blocks_of, pitch, TOKENS, where)
        for t in range(TOKENS):
            x_at = (each, t * singles[0].nbytes)
            to = (alone, (k * TOKENS + t) * LANES * 4)
            one = 0 if form.integer else 4 * COLUMNS
            run.call(f"{lower}_product", w, x_at, blocks_of, one, 1, to)
    return out, alone, naive.product(weights, naive.rounded(x) if form.integer else x)
