"""Weights from the file's blocks to tiles, by all lanes at once."""

from localllm.kernels.fields import OWN, arg
from quant.jit import kernel
from quant.threads import call6

# Runs of tiles, one after the other: how many runs, then the fields of each.
RUNS, FIRST_RUN = OWN, OWN + 1
TILES, REPACK, SOURCE, TARGET, BLOCKS, STRIDE = range(6)
RUN_FIELDS = 6


@kernel(4)
def pack(args, begin, end, lane):
    """Tiles begin to end - 1, counted through all runs: nobody waits at the end of a matrix."""
    first = 0
    for n in range(arg(args, RUNS)):
        run = args + 8 * (FIRST_RUN + n * RUN_FIELDS)
        tiles = arg(run, TILES)
        if begin < first + tiles and first < end:
            call6(
                arg(run, REPACK), arg(run, SOURCE), arg(run, TARGET), arg(run, BLOCKS),
                arg(run, STRIDE), max(begin - first, 0), min(end - first, tiles),
            )  # fmt: skip
        first += tiles
