"""A team of threads that walks a program: each op's pieces are claimed, none waits for a sleeper.

An op is done when all of its units are, not when every lane has arrived: a lane that lost its core
between pieces holds nobody up. Each lane claims from its own share first, in order, then from the
others'. Words carry the number of the step, so nothing has to be reset. What a lane has done stands
beside what was taken of its share: whoever looks for work learns from one line whether to wait. A
lane that has computed for a turn gives its core away while it holds no piece: beside a busy process
it would lose it soon, and with a piece in hand. Lanes spin for a while after a step, then sleep
until they are called.
"""

import os
import threading
import time

import numpy as np

from localllm.backends.cpu.memory import LINE, aligned
from localllm.machine import MOST_THREADS
from quant.jit import kernel
from quant.later import inline
from quant.simd import get_i64, put_i64
from quant.threads import (
    atomic_load,
    atomic_store,
    call4,
    compare_exchange,
    give_way,
    pause,
    publish,
    ticks,
)

# An op's words, a line for each lane: units taken of its share, units it has done of any.
TAKEN, DONE = 0, 8

# Words of the team, each on a line of its own, for lanes write to different ones; then two lines
# a lane: whether it sleeps, and whether it is in a step.
STEP, PROGRAM, OPS, COUNTS, CLOCK, TURN, LANE_WORDS = (LINE * n for n in range(7))
PASSES = OPS + 8  # through the program, each a step of its own
CLOCK_BYTES = CLOCK + 8  # a lane's clocks: whole lines, for lanes write to different ones
PARKED, ACTIVE, SINCE = 0, LINE, LINE + 8
STOP = -1

# A row of a program's table, in fields of 8 bytes.
KERNEL, ARGS, UNITS, KIND, ALONE, WORDS = range(6)
ROW = 8
SINGLE_COUNT = 10  # field of the counts: whether the batch is a single token
PIECES, PIECES_ALONE = 4, 2  # a claim takes this part of what is left of a share: less and less
TURN_SECONDS = 0.001  # of computing, before a lane looks whether others want its core
SPINS, PATIENCE = 2000, 6000  # looks before giving way, and before going to sleep

TAG = 2**28  # more than an op has units; steps beside it are counted for years


@inline
def rest(looks):
    """Spin at first, then give the core away between looks."""
    if looks < SPINS:
        pause()
    else:
        give_way()


@inline
def is_over(team, me, now):
    """Whether a lane has computed for a turn, and should let others have its core."""
    return now - get_i64(me + SINCE) > get_i64(team + TURN)


@inline
def let_others(me):
    """Give the core to whoever wants it, and begin a new turn."""
    give_way()
    put_i64(me + SINCE, ticks())


