"""A batch is checked before any kernel sees it, and a refused one leaves no trace."""

import dataclasses

import numpy as np
import pytest
import tiny
from recorded import Part, batch_of, i32, logits

from localllm import models, wishes
from localllm.batch import PAGE, Batch
from localllm.errors import BadRequest
from localllm.gguf import GGUF
from localllm.wishes import HEAT, MOST, WISH_FIELDS

pytestmark = pytest.mark.usefixtures("kept_kernels")
VOCAB, CONTEXT, PAGES, ROWS = 320, 100, 12, 24
IDS = list(range(20))


@pytest.fixture
def model(tmp_path):
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, layers=1)) as file:
        model = models.load(
            file, device="cpu", threads=2, context=CONTEXT, pages=PAGES, max_rows=ROWS
        )
        yield model
        model.close()


def good() -> Batch:
    """Two sequences: 4 tokens from position 0, 3 from position 20."""
    pages = np.arange(PAGES)
    return batch_of(Part([1, 2, 3, 4], pages[:3]), Part([5, 6, 7], pages[4:6], 20, [2]))


def test_what_a_batch_may_be(model):
    assert model.forward(good()).shape == (5, VOCAB)
    assert model.forward(dataclasses.replace(good(), wanted=i32([]))).shape == (0, VOCAB)
    full = batch_of(Part([0] * ROWS, np.arange(2), 0, [ROWS - 1]))
    assert model.forward(full).shape == (1, VOCAB)
    last = batch_of(Part([0], np.arange(7), CONTEXT - 1))
    assert model.forward(last).shape == (1, VOCAB)
    assert -(-CONTEXT // PAGE) == 7


BAD = {
    "no rows": {"ids": [], "begins": [0], "starts": [], "tables": np.zeros((0, 1)), "wanted": []},
    "no sequences": {"begins": [0], "starts": [], "tables": np.zeros((0, 2))},
    "too many rows": {"ids": [1] * 25, "begins": [0, 22, 25]},
    "rows before the first sequence": {"begins": [1, 4, 7]},
    "rows behind the last sequence": {"begins": [0, 4, 6]},
    "sequences beyond the rows": {"begins": [0, 4, 8]},
    "an empty sequence": {"begins": [0, 7, 7]},
    "sequences in the wrong order": {"begins": [0, 9, 7]},
    "too few begins": {"begins": [0, 7]},
    "too many begins": {"begins": [0, 4, 5, 7]},
    "an id below 0": {"ids": [1, 2, 3, -1, 5, 6, 7]},
    "an id beyond the vocabulary": {"ids": [1, 2, 3, VOCAB, 5, 6, 7]},
    "a wanted row below 0": {"wanted": [-1, 3]},
    "a wanted row beyond the last": {"wanted": [3, 7]},
    "a row wanted twice": {"wanted": [3, 3]},
    "wanted rows out of order": {"wanted": [4, 3]},
    "more wanted than rows": {"wanted": list(range(8))},
    "far too many wanted": {"wanted": [0] * 10_000},
    "a hidden row below 0": {"wanted": [], "hidden": [-1, 3]},
    "a hidden row beyond the last": {"wanted": [], "hidden": [3, 7]},
    "a hidden row twice": {"wanted": [], "hidden": [3, 3]},
    "a row both wanted and hidden": {"wanted": [2, 3], "hidden": [1, 3]},
    "a start below 0": {"starts": [-1, 20]},
    "a position beyond the context": {"starts": [0, CONTEXT - 2]},
    "a position beyond all numbers": {"starts": [0, 2**31 - 2]},
    "too few pages for a position": {"starts": [0, 31]},
    "no tables": {"tables": np.zeros((0, 2))},
    "a table too few": {"tables": np.zeros((1, 2))},
    "a table too many": {"tables": np.zeros((3, 2))},
    "tables without pages": {"tables": np.zeros((2, 0))},
    "a page below 0": {"tables": [[0, 1], [4, -1]]},
    "a page beyond the pool": {"tables": [[0, 1], [4, PAGES]]},
}


@pytest.mark.parametrize("fields", BAD.values(), ids=BAD.keys())
def test_what_no_batch_may_be(fields, model):
    want = logits(model, IDS).copy()
    bad = dataclasses.replace(good(), **{name: i32(value) for name, value in fields.items()})
    with pytest.raises(BadRequest) as error:
        model.forward(bad)
    assert error.value.message
    rest = model.forward(batch_of(Part([3], np.arange(PAGES), len(IDS)))).copy()
    np.testing.assert_array_equal(rest, logits(model, [*IDS, 3])[-1:])
    np.testing.assert_array_equal(logits(model, IDS), want)


def wish(rows: int = 5, **fields: float) -> np.ndarray:
    """Rows of wishes, the last one with these fields."""
    made = np.zeros((rows, WISH_FIELDS), np.float32)
    made[:, HEAT] = 1
    for name, value in fields.items():
        made[-1, getattr(wishes, name)] = value
    return made


@pytest.mark.parametrize(
    "made",
    [
        wish(4), wish(6), wish()[:, :-1], wish(TOP=MOST + 1), wish(TOP=-1), wish(TOP=np.nan),
        wish(HEAT=0), wish(HEAT=np.nan), wish(BANNED=WISH_FIELDS), wish(BANNED=-1),
        wish(FIRST_BANNED=VOCAB), wish(FIRST_BANNED=-1), wish(FIRST_BANNED=np.inf),
    ],
)  # fmt: skip
def test_what_nobody_may_wish_for(made, model):
    with pytest.raises(BadRequest):
        model.forward(dataclasses.replace(good(), wishes=made))
    model.forward(dataclasses.replace(good(), wishes=wish(TOP=3)))
    assert model.drawn().shape == (1, 5)
    assert model.drawn()[0, :4].max() == -1 < model.drawn()[0, 4]


def test_too_many_sequences(model):
    model.max_sequences = 3  # a smaller limit than the memory behind it
    parts = [Part([1], np.array([page])) for page in range(4)]
    with pytest.raises(BadRequest):
        model.forward(batch_of(*parts))
    assert model.forward(batch_of(*parts[:3])).shape == (3, VOCAB)


def test_pages_that_are_not_needed_are_not_looked_at(model):
    want = model.forward(good()).copy()
    tables = i32([[0, -5], [4, 5]])
    np.testing.assert_array_equal(model.forward(dataclasses.replace(good(), tables=tables)), want)
    wide = np.pad(good().tables, ((0, 0), (0, 4000)))
    np.testing.assert_array_equal(model.forward(dataclasses.replace(good(), tables=wide)), want)
