"""A team walks programs: every unit once, whoever sleeps, and however busy the machine is."""

import hashlib
import threading
import time

import numpy as np
import pytest

from localllm.backends.cpu.team import LANE_WORDS, LINE, PARKED, SINGLE_COUNT, Table, Team
from quant.jit import kernel
from quant.simd import get_i64, put_i64
from quant.threads import atomic_add

pytestmark = pytest.mark.usefixtures("kept_kernels")
LANES = [1, 2, 3, 5]


@kernel(4, __name__)
def bump(args, begin, end, lane):
    """Add one to word u of each unit u."""
    for unit in range(begin, end):
        atomic_add(args + 8 * unit, 1)


@kernel(4, __name__)
def bump_lane(args, begin, end, lane):
    """Add the units to the lane's own word."""
    put_i64(args + 64 * lane, get_i64(args + 64 * lane) + end - begin)


@kernel(4, __name__)
def follow(args, begin, end, lane):
    """Word u of the next row becomes u plus the sum of this one, whose width stands before it."""
    width = get_i64(args)
    for unit in range(begin, end):
        total = unit
        for k in range(width):
            total += get_i64(args + 8 + 8 * k)
        put_i64(args + 8 * (width + 2 + unit), total % 1000003)


@kernel(4, __name__)
def bring(args, begin, end, lane):
    """Word u of one place becomes that of another."""
    for unit in range(begin, end):
        put_i64(get_i64(args + 8) + 8 * unit, get_i64(get_i64(args) + 8 * unit))


def counts(single: bool = False, **kinds: int) -> np.ndarray:
    """A batch's counts: kind 0 once, others as given by number."""
    words = np.zeros(32, np.int64)
    words[0], words[SINGLE_COUNT] = 1, single
    for name, value in kinds.items():
        words[int(name[1:])] = value
    return words


@pytest.fixture(params=LANES, ids=lambda lanes: f"{lanes} lanes")
def team(request):
    team = Team(request.param)
    yield team
    team.close()


@pytest.mark.parametrize("seconds", [0.001, 1e-9], ids=["turns", "a turn a piece"])
def test_every_unit_of_every_op_is_done_once(team, seconds, monkeypatch):
    monkeypatch.setattr("localllm.backends.cpu.team.TURN_SECONDS", seconds)
    data = np.zeros((50, 64), np.int64)
    rows = [(bump.address, data[i].ctypes.data, i + 1, 0, False) for i in range(50)]
    table = Table(rows, team.lanes)
    for step in range(1, 301):
        team.run(table, counts(single=step % 2 == 0))
        assert (data[np.tri(50, 64, 0, bool)] == step).all()
        assert not data[~np.tri(50, 64, 0, bool)].any()


def test_an_op_begins_when_the_one_before_is_done(team):
    width, ops = 37, 40
    rows = np.zeros((ops + 1, 1 + width), np.int64)  # a row's width, then its words
    rows[:, 0], rows[0, 1:] = width, np.arange(width)
    table = Table([(follow.address, r.ctypes.data, width, 0, False) for r in rows[:-1]], team.lanes)
    for _ in range(20):
        rows[1:, 1:] = -1
        team.run(table, counts())
        for before, after in zip(rows[:-1, 1:], rows[1:, 1:], strict=True):
            np.testing.assert_array_equal(after, (before.sum() + np.arange(width)) % 1000003)


@pytest.mark.parametrize("single", [False, True])
def test_passes_follow_each_other(team, single):
    """The last op of one is done before the first of the next begins."""
    width, ops = 37, 9
    rows = np.zeros((ops + 1, 1 + width), np.int64)
    rows[:, 0] = width
    ends = np.array([rows[-1, 1:].ctypes.data, rows[0, 1:].ctypes.data])
    calls = [(follow.address, r.ctypes.data, width, 0, False) for r in rows[:-1]]
    calls += [(bring.address, ends.ctypes.data, width, 0, False)]
    table, want = Table(calls, team.lanes), np.zeros(width, np.int64)
    for passes in (1, 2, 7, 1, 30):
        team.run(table, counts(single=single), passes)
        for _ in range(passes * ops):
            want = (want.sum() + np.arange(width)) % 1000003
        np.testing.assert_array_equal(rows[0, 1:], want)


