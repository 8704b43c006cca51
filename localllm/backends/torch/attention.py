"""Attention over pages of K and V on the device, read through the same page tables as elsewhere.

The pages a group of sequences sees are gathered and given to torch's own attention; the heads that
share a KV head stand below one another as rows, so K and V are never repeated.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from localllm.backends.torch.batch import Group, Step
from localllm.batch import PAGE
from localllm.program import Attention

GATHERED = 1 << 27  # numbers of K and V that are gathered at once
SCORES = 1 << 24  # scores that are worked out at once


class Pool:
    """One layer's pages: K (pages + 1, PAGE, KV heads, dims) f16, and V; the last one is spare."""

    def __init__(self, attention: Attention, pages: int, device: str):
        shape = (pages + 1, PAGE, attention.kv_heads)
        self.k = torch.zeros((*shape, attention.k_dims), dtype=torch.float16, device=device)
        self.v = torch.zeros((*shape, attention.v_dims), dtype=torch.float16, device=device)

    def store(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Rows of K and V, (T, width) f32, to slots (T,): 16 times the page, plus the place."""
        for pages, rows in ((self.k, k), (self.v, v)):
            flat = pages.flatten(0, 1)
            flat.index_copy_(0, slots, rows.view(-1, *flat.shape[1:]).half())


def page_bytes(attention: Attention) -> int:
    """Bytes of one page in one layer."""
    return attention.kv_heads * PAGE * 2 * (attention.k_dims + attention.v_dims)


def attend(
    q: Tensor, step: Step, attention: Attention, pool: Pool, dtype: torch.dtype, out: Tensor
) -> None:
    """q (T, heads * dims) f32 against what the pool holds, to out (T, heads * V dims) f32."""
    for group in step.groups:
        _attend(q, group, attention, pool, dtype, out)


def _attend(q: Tensor, group: Group, a: Attention, pool: Pool, dtype, out: Tensor) -> None:
    tables, bias = group.view(a.window, dtype)
    sequences, rows = group.rows.shape
    keys, heads = tables.shape[1] * PAGE, a.heads // a.kv_heads
    for m in _pieces(sequences, GATHERED // (keys * a.kv_heads * (a.k_dims + a.v_dims))):
        k = pool.k[tables[m]].flatten(1, 2).transpose(1, 2).to(dtype)  # (m, KV heads, keys, dims)
        v = pool.v[tables[m]].flatten(1, 2).transpose(1, 2).to(dtype)
        for r in _pieces(rows, SCORES // (len(k) * a.heads * keys)):
            which = group.rows[m, r]
            x = q[which].unflatten(2, (a.kv_heads, heads, a.k_dims))
            x = x.permute(0, 2, 3, 1, 4).flatten(2, 3).to(dtype)  # (m, KV heads, heads * r, dims)
            y = _weigh(x, k, v, _below(bias[m, :, r], heads), a)
            y = y.unflatten(2, (heads, -1)).permute(0, 3, 1, 2, 4).flatten(0, 1).flatten(1)
            out.index_copy_(0, which.flatten(), y.to(out.dtype))


def _below(bias: Tensor, heads: int) -> Tensor:
    """(m, 1, r, keys) for each of the heads that stand below one another."""
    if bias.shape[2] == 1:
        return bias
    return bias.expand(-1, heads, -1, -1).flatten(1, 2)[:, None]


def _weigh(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, a: Attention) -> Tensor:
    if not a.softcap:
        return scaled_dot_product_attention(q, k, v, bias, scale=a.scale)
    scores = (q @ k.transpose(-1, -2)).float() * a.scale
    scores = a.softcap * torch.tanh(scores / a.softcap) + bias
    return scores.softmax(-1).to(v.dtype) @ v


def _pieces(count: int, most: int) -> Iterator[slice]:
    for first in range(0, count, max(most, 1)):
        yield slice(first, first + max(most, 1))
