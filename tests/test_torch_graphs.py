"""Steps that come again are captured once and replayed; held with a capture that is no GPU's."""

import numpy as np
import pytest
import tiny

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from recorded import Part, batch_of, logits  # noqa: E402

from localllm import models  # noqa: E402
from localllm.backends.torch.batch import bucket  # noqa: E402
from localllm.backends.torch.graphs import AFTER  # noqa: E402
from localllm.gguf import GGUF  # noqa: E402

IDS = np.random.default_rng(5).integers(0, 320, 40).tolist()


@pytest.fixture
def model(tmp_path):
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, architecture="gemma3")) as file:
        model = models.load(file, device="torch-cpu", max_rows=64)
        yield model
        model.close()


class Recorder:
    """Captures a step as a function: replayed, it reads the tensors it was recorded with."""

    def __init__(self, error: Exception | None = None):
        self.captured, self.replayed, self.error = 0, 0, error

    def __call__(self, run):
        self.captured += 1
        run()
        if self.error:
            raise self.error

        def replay():
            self.replayed += 1
            run()

        return replay


def decode(model) -> np.ndarray:
    """A prompt, then token by token."""
    pages = np.arange(model.pages)
    model.forward(batch_of(Part(IDS[:20], pages, 0, [])))
    rows = [model.forward(batch_of(Part([IDS[i]], pages, i))).copy() for i in range(20, 40)]
    return np.concatenate(rows)


def test_tokens_are_replayed_and_prompts_are_not(model):
    want, recorder = logits(model, IDS)[20:], Recorder()
    model.runner.graphs.capture = recorder
    np.testing.assert_allclose(decode(model), want, atol=2e-4)
    shapes = {bucket(i // 16 + 1) for i in range(20, 40)}
    assert recorder.captured == len(shapes) == 2
    assert recorder.replayed == 20 - len(shapes) * AFTER
    decode(model)
    assert recorder.captured == 2


def test_where_capturing_fails_steps_still_run(model):
    want, recorder = logits(model, IDS)[20:], Recorder(RuntimeError("cannot be captured"))
    model.runner.graphs.capture = recorder
    np.testing.assert_allclose(decode(model), want, atol=2e-4)
    assert (recorder.captured, recorder.replayed) == (1, 0)


@given(st.integers(1, 1 << 20))
def test_sizes_are_few_and_waste_little(count):
    size = bucket(count)
    assert count <= size < 1.5 * count + 1
    assert bucket(size) == size
    assert size & (size - 1) == 0 or (size % 3 == 0 and size // 3 & (size // 3 - 1) == 0)
