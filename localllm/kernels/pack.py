"""Weights from the file's blocks to tiles, by all lanes at once."""

from localllm.kernels.fields import OWN, arg
from quant.jit import kernel
from quant.threads import call6

REPACK, SOURCE, TARGET, BLOCKS, STRIDE = range(OWN, OWN + 5)


@kernel(4)
def pack(args, begin, end, lane):
    """Tiles begin to end - 1 of a matrix."""
    call6(
        arg(args, REPACK), arg(args, SOURCE), arg(args, TARGET), arg(args, BLOCKS),
        arg(args, STRIDE), begin, end,
    )  # fmt: skip
