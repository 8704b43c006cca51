"""Sampling: distributions small enough to check by eye, and a plain twin for all the others."""

from dataclasses import fields, replace
from math import log, log2

import naive_sampling
import numpy as np
import pytest

from localllm.engine.candidates import Candidates
from localllm.engine.filters import FILTERS, Moment
from localllm.engine.sampler import Sampler, draw, logprob
from localllm.errors import BadRequest, LocalLLMError
from localllm.request import Request
from localllm.sampling import NEUTRAL, ORDER, Sampling

OFF = Sampling(**NEUTRAL)
FOUR = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}


def after(name: str, sampling: Sampling, p=FOUR, past=(), chance=0.0, breakers=(), **more) -> dict:
    """What a filter makes of a distribution, rounded."""
    candidates = Candidates(np.log(np.array(list(p.values()), np.float32)))
    moment = Moment(sampling, np.array(past, np.int32), chance, breakers, **more)
    FILTERS[name](candidates, moment)
    shares = candidates.probabilities()
    return {candidates.id(i): round(float(x), 3) for i, x in enumerate(shares)}


def sampler(sampling: Sampling, vocab=4, prompt=(0,), seed=1, **request) -> Sampler:
    return Sampler(Request(prompt, sampling, **request), vocab, seed)


def test_filters_by_eye():
    assert after("top_k", replace(OFF, top_k=2)) == {0: 0.571, 1: 0.429}
    assert after("top_p", replace(OFF, top_p=0.65)) == {0: 0.571, 1: 0.429}
    assert after("min_p", replace(OFF, min_p=0.6)) == {0: 0.571, 1: 0.429}
    half = after("temperature", replace(OFF, temperature=0.5))  # the squares, made to sum to 1
    assert half == {0: 0.533, 1: 0.3, 2: 0.133, 3: 0.033}
    assert after("xtc", replace(OFF, xtc_probability=1, xtc_threshold=0.15)) == {2: 0.667, 3: 0.333}
    assert after("xtc", replace(OFF, xtc_probability=0.5), chance=0.6) == FOUR
    assert after("typ_p", replace(OFF, typical_p=0.4)) == {1: 0.6, 2: 0.4}
    assert after("top_n_sigma", replace(OFF, top_n_sigma=0.6)) == {0: 0.571, 1: 0.429}


def test_penalties_by_eye():
    s = replace(OFF, presence_penalty=log(2))
    assert after("penalties", s, past=[0, 0]) == {0: 0.25, 1: 0.375, 2: 0.25, 3: 0.125}
    s = replace(OFF, frequency_penalty=log(2))
    assert after("penalties", s, past=[0, 0]) == {0: 0.143, 1: 0.429, 2: 0.286, 3: 0.143}
    s = replace(OFF, repeat_penalty=2.0)  # of negative logits: log p becomes 2 log p
    assert after("penalties", s, past=[0]) == {0: 0.211, 1: 0.395, 2: 0.263, 3: 0.132}
    assert after("penalties", replace(s, repeat_last_n=0), past=[0]) == FOUR


def test_dry_by_eye():
    s = replace(OFF, dry_multiplier=log(2), dry_base=2.0)
    past = [1, 2, 3, 9, 1, 2]  # 3 would make a passage of two into one of three
    assert after("dry", s, past=past) == {0: 0.421, 1: 0.316, 2: 0.211, 3: 0.053}
    assert after("dry", s, past=[1, 2, 3, 9, 8, 2]) == FOUR
    assert after("dry", s, past=past, breakers=[(1,)]) == FOUR
    assert after("dry", s, past=past, breakers=[(3,)]) == FOUR
    assert after("dry", s, past=past, breakers=[(7, 1), (9, 1)]) == FOUR
    assert after("dry", replace(s, dry_penalty_last_n=5), past=past) == FOUR


PIECES = [b"", b"a", b"ab", b"b", b"ba", b"c"]  # token 0 is an end


@pytest.mark.parametrize(
    "p, kept",
    [
        ([0.1, 0.6, 0.1, 0.1, 0.1, 0.0], {0: 1.0}),  # 3 x 0.1 x 6 > 0.9
        ([0.0, 0.6, 0.4, 0.0, 0.0, 0.0], {1: 1.0, 0: 0.0}),  # "a" takes what "ab" had
        ([0.0, 0.3, 0.4, 0.2, 0.1, 0.0], {2: 1.0, 0: 0.0}),  # 0.7 and 0.3, and less than a third
        (
            [0.0, 0.2, 0.2, 0.2, 0.2, 0.2],
            {1: 0.5, 3: 0.5, 0: 0.0},
        ),  # 0.4, 0.4, 0.2
        ([0.02, 0.18, 0.0, 0.4, 0.4, 0.0], {3: 0.952, 0: 0.048}),
    ],
)
def test_infill_by_eye(p, kept):
    shares = dict(enumerate(np.array(p) + 1e-12))
    found = after("infill", OFF, shares, pieces=PIECES.__getitem__, ends=[0])
    assert found == kept


