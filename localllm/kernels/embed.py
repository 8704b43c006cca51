"""The rows of a matrix that tokens begin as, unpacked from the file's own blocks.

In NumPy that is a dozen calls a step: a thirtieth of a small model's token.
"""

import numpy as np

from localllm.kernels.fields import BATCH, IDS, OWN, arg
from quant.jit import kernel
from quant.simd import get_f32, get_i32, put_f32
from quant.threads import call4

SOURCE, UNPACK, BLOCKS, BLOCK_BYTES, COLUMNS, FACTOR, TO, STRIDE = range(OWN, OWN + 8)


@kernel(4)
def embed(args, begin, end, lane):
    """Units are rows: each token's row of the matrix, times a factor."""
    ids, blocks, size = arg(arg(args, BATCH), IDS), arg(args, BLOCKS), arg(args, BLOCK_BYTES)
    factor = get_f32(args + 8 * FACTOR)
    for row in range(begin, end):
        id, to = np.int64(get_i32(ids + 4 * row)), arg(args, TO) + row * arg(args, STRIDE)
        call4(arg(args, UNPACK), arg(args, SOURCE) + id * blocks * size, blocks, size, to)
        if factor != np.float32(1):
            for c in range(to, to + 4 * arg(args, COLUMNS), 4):
                put_f32(c, get_f32(c) * factor)
