"""Programs in two parts: where they are cut, how many layers fit, and that both give the whole."""

from dataclasses import replace

import numpy as np
import pytest
import tiny

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")

from interpreter import Interpreter, nmse  # noqa: E402
from recorded import logits  # noqa: E402

from localllm import models  # noqa: E402
from localllm.backends.torch import opening  # noqa: E402
from localllm.backends.torch.attention import page_bytes  # noqa: E402
from localllm.backends.torch.cut import cut  # noqa: E402
from localllm.backends.torch.device import Device, open_device  # noqa: E402
from localllm.backends.torch.plan import LEAST, demand, plan  # noqa: E402
from localllm.batch import PAGE  # noqa: E402
from localllm.errors import BadRequest, TooLarge, Unsupported  # noqa: E402
from localllm.fit import CONTEXTS, SHARE  # noqa: E402
from localllm.gguf import GGUF  # noqa: E402
from localllm.program import Op, Program  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_kernels")
LAYERS = 4
IDS = np.random.default_rng(5).integers(0, 320, 70).tolist()
SIZES = {"pages": 16, "rows": 64}
ASKED = {**SIZES, "asked": True}
SMALL = Device("a small GPU", "cuda", exact=False, chunk=1 << 12)


@pytest.fixture(params=models.supported())
def file(request, tmp_path):
    numbers = {"architecture": request.param, "layers": LAYERS, "text": False}
    with GGUF.open(tiny.write(tmp_path / "m.gguf", **numbers)) as file:
        yield file


# ---- cutting -----------------------------------------------------------------------------------


def test_the_parts_are_the_whole_with_one_value_between(file):
    program = models.record(file)
    for layers in range(1, LAYERS):
        first, rest = cut(program, layers)
        assert (len(first.layers), len(rest.layers)) == (layers, LAYERS - layers)
        assert [a.layer for a in rest.layers] == list(range(LAYERS - layers))
        assert [op.kind for op in first.ops + rest.ops[1:]] == [op.kind for op in program.ops]
        assert rest.ops[0].width == first.ops[-1].width == 64
        assert all(j < i for i, op in enumerate(rest.ops) for j in op.inputs)


@pytest.mark.parametrize("layers", [0, LAYERS, LAYERS + 3])
def test_a_cut_has_two_sides(file, layers):
    with pytest.raises(Unsupported):
        cut(models.record(file), layers)


def test_two_values_cannot_cross(file):
    program = models.record(file)
    last = program.ops[-1]
    early = Op("add", (last.inputs[0], 0), 64)  # the embedding is read again at the very end
    both = Program([*program.ops[:-1], early, replace(last, inputs=(len(program.ops) - 1,))])
    with pytest.raises(Unsupported, match="cannot be cut after layer 2"):
        cut(both, 2)


# ---- planning ----------------------------------------------------------------------------------


def test_a_plan_takes_as_many_layers_as_fit(file):
    program = models.record(file)
    needs = [demand(file, cut(program, n)[0], SMALL, **SIZES) for n in range(1, LAYERS)]
    needs.append(demand(file, program, SMALL, **SIZES))
    assert needs == sorted(needs)
    for layers, least in enumerate(needs, 1):
        got = plan(file, program, SMALL, int(least / SHARE) + 2, wanted="auto", **ASKED)
        assert (got.layers, got.needs) == (layers, least)
    assert plan(file, program, SMALL, needs[0] // 2, wanted="auto", **ASKED).layers == 0
    assert plan(file, program, SMALL, None, wanted="auto", **ASKED).layers == LAYERS


def test_a_demand_covers_what_is_held(file):
    program = models.record(file)
    model = models.load(file, device="torch-cpu", pages=16, max_rows=64)
    weights, pages, buffers = model.runner.bytes
    assert pages == 17 * sum(map(page_bytes, program.layers))
    assert weights + pages + buffers < demand(file, program, SMALL, **SIZES)
    model.close()


def test_layers_that_do_not_fit_are_refused_with_a_way_out(file):
    with pytest.raises(TooLarge, match="3 layers do not fit on a small GPU") as error:
        plan(file, models.record(file), SMALL, 10_000, wanted=3, **ASKED)
    assert "--gpu-layers auto" in error.value.hint
    for wanted in (-1, "some"):
        with pytest.raises(BadRequest):
            plan(file, models.record(file), SMALL, None, wanted=wanted, **ASKED)


def test_a_context_that_nobody_asked_for_is_what_fits(file):
    """Fewer pages before fewer layers, down to a least; some more for company where they fit."""
    program, free = models.record(file), 50_000_000
    common = {"wanted": "auto", "asked": False, "rows": 64}

    def needs(pages):
        return demand(file, program, SMALL, pages=pages, rows=64)

    many = plan(file, program, SMALL, free, pages=1 << 20, **common)
    assert many.layers == LAYERS and LEAST // PAGE < many.pages < 1 << 20
    assert needs(many.pages) <= SHARE * free < needs(many.pages + 1)
    few = plan(file, program, SMALL, free, pages=16, **common)
    assert few.pages == CONTEXTS * 16
    least = needs(LEAST // PAGE)
    tight = plan(file, program, SMALL, int(least / SHARE) + 2, pages=1 << 20, **common)
    assert (tight.layers, tight.pages) == (LAYERS, LEAST // PAGE)
    tighter = plan(file, program, SMALL, int(0.9 * least / SHARE), pages=1 << 20, **common)
    assert tighter.layers < LAYERS and tighter.pages >= LEAST // PAGE


# ---- running -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 3])
def test_both_parts_give_what_the_whole_gives(file, layers):
    program = models.record(file)
    exact = Interpreter(program, file, rows8=False).logits(IDS)
    model = models.load(file, device="torch-cpu", gpu_layers=layers, threads=2, max_rows=64)
    cpu = models.load(file, device="cpu", threads=2, max_rows=64)
    got = logits(model, IDS)
    assert nmse(got, exact) < 1.5 * nmse(logits(cpu, IDS), exact)
    assert f"{layers} of {LAYERS} layers; the rest on CPU" in model.device
    model.close()
    cpu.close()


def test_the_device_says_what_was_chosen_and_why(file, monkeypatch):
    """A device whose free memory is made up: torch's CPU, as if it were a small GPU."""
    program = models.record(file)
    device = open_device("torch-cpu", torch)
    two = demand(file, cut(program, 2)[0], device, pages=16, rows=64)
    for free, layers in ((two / SHARE + 9, 2), (1 << 40, 4), (1000, 0)):
        monkeypatch.setattr(opening.Device, "free", lambda self, torch, free=free: int(free))
        model = models.load(file, device="torch-cpu", threads=2, pages=16, max_rows=64)
        words = {0: "CPU, ", 2: "torch CPU, 2 of 4 layers, ", 4: "torch CPU, all layers, "}[layers]
        assert model.device.startswith(words)
        assert (" free" in model.device) == bool(layers)
        model.close()