@inline
def claim(word, step, share, pieces):
    """The next piece of a share that this step has not taken: (begin, end), or nothing."""
    while True:
        seen = atomic_load(word)
        taken = seen - step * TAG if seen >= step * TAG else 0
        if taken >= share:
            return share, share
        end = taken + max(1, (share - taken) // pieces)
        if compare_exchange(word, seen, step * TAG + end) == seen:
            return taken, end


@inline
def units_done(words, lanes, step):
    """How many units of an op this step's lanes have done."""
    units = 0
    for lane in range(lanes):
        done = atomic_load(words + LINE * lane + DONE)
        units += done - step * TAG if done >= step * TAG else 0
    return units


@inline
def do_op(row, counts, lane, lanes, step, team, me):
    """Take part in one op until every unit of it is done."""
    kernel, args = get_i64(row + 8 * KERNEL), get_i64(row + 8 * ARGS)
    units, words = get_i64(row + 8 * UNITS), get_i64(row + 8 * WORDS)
    units *= get_i64(counts + 8 * get_i64(row + 8 * KIND))
    single = get_i64(counts + 8 * SINGLE_COUNT)
    if units == 0:
        return
    if single and get_i64(row + 8 * ALONE):
        call4(kernel, args, 0, units, lane)  # each lane for itself, into its own memory
        return
    mine, pieces = 0, PIECES_ALONE if single else PIECES
    for k in range(lanes):
        owner = (lane + k) % lanes
        first, word = units * owner // lanes, words + LINE * owner + TAKEN
        share = units * (owner + 1) // lanes - first
        begin, end = claim(word, step, share, pieces)
        while begin < share:
            call4(kernel, args, first + begin, first + end, lane)
            mine += end - begin
            if not single and is_over(team, me, ticks()):
                publish(words + LINE * lane + DONE, step * TAG + mine)
                let_others(me)
            begin, end = claim(word, step, share, pieces)
    if mine:
        publish(words + LINE * lane + DONE, step * TAG + mine)
    looks = 0
    while units_done(words, lanes, step) < units:
        rest(looks)
        looks += 1


@inline
def walk(team, lane, lanes, step):
    """One lane's way through the program, as often as asked."""
    program, counts = get_i64(team + PROGRAM), get_i64(team + COUNTS)
    clock = get_i64(team + CLOCK) + lane * get_i64(team + CLOCK_BYTES)
    mine = team + LANE_WORDS + 2 * LINE * lane
    for each in range(step, step + get_i64(team + PASSES)):
        for i in range(get_i64(team + OPS)):
            begin = ticks()
            if is_over(team, mine, begin):
                let_others(mine)
            do_op(program + 8 * ROW * i, counts, lane, lanes, each, team, mine)
            at = clock + 8 * i
            put_i64(at, get_i64(at) + ticks() - begin)


@kernel(4, returns=True)
def serve(team, lane, lanes, last):
    """Wait for steps after `last` and walk them. Returns the last one, to sleep, or STOP."""
    mine = team + LANE_WORDS + 2 * LINE * lane
    looks = 0
    while True:
        now = atomic_load(team + STEP)
        if now == STOP:
            return STOP
        if now & 1 and now != last:
            atomic_store(mine + ACTIVE, 1)
            if atomic_load(team + STEP) == now:  # else it closed before we were in
                walk(team, lane, lanes, now >> 1)
            atomic_store(mine + ACTIVE, 0)
            last, looks = now, 0
        elif looks < PATIENCE:
            rest(looks)
            looks += 1
        else:
            atomic_store(mine + PARKED, 1)
            if atomic_load(team + STEP) == now or compare_exchange(mine + PARKED, 1, 0) == 0:
                return last  # asleep: whoever takes the flag away wakes us
            looks = 0


@kernel(3, returns=True)
def call_lanes(team, lanes, word):
    """Set the step's word; a bit for each lane that sleeps and must be woken."""
    atomic_store(team + STEP, word)
    sleepers = 0
    for lane in range(1, lanes):
        if compare_exchange(team + LANE_WORDS + 2 * LINE * lane + PARKED, 1, 0) == 1:
            sleepers |= 1 << lane
    return sleepers


@kernel(3)
def take_part(team, lanes, word):
    """Lane 0's way through the step; returns when every lane has left it."""
    walk(team, 0, lanes, word >> 1)
    atomic_store(team + STEP, word + 1)
    for lane in range(1, lanes):
        looks = 0
        while atomic_load(team + LANE_WORDS + 2 * LINE * lane + ACTIVE):
            rest(looks)
            looks += 1


@kernel(0, returns=True)
def clock():
    """What `ticks` says now."""
    return ticks()


KERNELS = (serve, take_part, call_lanes, clock)


class Table:
    """A program as a team walks it: rows of (kernel, args, units, kind, alone) and their words.

    clock: (ops, lanes) ticks since whoever wants to know them set them to 0.
    """

    def __init__(self, rows: list[tuple[int, int, int, int, bool]], lanes: int):
        self.ops = len(rows)
        self.words = aligned(max(self.ops, 1) * lanes * LINE)
        self.rows = aligned(max(self.ops, 1) * ROW * 8).view(np.int64).reshape(-1, ROW)
        clocks = aligned((self.ops // 8 + 1) * lanes * LINE).view(np.int64).reshape(lanes, -1)
        self.clock = clocks[:, : self.ops].T
        for i, row in enumerate(rows):
            self.rows[i, :WORDS] = row
            self.rows[i, WORDS] = self.words.ctypes.data + i * lanes * LINE


class Team:
    """`lanes` threads, the caller of `run` being one of them."""

    def __init__(self, lanes: int, pin: bool = False):
        assert 1 <= lanes <= MOST_THREADS
        self.lanes, self.word = lanes, 1
        self.made = clock(), time.perf_counter()
        self.memory = aligned(LANE_WORDS + 2 * LINE * lanes)
        self.address = self.memory.ctypes.data
        self.wake = [threading.Semaphore(0) for _ in range(lanes)]
        self.helpers = [
            threading.Thread(target=self._help, args=(lane, pin), daemon=True, name=f"lane {lane}")
            for lane in range(1, lanes)
        ]
        for thread in self.helpers:
            thread.start()

    def _help(self, lane: int, pin: bool) -> None:
        if pin and hasattr(os, "sched_setaffinity"):
            # Left alone, Linux wakes a helper on the caller's core, and both wait for it.
            cores = sorted(os.sched_getaffinity(0))
            if lane < len(cores):
                os.sched_setaffinity(0, [cores[lane]])
        last = 0
        while (last := serve(self.address, lane, self.lanes, last)) != STOP:
            self.wake[lane].acquire()

    def _call(self, word: int) -> None:
        sleepers = call_lanes(self.address, self.lanes, word)
        for lane in range(1, self.lanes):
            if sleepers >> lane & 1:
                self.wake[lane].release()

    def run(self, table: Table, counts: np.ndarray, passes: int = 1) -> None:
        """Walk a table with these counts so often; the only place where threads meet."""
        fields = self.memory.view(np.int64)
        fields[PROGRAM // 8], fields[OPS // 8] = table.rows.ctypes.data, table.ops
        fields[PASSES // 8] = passes
        fields[COUNTS // 8], fields[CLOCK // 8] = counts.ctypes.data, table.clock.ctypes.data
        fields[CLOCK_BYTES // 8] = table.clock.strides[1]
        if not fields[TURN // 8]:
            fields[TURN // 8] = self._turn()
        self._call(self.word)
        take_part(self.address, self.lanes, self.word)
        self.word += 2 * passes

    def _turn(self) -> int:
        """A turn in ticks, by what passed of them since the team was made."""
        ticks, since = self.made
        return int((clock() - ticks) / (time.perf_counter() - since) * TURN_SECONDS) + 1

    def close(self) -> None:
        """End the helpers."""
        self._call(STOP)
        for thread in self.helpers:
            thread.join()
        self.helpers = []