def test_infill_has_an_end_to_give_or_the_best():
    flat = dict.fromkeys(range(6), 1 / 6)
    apart = [b"", b"u", b"v", b"w", b"x", b"y"]
    assert after("infill", OFF, flat, pieces=apart.__getitem__, ends=[0]) == {0: 1.0}
    assert after("infill", OFF, flat, pieces=apart.__getitem__) == {0: 1.0}
    narrowed = Candidates(np.zeros(7, np.float32))
    narrowed.cut(np.arange(1, 7))  # without the end
    pieces = [*apart, b"z"].__getitem__
    FILTERS["infill"](narrowed, Moment(OFF, np.zeros(1, np.int32), 0.0, (), pieces, [0]))
    assert [narrowed.id(i) for i in range(len(narrowed))] == [0]
    assert after("infill", OFF, flat) == dict.fromkeys(flat, 0.167)  # without pieces


def test_infill_ends_a_greedy_answer_too():
    row = np.log(np.array([0.3, 0.7, 1e-9, 1e-9], np.float32))
    s = Sampling(temperature=0, samplers=("top_k", "infill"), top_k=2)
    pick = sampler(s, end_ids=frozenset([0]), pieces=PIECES.__getitem__)
    assert pick.pick(row.copy(), np.zeros(1, np.int32))[0] == 0


def test_every_knob_off_changes_nothing():
    row = np.log(np.array(list(FOUR.values()), np.float32))
    counts = np.zeros(4)
    pick = sampler(OFF)
    assert pick._chain == []
    for n in range(4000):
        id, _ = pick.pick(row.copy(), np.zeros(n + 1, np.int32))
        counts[id] += 1
    assert np.abs(counts / 4000 - list(FOUR.values())).max() < 0.03


@pytest.mark.parametrize("name", [f.name for f in fields(Sampling) if f.name != "seed"])
def test_a_knob_is_checked_and_described(name):
    about = Sampling.__dataclass_fields__[name].metadata
    assert about["help"].endswith(".")
    if about["low"] is not None:
        for value in (about["low"] - 1, about["high"] + 1, float("nan"), "x", True):
            with pytest.raises(BadRequest, match=name):
                Sampling(**{name: value})
        Sampling(**{name: about["low"]})
        Sampling(**{name: about["high"]})
    else:
        with pytest.raises(BadRequest, match=name):
            Sampling(**{name: 3.5})


def test_knobs_go_by_other_names_too():
    changed = Sampling().changed({"temp": 0.5, "repetition_penalty": 1.2, "top_p": None})
    assert (changed.temperature, changed.repeat_penalty, changed.top_p) == (0.5, 1.2, 0.95)
    with pytest.raises(BadRequest, match="warmth"):
        Sampling().changed({"warmth": 1})


def test_samplers_are_named_as_llama_cpp_names_them():
    assert Sampling().samplers == ORDER
    assert Sampling(samplers="top_k;infill").samplers == ("top_k", "infill")
    assert Sampling(samplers="top_k;typical_p;temp").samplers == ("top_k", "typ_p", "temperature")
    for wrong in ("top_k;top_k", "bottom_k", [3], 5):
        with pytest.raises(BadRequest):
            Sampling(samplers=wrong)


def test_order_matters():
    row = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    first = Sampling(**{**NEUTRAL, "min_p": 0.4, "temperature": 3.0})
    last = replace(first, samplers=("temperature", "min_p"))
    for s, possible in ((first, {0, 1}), (last, {0, 1, 2, 3})):
        picks = {sampler(s, seed=n).pick(row.copy(), np.zeros(1, np.int32))[0] for n in range(300)}
        assert picks == possible


TWINS = [
    Sampling(),
    Sampling(top_k=0, min_p=0.0, top_p=0.9),
    Sampling(top_k=0, typical_p=0.7),
    Sampling(top_k=0, top_n_sigma=1.0, top_p=1.0),
    Sampling(repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=-0.2),
    Sampling(repeat_penalty=1.3, repeat_last_n=-1, top_k=5),
    Sampling(dry_multiplier=0.8, dry_allowed_length=1),
    Sampling(xtc_probability=0.7, xtc_threshold=0.05),
    Sampling(dynatemp_range=0.5, dynatemp_exponent=1.5, temperature=1.2),
    Sampling(temperature=2.0, samplers=("temperature", "top_k", "penalties", "dry", "min_p"),
             repeat_penalty=1.5, dry_multiplier=1.0, dry_allowed_length=1, top_k=50),
    Sampling(samplers=("min_p", "typ_p", "top_p", "xtc"), typical_p=0.8, xtc_probability=0.5),
    Sampling(logit_bias={3: 5.0, 7: float("-inf")}, top_k=3),
    Sampling(samplers=(), logit_bias={1: 2.0}),
]  # fmt: skip


