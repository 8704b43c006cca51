"""Weights from the file's blocks to tiles: by all lanes, by one thread beside others' work, or a
tile at a time for a product that comes before they are repacked."""

from localllm.kernels.fields import OWN, arg
from quant.jit import kernel
from quant.later import inline
from quant.simd import LANES, put_i64
from quant.threads import atomic_load, call6

# A matrix on its way: of its WHOLE tiles those before READY stand at TARGET, the others are still
# in the file, at SOURCE, in rows of BLOCKS blocks STRIDE bytes apart. Its last tile, where rows are
# missing, counts as none of them. ROOM takes a tile, ROOM_BYTES for each lane.
READY, WHOLE, REPACK, SOURCE, TARGET, BLOCKS, STRIDE, ROOM, ROOM_BYTES = range(9)
MATRIX_FIELDS = 9

# Runs of tiles, one after the other: how many runs, then the fields of each.
RUNS, FIRST_RUN = OWN, OWN + 1
MATRIX, FIRST, TILES = range(3)
RUN_FIELDS = 3


@inline
def repack(matrix, target, first, end):
    """Tiles first to end - 1 of a matrix, to where they belong in one that begins at `target`."""
    call6(
        arg(matrix, REPACK), arg(matrix, SOURCE), target, arg(matrix, BLOCKS), arg(matrix, STRIDE),
        first, end,
    )  # fmt: skip


@kernel(4)
def pack(args, begin, end, lane):
    """Tiles begin to end - 1, counted through all runs: nobody waits at the end of a matrix."""
    before = 0
    for n in range(arg(args, RUNS)):
        run = args + 8 * (FIRST_RUN + n * RUN_FIELDS)
        tiles, matrix = arg(run, TILES), arg(run, MATRIX)
        if begin < before + tiles and before < end:
            first = arg(run, FIRST) - before
            repack(
                matrix, arg(matrix, TARGET), max(begin, before) + first,
                min(end, before + tiles) + first,
            )  # fmt: skip
        before += tiles


@kernel(2)
def pack_until(args, stop):
    """The runs' tiles in order, each READY when it is done, until the word at `stop` is not 0."""
    for n in range(arg(args, RUNS)):
        run = args + 8 * (FIRST_RUN + n * RUN_FIELDS)
        matrix, first = arg(run, MATRIX), arg(run, FIRST)
        for tile in range(first, first + arg(run, TILES)):
            if atomic_load(stop):
                return
            repack(matrix, arg(matrix, TARGET), tile, tile + 1)
            put_i64(matrix + 8 * READY, tile + 1)


@inline
def late_tile(matrix, tile, lane):
    """Where a tile stands that the file still has: in the lane's own room, until the next one."""
    room = arg(matrix, ROOM) + lane * arg(matrix, ROOM_BYTES)
    source = arg(matrix, SOURCE) + tile * LANES * arg(matrix, STRIDE)
    call6(
        arg(matrix, REPACK), source, room, arg(matrix, BLOCKS), arg(matrix, STRIDE), 0, 1
    )  # fmt: skip
    return room


@inline
def is_late(matrix, tile):
    """Whether a tile is still to be repacked."""
    return arg(matrix, READY) <= tile and tile < arg(matrix, WHOLE)
