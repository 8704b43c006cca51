"""Attention over pages: online softmax in spans of positions, merged in the context's order."""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import (
    BATCH,
    FIRST_TASKS,
    MERGES,
    POSITIONS,
    SPAN,
    SPLIT,
    TASK_BYTES,
    TASK_COUNT,
    TASK_LIST,
    TASK_POSITION,
    TASK_ROW,
    TASK_SPAN,
    TASKS,
    WANTED_INDEX,
    arg,
    is_single,
    scratch_of,
)
from localllm.kernels.pages import k_page, v_scales
from localllm.kernels.rotation import rotate
from localllm.kernels.states import (
    BEGIN,
    COUNT,
    FIRST_Q,
    FIRST_SCALE,
    GROUP_BYTES,
    HEAD_BYTES,
    HEADS,
    K_BYTES,
    K_DIMS,
    KV,
    KV_HEADS,
    LANE_BYTES,
    LANE_OUT,
    LAST,
    NEXT,
    NEXT_BYTES,
    OUT_STRIDE,
    PAGES,
    PANELS_OUT,
    PARTS,
    Q_SCALES,
    Q_STRIDE,
    ROTATION,
    ROWS_OUT,
    SCALE_STRIDE,
    SPAN_2,
    SPAN_4,
    SPAN_8,
    STATES,
    STEP,
    TASK,
    V_DIMS,
    V_SCALES,
    WINDOW,
    WORK,
    Q,
    begin_states,
    divide,
    entry,
    first_position,
    head_pool,
    merge,
    state_size,
)
from quant.jit import kernel
from quant.later import inline
from quant.rows import PANEL, SLOT_BYTES, quantise, quantise_panel
from quant.simd import LANES, get_f32, get_i32, get_i64, load_f32, put_f32, put_i64, store_f32
from quant.threads import call4


