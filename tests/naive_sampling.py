"""The sampler chain once more, slow and plain: dictionaries, loops and floats, no cleverness."""

from math import exp, inf, log, log2

from localllm.engine.sampler import CHANCE, draw
from localllm.sampling import Sampling

Logits = dict[int, float]  # candidates that are left


def softmax(logits: Logits) -> dict[int, float]:
    best = max(logits.values())
    powers = {id: exp(x - best) for id, x in logits.items()}
    total = sum(powers.values())
    return {id: power / total for id, power in powers.items()}


def likeliest_first(logits: Logits) -> list[int]:
    return sorted(logits, key=lambda id: (-logits[id], id))


def keep(logits: Logits, ids) -> Logits:
    return {id: logits[id] for id in ids}


def penalties(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    window = past if s.repeat_last_n < 0 else past[max(0, len(past) - s.repeat_last_n) :]
    changed = dict(logits)
    for id in set(window) & set(logits):
        x = logits[id]
        x = x * s.repeat_penalty if x <= 0 else x / s.repeat_penalty
        changed[id] = x - s.frequency_penalty * window.count(id) - s.presence_penalty
    return changed


def dry(logits: Logits, s: Sampling, past: list[int], chance: float, breakers=()) -> Logits:
    if s.dry_multiplier == 0 or s.dry_penalty_last_n == 0:
        return logits
    past = past if s.dry_penalty_last_n < 0 else past[-s.dry_penalty_last_n :]
    longest: dict[int, int] = {}
    for end in range(len(past) - 1):
        length = 0
        while length <= end and past[end - length] == past[len(past) - 1 - length]:
            if any((past[end - length],) == breaker for breaker in breakers):
                break
            length += 1
        following = past[end + 1]
        longest[following] = max(longest.get(following, 0), length)
    changed = dict(logits)
    for id, length in longest.items():
        if id in logits and length >= max(1, s.dry_allowed_length) and (id,) not in breakers:
            changed[id] -= s.dry_multiplier * s.dry_base ** (length - s.dry_allowed_length)
    return changed


def top_n_sigma(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    if s.top_n_sigma <= 0:
        return logits
    finite = [x for x in logits.values() if x > -inf]
    mean = sum(finite) / len(finite)
    sigma = (sum((x - mean) ** 2 for x in finite) / len(finite)) ** 0.5
    floor = max(finite) - s.top_n_sigma * sigma
    return {id: x for id, x in logits.items() if x >= floor}


def top_k(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    return keep(logits, likeliest_first(logits)[: s.top_k]) if s.top_k > 0 else logits


def typ_p(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    if s.typical_p >= 1:
        return logits
    p = softmax(logits)
    entropy = sum(-x * log(x) for x in p.values() if x > 0)
    order = [id for id in likeliest_first(logits) if p[id] > 0]
    order.sort(key=lambda id: abs(-log(p[id]) - entropy))
    return keep(logits, _until(order, p, lambda total: total > s.typical_p))


def top_p(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    if s.top_p >= 1:
        return logits
    return keep(logits, _until(likeliest_first(logits), softmax(logits), lambda t: t >= s.top_p))


def min_p(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    p = softmax(logits)
    return {id: x for id, x in logits.items() if p[id] >= s.min_p * max(p.values()) * (1 - 1e-6)}


def xtc(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    if s.xtc_probability <= 0 or s.xtc_threshold > 0.5 or chance > s.xtc_probability:
        return logits
    p = softmax(logits)
    likely = [id for id in likeliest_first(logits) if p[id] >= s.xtc_threshold]
    return keep(logits, [id for id in logits if id not in likely[:-1]])


def temperature(logits: Logits, s: Sampling, past: list[int], chance: float) -> Logits:
    heat = s.temperature
    if s.dynatemp_range > 0 and len(logits) > 1:
        entropy = sum(-x * log(x) for x in softmax(logits).values() if x > 0) / log(len(logits))
        low, high = max(0, heat - s.dynatemp_range), heat + s.dynatemp_range
        heat = low + (high - low) * entropy**s.dynatemp_exponent
    return {id: x / heat for id, x in logits.items()}


FILTERS = {f.__name__: f for f in (penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc,
                                   temperature)}  # fmt: skip


def distribution(row, s: Sampling, past: list[int], seed: int) -> dict[int, float]:
    """Token -> probability after the chain, for tokens that may come."""
    logits = {id: float(x) for id, x in enumerate(row)}
    for id, bias in s.logit_bias.items():
        logits[id] += bias
    for name in s.samplers:
        logits = FILTERS[name](logits, s, past, draw(seed, len(past), CHANCE))
    return softmax(logits)


def mirostat2(p: dict[int, float], limit: float) -> dict[int, float]:
    """The tokens whose surprise is at most the limit, at least the likeliest; renormalised."""
    kept = {id: x for id, x in p.items() if x > 0 and -log2(x) <= limit}
    kept = kept or {max(p, key=p.__getitem__): 1.0}
    return {id: x / sum(kept.values()) for id, x in kept.items()}


def _until(order: list[int], p: dict[int, float], enough) -> list[int]:
    total, kept = 0.0, []
    for id in order:
        kept.append(id)
        total += p[id]
        if enough(total):
            break
    return kept
