"""From one pass of a call to the next: what was drawn is computed, one position on.

Between two calls Python takes a tenth of a small model's token.
"""

import numpy as np

from localllm.kernels.fields import (
    BATCH,
    DRAWN,
    IDS,
    POSITIONS,
    TASK_BYTES,
    TASK_LIST,
    TASK_POSITION,
    TASKS,
    TOKENS,
    WISHES,
    arg,
)
from localllm.wishes import WISH_FIELDS
from quant.jit import kernel
from quant.simd import get_i32, get_i64, put_i32, put_i64


@kernel(4)
def advance(args, begin, end, lane):
    """The one unit is a batch whose every row gives logits that a token was drawn from."""
    batch = arg(args, BATCH)
    rows, drawn = arg(batch, TOKENS), arg(batch, DRAWN)
    for row in range(rows):
        position = arg(batch, POSITIONS) + 4 * row
        put_i32(position, get_i32(position) + np.int32(1))
        id = max(get_i64(drawn + 8 * row), 0)  # where nothing could be drawn, nobody reads on
        put_i32(arg(batch, IDS) + 4 * row, np.int32(id))
    for task in range(arg(batch, TASKS)):
        position = arg(batch, TASK_LIST) + task * TASK_BYTES + 8 * TASK_POSITION
        put_i64(position, get_i64(position) + 1)
    put_i64(batch + 8 * WISHES, arg(batch, WISHES) + rows * 4 * WISH_FIELDS)
    put_i64(batch + 8 * DRAWN, drawn + 8 * rows)