def test_counts_of_the_batch_say_how_often(team):
    data = np.zeros((3, 600), np.int64)
    rows = [(bump.address, data[k].ctypes.data, 7, k, False) for k in range(3)]
    table = Table(rows, team.lanes)
    team.run(table, counts(k1=80, k2=0))
    assert (data[0] > 0).sum() == 7 and (data[1] > 0).sum() == 560 and not data[2].any()


def test_a_single_tokens_small_ops_are_done_by_each_lane_for_itself(team):
    """By each lane that takes part: one that comes too late for a step does nothing at all."""
    data, shared = np.zeros((8, 8), np.int64), np.zeros(400, np.int64)
    rows = [
        (bump_lane.address, data.ctypes.data, 5, 0, True),
        (bump.address, shared.ctypes.data, 400, 0, False),
    ]
    table, before = Table(rows, team.lanes), np.zeros(team.lanes, np.int64)
    for step in range(1, 101):
        team.run(table, counts(single=True))
        done = data[: team.lanes, 0] - before
        assert done[0] == 5 and set(done) <= {0, 5} and (shared == step).all()
        before += done
    assert not data[team.lanes :].any()
    team.run(table, counts(single=False))
    assert data[:, 0].sum() == before.sum() + 5


def test_helpers_sleep_and_are_woken(team):
    data = np.zeros(200, np.int64)
    table = Table([(bump.address, data.ctypes.data, 200, 0, False)], team.lanes)
    for step in range(1, 6):
        team.run(table, counts())
        assert (data == step).all()
        deadline = time.monotonic() + 20
        while not _all_sleep(team) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert _all_sleep(team), "a lane still spins long after its step"


def _all_sleep(team) -> bool:
    words = [LANE_WORDS + 2 * LINE * lane + PARKED for lane in range(1, team.lanes)]
    return all(team.memory.view(np.int64)[word // 8] == 1 for word in words)


def test_other_tables_take_turns(team):
    """A table's words carry the step: an old one may come back after many steps of another."""
    data = np.zeros((2, 100), np.int64)
    tables = [
        Table([(bump.address, row.ctypes.data, 100, 0, False)] * 3, team.lanes) for row in data
    ]
    for turn in range(40):
        team.run(tables[turn % 3 == 0], counts())
    assert (data[1] == 3 * 14).all() and (data[0] == 3 * 26).all()


def test_busy_threads_beside_it_change_nothing(team):
    stop, block = threading.Event(), bytes(1 << 20)

    def work():
        while not stop.is_set():
            hashlib.blake2b(block).digest()  # without the GIL

    busy = [threading.Thread(target=work) for _ in range(3)]
    for thread in busy:
        thread.start()
    try:
        data = np.zeros((20, 40), np.int64)
        rows = [(bump.address, row.ctypes.data, 40, 0, False) for row in data]
        table = Table(rows, team.lanes)
        for _ in range(50):
            team.run(table, counts())
        assert (data == 50).all()
    finally:
        stop.set()
        for thread in busy:
            thread.join()


def test_an_empty_program_and_a_closed_team():
    team = Team(3)
    team.run(Table([], 3), counts())
    helpers = list(team.helpers)
    assert all(thread.is_alive() for thread in helpers)
    team.close()
    assert not any(thread.is_alive() for thread in helpers)
    team.close()  # twice is once


def test_a_team_that_never_ran_closes():
    Team(4).close()


def test_two_teams_at_once():
    teams = [Team(2), Team(3)]
    data = np.zeros((2, 64), np.int64)

    def work(team, row):
        table = Table([(bump.address, row.ctypes.data, 64, 0, False)] * 5, team.lanes)
        for _ in range(100):
            team.run(table, counts())

    threads = [threading.Thread(target=work, args=pair) for pair in zip(teams, data, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (data == 500).all()
    for team in teams:
        team.close()