@pytest.mark.parametrize("sampling", TWINS, ids=range(len(TWINS)))
@pytest.mark.parametrize("vocab", [9, 700])
def test_the_chain_agrees_with_its_plain_twin(sampling, vocab):
    rng = np.random.default_rng(vocab)
    for seed in range(12):
        row = (rng.normal(size=vocab) * 3).astype(np.float32)
        past = [int(i) for i in rng.integers(0, 4 if seed % 2 else vocab, 100)]
        expected = naive_sampling.distribution(row, sampling, past, seed)
        found = _distribution(sampler(sampling, vocab, past, seed), row, past)
        assert set(found) == {id for id, p in expected.items() if p > 0}
        assert max(abs(found[id] - expected[id]) for id in found) < 1e-4


def _distribution(pick: Sampler, row: np.ndarray, past: list[int]) -> dict[int, float]:
    """Token -> probability just before the draw."""
    seen = {}

    def draw_none(candidates, number):
        p = candidates.probabilities()
        seen.update({candidates.id(i): float(x) for i, x in enumerate(p) if x > 0})
        return 0

    pick._draw = draw_none
    pick.pick(row.copy(), np.array(past, np.int32))
    return seen


def test_draws_follow_the_distribution_and_only_the_request():
    row, past = np.log(np.array(list(FOUR.values()), np.float32)), np.zeros(5, np.int32)
    picks = [sampler(OFF, seed=n).pick(row.copy(), past)[0] for n in range(4000)]
    assert np.abs(np.bincount(picks, minlength=4) / 4000 - list(FOUR.values())).max() < 0.03
    again = [sampler(OFF, seed=n).pick(row.copy(), past)[0] for n in range(50)]
    assert again == picks[:50]


def test_random_numbers_are_spread_evenly():
    numbers = np.array([draw(seed, position) for seed in range(100) for position in range(100)])
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 43.8  # chi squared, 19 degrees, 0.1 %
    grid = numbers.reshape(100, 100)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.04


@pytest.mark.parametrize("k", [1, 40, 300, 5000, 60000])
def test_the_best_k_are_found_by_a_threshold(k):
    for logits in (
        np.random.default_rng(k).normal(size=49152),
        np.random.default_rng(k).integers(0, 9, 49157),  # many that are equal
        np.arange(50000),
        np.zeros(50000),
    ):
        logits = logits.astype(np.float32)
        candidates = Candidates(logits)
        candidates.top(k)
        assert np.array_equal(candidates.ids, np.argsort(-logits, kind="stable")[:k])


def test_greedy_takes_the_likeliest_after_penalties_and_nothing_else():
    row, past = np.array([3.0, 2.9, 0, 0], np.float32), np.zeros(3, np.int32)
    odd = {"temperature": 0, "xtc_probability": 1.0, "typical_p": 0.1}
    assert sampler(Sampling(**odd)).pick(row.copy(), past)[0] == 0
    assert sampler(Sampling(**odd, mirostat=2)).pick(row.copy(), past)[0] == 0
    assert sampler(Sampling(**odd, repeat_penalty=1.5)).pick(row.copy(), past)[0] == 1


def test_an_end_is_held_off():
    row = np.array([9.0, 1, 0, 0], np.float32)
    held = sampler(Sampling(temperature=0, min_tokens=2), prompt=(3, 3), end_ids=frozenset([0]))
    assert [held.pick(row.copy(), np.full(2 + n, 3, np.int32))[0] for n in range(3)] == [1, 1, 0]
    never = sampler(Sampling(temperature=0, ignore_eos=True), end_ids=frozenset([0]))
    assert never.pick(row.copy(), np.full(9, 3, np.int32))[0] == 1


class Only:
    """A mask that allows some ids and remembers what was taken."""

    def __init__(self, mask):
        self.mask, self.taken = mask, []

    def allowed(self):
        return self.mask

    def take(self, id):
        self.taken.append(id)


def test_masks_may_be_packed_or_not():
    row, past = np.linspace(1, 0, 70, dtype=np.float32), np.zeros(1, np.int32)
    bits = np.zeros(3, np.uint32)
    bits[2] = 1 << 3  # token 67
    booleans = np.zeros(70, bool)
    booleans[67] = True
    for mask in (bits, bits.view(np.int32), bits.view(np.uint8), booleans):
        only = Only(mask)
        assert sampler(Sampling(), 70, mask=only).pick(row.copy(), past)[0] == 67
        assert only.taken == [67]
    assert sampler(Sampling(temperature=0), 70, mask=Only(None)).pick(row.copy(), past)[0] == 0


