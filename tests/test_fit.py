"""What fits into memory, and what is said when it does not."""

from types import SimpleNamespace

import pytest

from localllm.errors import TooLarge
from localllm.fit import demand, fit
from localllm.units import size

# 1 GB of weights, 0.1 GB of scratch, 1 MB a page of 16 tokens
MODEL = SimpleNamespace(weights=1_000_000_000, scratch=100_000_000, page_bytes=1_000_000)


def test_the_trained_length_when_it_fits():
    plan = fit(MODEL, trained=4096, context=None, available=8_000_000_000)
    assert plan.context == 4096 and plan.fits
    assert plan.needs == 1_000_000_000 + 100_000_000 + 256 * 1_000_000
    assert demand("m", plan) is plan


def test_as_much_context_as_memory_allows():
    plan = fit(MODEL, trained=1_000_000, context=None, available=2_000_000_000)
    assert plan.context == 700 * 16  # 0.9 * 2 GB less 1.1 GB, in pages of 1 MB
    assert plan.fits


def test_the_pool_holds_several_contexts_where_there_is_room():
    assert fit(MODEL, trained=4096, context=None, available=80_000_000_000).pool == 4 * 256
    assert fit(MODEL, trained=4096, context=None, available=2_000_000_000).pool == 500
    assert fit(MODEL, trained=1_000_000, context=None, available=2_000_000_000).pool == 700


def test_a_context_asked_for_is_never_made_smaller():
    plan = fit(MODEL, trained=4096, context=100_000, available=2_000_000_000)
    with pytest.raises(TooLarge) as refused:
        demand("big", plan)
    assert "100000 tokens" in refused.value.message and "2.0 GB free" in refused.value.message
    assert "--ctx 4096" in refused.value.hint


def test_weights_that_do_not_fit():
    plan = fit(MODEL, trained=4096, context=None, available=1_000_000_000)
    assert plan.largest == 0 and not plan.fits
    with pytest.raises(TooLarge, match="1.0 GB weights") as refused:
        demand("big", plan)
    assert "smaller" in refused.value.hint


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (98_362_432, "98.4 MB"),
        (1_117_320_768, "1.1 GB"),
        (999_999, "1.0 MB"),
        (512e9, "512 GB"),
    ],
)
def test_size(amount, text):
    assert size(amount) == text