@inline
def load_v_scales(task, args, kv, begin, memory):
    """The scales of V of a span, as far as the task sees it."""
    last = arg(task, TASK_POSITION) + arg(task, TASK_COUNT) - 1
    for p in range(min(PAGES, last // PAGE + 1 - begin)):
        group_bytes, head_bytes = arg(args, GROUP_BYTES), arg(args, HEAD_BYTES)
        v = v_scales(head_pool(args, kv), entry(task, begin + p), group_bytes, head_bytes)
        for c in range(0, 4 * PAGE, 4 * LANES):
            store_f32(memory + V_SCALES + p * 4 * PAGE + c, load_f32(v + c))


@inline
def span(task, args, kv, begin, memory, states):
    """All rows of a task, of one KV head, against one span, into their states: 8 heads of a
    token in each, or 8 tokens of a head."""
    dims, heads, count = arg(args, K_DIMS), arg(args, HEADS), arg(task, TASK_COUNT)
    group, row = heads // arg(args, KV_HEADS), arg(task, TASK_ROW)
    q = arg(args, Q) + (row * heads + kv * group) * 2 * dims
    scales = arg(args, Q_SCALES) + (row * heads + kv * group) * 4
    load_v_scales(task, args, kv, begin, memory)
    single = count == 1
    tiles, apart = ((group + 7) // 8, 8) if single else (group, 1)
    stride, step, work = (1, 0, memory + WORK) if single else (heads, 1, memory + WORK)
    put_i64(work + 8 * TASK, task)
    put_i64(work + 8 * KV, kv)
    put_i64(work + 8 * STEP, step)
    put_i64(work + 8 * BEGIN, begin)
    put_i64(work + 8 * Q_STRIDE, stride * 2 * dims)
    put_i64(work + 8 * SCALE_STRIDE, stride * 4)
    for k in range(tiles):
        rows, at = min(group - 8 * k, 8) if single else count, k * apart
        put_i64(work + 8 * COUNT, rows)
        put_i64(work + 8 * FIRST_Q, q + at * 2 * dims)
        put_i64(work + 8 * FIRST_SCALE, scales + 4 * at)
        kernel = arg(args, SPAN_8 if rows > 4 else SPAN_4 if rows > 2 else SPAN_2)
        call4(kernel, args, work, memory, states + k * state_size(args))


@inline
def emit_row(args, row, kv, answer):
    """A group's answer for one token to its row of f32."""
    width = arg(args, HEADS) // arg(args, KV_HEADS) * arg(args, V_DIMS)
    y = arg(args, ROWS_OUT) + row * arg(args, OUT_STRIDE) + kv * width * 4
    for c in range(0, 4 * width, 4):
        put_f32(y + c, get_f32(answer + c))


@inline
def emit_slot(args, row, kv, answer, lane):
    """A group's answer for one token to its slot of a panel."""
    width, single = arg(args, HEADS) // arg(args, KV_HEADS) * arg(args, V_DIMS), is_single(args)
    block = block_of(args, row, kv)
    if single:
        block = arg(args, LANE_OUT) + lane * arg(args, LANE_BYTES) + kv * width // 32 * SLOT_BYTES
    slots = 1 if single else PANEL
    for k in range(width // 32):
        quantise(answer + 128 * k, block + k * SLOT_BYTES * slots, row % slots, slots)


@inline
def block_of(args, row, kv):
    """The first block of a group in the panel of a row."""
    blocks = arg(args, HEADS) * arg(args, V_DIMS) // 32
    first = row // PANEL * blocks + kv * blocks // arg(args, KV_HEADS)
    return arg(args, PANELS_OUT) + first * SLOT_BYTES * PANEL


@inline
def emit_task(args, task, kv, states, answers, lane):
    """A group's answers for the tokens of a task, by way of rows at `answers`."""
    batch, group, count = arg(args, BATCH), arg(args, HEADS) // arg(args, KV_HEADS), 1
    first, panels, width = arg(task, TASK_ROW), arg(args, PANELS_OUT), group * arg(args, V_DIMS)
    if not arg(batch, SPLIT):
        count = arg(task, TASK_COUNT)
    together = panels and count == PANEL and first % PANEL == 0 and not arg(args, LAST)
    for t in range(count):
        row, answer = first + t, answers + t * width * 4
        if arg(args, LAST):
            row = get_i64(arg(batch, WANTED_INDEX) + 8 * row)
        if row >= 0:
            for h in range(group):
                tile, at = (h // 8, h % 8) if count == 1 else (h, t)
                state = states + tile * state_size(args)
                out = answer + h * arg(args, V_DIMS) * 4
                divide(args, state, at, out)
                if arg(args, ROTATION) > 1:  # as V was
                    rotate(out, arg(args, V_DIMS), arg(args, ROTATION))
            if arg(args, ROWS_OUT):
                emit_row(args, row, kv, answer)
            if panels and not together:
                emit_slot(args, row, kv, answer, lane)
    if together:
        block = block_of(args, first, kv)
        for k in range(width // 32):
            quantise_panel(answers + 128 * k, 4 * width, block + k * SLOT_BYTES * PANEL)


@inline
def is_wanted(args, task):
    """Whether any row of a task is read later: after the last layer's attention few are."""
    if not arg(args, LAST):
        return True
    rows, first = 0, arg(arg(args, BATCH), WANTED_INDEX) + 8 * arg(task, TASK_ROW)
    for t in range(arg(task, TASK_COUNT)):
        rows += get_i64(first + 8 * t) >= 0
    return rows > 0


@inline
def task_of(batch, index):
    """Where the task of that number stands."""
    return arg(batch, TASK_LIST) + index * TASK_BYTES


@inline
def first_span(args, task):
    """The first span of positions that any row of a task sees."""
    low = first_position(arg(task, TASK_POSITION), arg(args, WINDOW)) // SPAN
    return max(low, arg(task, TASK_SPAN))


@inline
def announce(args, task, kv, s, work):
    """Say which pages of K are read next: those of span `s` of a task."""
    last, k_size = arg(task, TASK_POSITION) + arg(task, TASK_COUNT) - 1, arg(args, K_BYTES)
    k = k_page(head_pool(args, kv), entry(task, s * PAGES), arg(args, GROUP_BYTES), k_size)
    put_i64(work + 8 * NEXT, k)
    put_i64(work + 8 * NEXT_BYTES, min(PAGES, last // PAGE + 1 - s * PAGES) * k_size)


@kernel(4)
def attend(args, begin, end, lane):
    """Units are (KV head, task), so that a lane stays with one head's pages. A task of one span
    leaves its part to `merge_spans`; another goes through its whole context and emits its rows."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), state_size(args)
    tasks, group = arg(batch, TASKS), arg(args, HEADS) // arg(args, KV_HEADS)
    work = memory + WORK
    for unit in range(begin, end):
        kv, task = unit // tasks, task_of(batch, unit % tasks)
        if not is_wanted(args, task):
            continue
        position, count = arg(task, TASK_POSITION), arg(task, TASK_COUNT)
        low, high = first_span(args, task), (position + count - 1) // SPAN
        tiles, states = (group + 7) // 8 if count == 1 else group, memory + STATES
        if arg(batch, SPLIT):
            states = arg(args, PARTS) + unit * tiles * size
            high = arg(task, TASK_SPAN)
        rows = min(group, 8) if count == 1 else count
        begin_states(args, states, tiles if low <= high else 0, rows)
        for s in range(low, high + 1):
            put_i64(work + 8 * NEXT_BYTES, 0)
            if s < high:
                announce(args, task, kv, s + 1, work)
            elif unit + 1 < end:
                after = task_of(batch, (unit + 1) % tasks)
                announce(args, after, (unit + 1) // tasks, first_span(args, after), work)
            span(task, args, kv, s * PAGES, memory, states)
        if not arg(batch, SPLIT):
            emit_task(args, task, kv, states, memory + STATES + group * size, lane)


@kernel(4)
def merge_spans(args, begin, end, lane):
    """Units are (KV head, row): the parts of a row's spans, merged and emitted. A single token's
    answer goes to each lane's own copy."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), state_size(args)
    tasks, rows = arg(batch, TASKS), arg(batch, MERGES)
    group = arg(args, HEADS) // arg(args, KV_HEADS)
    tiles, states = (group + 7) // 8, memory + STATES
    for unit in range(begin, end):
        kv, t = unit // rows, unit % rows
        position = np.int64(get_i32(arg(batch, POSITIONS) + 4 * t))
        first = get_i64(arg(batch, FIRST_TASKS) + 8 * t)
        begin_states(args, states, tiles, min(group, 8))
        for s in range(first_position(position, arg(args, WINDOW)) // SPAN, position // SPAN + 1):
            part = arg(args, PARTS) + (kv * tasks + first + s) * tiles * size
            for k in range(tiles):
                at, count = k * size, min(group - 8 * k, 8)
                merge(args, part + at, states + at, count, memory)
        task = task_of(batch, first)
        emit_task(args, task, kv, states, states + group * size, lane)