def test_when_nothing_is_allowed_or_no_number_it_says_so():
    past = np.zeros(1, np.int32)
    with pytest.raises(LocalLLMError, match="No token"):
        sampler(Sampling(), mask=Only(np.zeros(4, bool))).pick(np.zeros(4, np.float32), past)
    with pytest.raises(LocalLLMError, match="not a number"):
        sampler(Sampling(temperature=0)).pick(np.full(4, np.nan, np.float32), past)


def test_a_row_that_must_not_be_written_is_copied():
    row = np.zeros(4, np.float32)
    row.flags.writeable = False
    biased = sampler(Sampling(temperature=0, logit_bias={2: 1.0}), logprobs=1)
    id, reported = biased.pick(row, np.zeros(1, np.int32))
    assert id == 2 and reported.logprob == pytest.approx(log(0.25))  # the model's, not the bias's


def test_logprob_against_a_sum():
    row = np.random.default_rng(0).normal(size=500).astype(np.float32)
    exact = row - np.log(np.exp(row.astype(np.float64)).sum())
    found = logprob(row, 17, 3)
    assert found.logprob == pytest.approx(exact[17], abs=1e-5)
    assert [id for id, _ in found.top] == list(np.argsort(-row)[:3])


def test_mirostat_2_against_its_definition():
    row = np.random.default_rng(1).normal(size=50).astype(np.float32) * 2
    pick = sampler(Sampling(mirostat=2, mirostat_tau=2.0, mirostat_eta=0.3, temperature=1.0), 50)
    limit, past = 4.0, [0]
    for _ in range(20):
        p = naive_sampling.mirostat2(
            naive_sampling.softmax(dict(enumerate(map(float, row)))), limit
        )
        past.append(pick.pick(row.copy(), np.array(past, np.int32))[0])
        assert past[-1] in p
        limit -= 0.3 * (-np.log2(p[past[-1]]) - 2.0)
        assert pick._mirostat.limit == pytest.approx(limit, abs=1e-4)


@pytest.mark.parametrize("target", [2.0, 5.0])
@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_holds_the_surprise_it_is_asked_for(version, target):
    row = -1.1 * np.log(np.arange(1, 2001)).astype(np.float32)  # words, as Zipf found them
    pick = sampler(Sampling(mirostat=version, mirostat_tau=target, temperature=1.0), 2000)
    learn, surprises = pick._mirostat.learn, []
    pick._mirostat.learn = lambda p: (surprises.append(-log2(p)), learn(p))
    for n in range(600):
        pick.pick(row.copy(), np.zeros(n + 1, np.int32))
    assert np.mean(surprises[100:]) == pytest.approx(target, rel=0.1)


def test_adaptive_p_against_its_definition():
    row = np.random.default_rng(2).normal(size=50).astype(np.float32) * 2
    s = Sampling(**{**NEUTRAL, "adaptive_target": 0.3, "adaptive_decay": 0.8})
    pick, past, total, weight = sampler(s, 50), [0], 0.3 * 5, 5.0
    p = naive_sampling.softmax(dict(enumerate(map(float, row))))
    for _ in range(30):
        aim = min(1.0, max(0.0, 0.6 - total / weight))
        away = {id: abs(x - aim) / 0.3 for id, x in p.items()}
        want = naive_sampling.softmax({id: 5 - 10 * d * d / (1 + d) for id, d in away.items()})
        assert pick._adaptive.aim == pytest.approx(aim, abs=1e-5)
        found = Candidates(row.copy())
        pick._adaptive.filter(found)
        assert found.probabilities() == pytest.approx(list(want.values()), abs=1e-5)
        past.append(pick.pick(row.copy(), np.array(past, np.int32))[0])
        total, weight = p[past[-1]] + 0.8 * total, 1 + 0.8 * weight


def test_adaptive_p_holds_the_probability_it_is_asked_for():
    row = -0.7 * np.arange(12).astype(np.float32)
    p = naive_sampling.softmax(dict(enumerate(map(float, row))))
    means = []
    for target in (0.1, 0.3, 0.45):
        pick = sampler(Sampling(**{**NEUTRAL, "adaptive_target": target}), 12)
        picked = [p[pick.pick(row.copy(), np.zeros(n + 1, np.int32))[0]] for n in range(600)]
        means.append(np.mean(picked))
    assert means == sorted(means) and means[1] == pytest.approx(0.3, rel=0.15)
