"""Benchmarks: the grid, whose turn it is, what a row says, what a pass must read."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny

from localllm.batch import PAGE
from localllm.bench import report
from localllm.bench.costs import Costs, costs
from localllm.bench.grid import Case, grid, numbers
from localllm.bench.measure import Row, measure
from localllm.bench.ours import Ours, ids_of
from localllm.bench.peer import Peer, library
from localllm.bench.profile import Operation, scaling
from localllm.errors import BadRequest, Unavailable
from localllm.gguf import GGUF


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", [512]),
        ("1,2,8", [1, 2, 8]),
        ("1-4", [1, 2, 3, 4]),
        ("16-64+16", [16, 32, 48, 64]),
        ("1-16*2", [1, 2, 4, 8, 16]),
        ("0, 5-5", [0, 5]),
    ],
)
def test_numbers(text, expected):
    assert numbers(text) == expected


@pytest.mark.parametrize("text", ["", "x", "4-1", "1-8+0", "1-8*1", "0-8*2", "1-1000000", "1..3"])
def test_lists_that_mean_nothing(text):
    with pytest.raises(BadRequest):
        numbers(text)


def test_the_grid_has_llama_bench_names():
    names = [case.name for case in grid([512], [64], [0, 4096], [1, 8])]
    assert names == ["pp512", "tg64", "pp512x8", "tg64x8", "pp512@d4096", "tg64@d4096",
                     "pp512x8@d4096", "tg64x8@d4096"]  # fmt: skip
    assert [case.name for case in grid([0], [8], [0], [1])] == ["tg8"]
    with pytest.raises(BadRequest):
        grid([0], [0], [0], [1])


class Recorder:
    """Stands in for a model: keeps the batches, and checks what a kernel would rely on."""

    vocab, max_rows, pages = 300, 100, 200

    def __init__(self):
        self.batches = []

    def forward(self, batch):
        assert batch.begins[-1] == len(batch.ids) <= self.max_rows
        assert all(a.dtype == np.int32 for a in (batch.ids, batch.begins, batch.starts))
        ends = batch.starts + np.diff(batch.begins)
        assert (batch.tables.shape[1] * PAGE >= ends).all()
        self.batches.append(batch)


def test_a_prompt_goes_in_passes_and_generation_token_by_token():
    ours, case = Ours(Recorder()), Case("pp", 250, depth=30)
    ours.prepare(case)
    ours.model.batches.clear()
    ours.run(case)
    assert [(int(b.starts[0]), len(b.ids)) for b in ours.model.batches] == [
        (30, 100),
        (130, 100),
        (230, 50),
    ]
    ours, case = Ours(Recorder()), Case("tg", 3, depth=7, batch=4)
    ours.prepare(case)
    ours.model.batches.clear()
    ours.run(case)
    assert [b.starts.tolist() for b in ours.model.batches] == [[7] * 4, [8] * 4, [9] * 4]
    assert all(b.wanted.tolist() == [0, 1, 2, 3] for b in ours.model.batches)
    tables = ours.model.batches[0].tables
    assert len(set(tables.ravel().tolist())) == tables.size  # no two sequences share a page


def test_what_comes_before_is_computed_once():
    ours = Ours(Recorder())
    computed = []
    for case in grid([8], [4], [20, 50], [1, 2]):
        ours.prepare(case)
        computed += [
            (case.name, int(b.starts[0]), len(b.ids), int(b.tables[0, 0]))
            for b in ours.model.batches
        ]
        ours.run(case)
        ours.model.batches.clear()
    first, second = computed[0][3], computed[1][3]  # pages where the two sequences begin
    assert first != second
    assert computed == [
        ("pp8@d20", 0, 20, first),
        ("pp8x2@d20", 0, 20, second),
        ("pp8@d50", 28, 22, first),  # behind what the test before had computed
        ("pp8x2@d50", 28, 22, second),
    ]


def test_a_peer_computes_one_sequence_and_copies_it(monkeypatch):
    class Memory:
        """As much of llama.cpp's interface as moves sequences about."""

        def llama_init_from_model(self, model, options):
            return self

        def llama_get_memory(self, context):
            return self

        def llama_context_default_params(self):
            return SimpleNamespace()

        def llama_memory_seq_rm(self, memory, sequence, start, end):
            held[sequence] = held[sequence][: max(start, 0)]

        def llama_memory_seq_cp(self, memory, source, target, start, end):
            assert (start, end) == (-1, -1)  # of separate streams it copies only whole ones
            held[target] = list(held[source])

    def decode(self, ids, positions, sequences, wanted):
        passes.append(len(ids))
        for id, position, sequence in zip(ids, positions, sequences, strict=True):
            assert len(held[sequence]) == position
            held[sequence].append(id)

    held, passes = [[], []], []
    monkeypatch.setattr(Peer, "_decode", decode)
    peer = Peer(SimpleNamespace(api=Memory(), vocab=300, model=None), True, 64, 2, 1, "f16")
    before = {}
    for case in grid([8], [4], [20, 50], [1, 2]):
        passes.clear()
        peer.prepare(case)
        before[case.name] = list(passes)
        peer.run(case.short)
        peer.run(case)
        assert held[: case.batch] == [ids_of(case.length, 300).tolist()] * case.batch
    # of both sequences one is computed, and of the next depth what the last test left to do
    assert {name: ids for name, ids in before.items() if ids} == {"pp8@d20": [20], "pp8@d50": [26]}


def test_both_sides_get_the_same_ids_and_longer_ones_begin_alike():
    assert (ids_of(64, 50_000) == ids_of(100, 50_000)[:64]).all()
    assert ids_of(64, 10).max() < 10


def test_a_warm_up_has_passes_of_the_same_shape():
    assert Case("pp", 2000, 7, batch=8).short == Case("pp", 512, 7)
    assert Case("tg", 64, 7, batch=8).short == Case("tg", 8, 7, batch=8)
    assert Case("tg", 4).short == Case("tg", 4)


class Clock:
    """A side that takes the seconds it was given, and says when it had its turn."""

    def __init__(self, name, turns, *seconds):
        self.name, self.turns, self.seconds = name, turns, list(seconds)

    def prepare(self, case):
        self.turns.append(f"{self.name} prepares")

    def run(self, case):
        self.turns.append(f"{self.name} {case.name}")
        return self.seconds.pop(0)


COSTS = Costs({"Q8_0": 1000}, {"Q6_K": 500}, weight_bytes=2000, kv_bytes=10)


def rows(cases, ours, peers=(), rates=None, bandwidth=lambda: 1e6, repeats=3, **more):
    rates = rates or {}
    return list(
        measure(
            "m", cases, 2, ours, peers, repeats, COSTS, rates, bandwidth, lambda *_: None, **more
        )
    )


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("localllm.bench.measure.PAUSE", 0)


def test_runs_interleave_and_the_warm_up_does_not_count():
    turns = []
    ours = Clock("ours", turns, 99, 1, 3, 2)
    peers = [Clock("on", turns, 99, 8, 8, 8), Clock("off", turns, 99, 4, 5, 4)]
    [row] = rows([Case("tg", 12)], ours, peers)
    prepared = [(f"{name} prepares", f"{name} tg8") for name in ("ours", "on", "off")]
    assert turns[:6] == [turn for pair in prepared for turn in pair]
    assert turns[6:] == ["ours tg12", "on tg12", "off tg12"] * 3
    assert row.tokens_per_second == 6  # the median run
    assert row.peer_tokens_per_second == 3  # of the better peer
    assert row.stddev == pytest.approx(np.std([12, 4, 6], ddof=1))


def test_a_slow_case_gets_fewer_runs_unless_they_are_asked_for():
    def sides(seconds):
        return Clock("", [], 1, *[seconds] * 5), [Clock("", [], 1, *[seconds] * 5)]

    for seconds, asked, runs in ((1, None, 3), (6, None, 2), (50, None, 1), (50, 5, 5)):
        [row] = rows([Case("tg", 12)], *sides(seconds), repeats=asked)
        assert [len(row.seconds), len(row.peers[0])] == [runs, runs]
        assert report.record(row)["runs"] == runs


def test_a_peer_that_is_far_behind_when_it_warms_up_runs_no_more():
    def race(on, off, alike=True):
        peers = [Clock("on", [], on, 2, 2, 2), Clock("off", [], off, 2, 2, 2)]
        [row] = rows([Case("pp", 12)], Clock("", [], 1, 1, 1, 1), peers, alike=alike)
        assert row.peer_tokens_per_second == 6
        return [len(seconds) for seconds in row.peers]

    assert race(30, 10) == [0, 3] and race(10, 30) == [3, 0]
    assert race(0.03, 0.01) == [3, 3]  # too short to tell
    assert race(11, 10) == [3, 3]
    assert race(30, 10, alike=False) == [3, 3]


def test_rows_come_as_they_are_done():
    class Interrupted(Clock):
        def run(self, case):
            if case.kind == "pp":
                raise KeyboardInterrupt
            return super().run(case)

    cases, got = [Case("tg", 12), Case("pp", 12)], []
    ours = Interrupted("", [], 1, 1, 1, 1)
    done = measure("m", cases, 2, ours, [], 3, COSTS, {}, lambda: 1e6, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        for row in done:
            got.append(row.case.name)
    assert got == ["tg12"]


def test_shares_of_what_the_hardware_gives():
    [row] = rows([Case("tg", 10, depth=100)], Clock("", [], 9, 1, 1, 1))
    assert row.bytes_read == 10 * (2000 + 105 * 10)
    assert row.bandwidth_percent == pytest.approx(100 * row.bytes_read / 1e6)
    rates = {"Q8_0": 1e6, "Q6_K": 1e6}
    [row] = rows([Case("pp", 100)], Clock("", [], 9, 1, 1, 1), rates=rates)
    assert row.peak_percent == pytest.approx(100 * (100 * 1000 + 500) / 1e6)
    assert row.bandwidth_percent is None


def test_json_has_the_names_other_tools_rely_on():
    [row] = rows([Case("tg", 12)], Clock("", [], 9, 1, 3, 2))
    record = report.record(row)
    assert record["model"] == "m" and record["test"] == "tg12" and record["threads"] == 2
    assert record["tokens_per_second"] == 6 and record["stddev"] == pytest.approx(4.16)
    assert "peer_tokens_per_second" not in record


def test_tables_line_up():
    row = Row("m", Case("pp", 512), 2, [1.0, 1.0], [[2.0, 2.0]], [1e9])
    records = [report.record(row), {**report.record(row), "model": "longer", "runs": 1}]
    table = report.markdown(records)
    assert len({len(line) for line in table}) == 1 and "% of bandwidth" not in table[0]
    assert " 2.00 |" in table[2] and "512.0 ± 0.0 |" in table[2] and " 512.0 |" in table[3]
    columns = report.columns(peer=True)  # one by one, before it is known how wide they will be
    lines = [*report.head(columns), *(report.line(columns, record) for record in records)]
    assert len({len(line) for line in lines}) == 1 and "% of bandwidth" in lines[0]
    assert [cell.strip() for cell in lines[2].split("|")][1:6] == [
        "m", "pp512", "2", "512.0 ± 0.0", "256.0"
    ]  # fmt: skip
    assert "llama.cpp" not in report.head(report.columns(peer=False))[0]


def test_a_peer_comes_from_the_folder_it_is_asked_for_in(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    (tmp_path / "llama_cpp").mkdir()
    lines = ["started = []", "def llama_backend_init(): started.append(1)"]
    (tmp_path / "llama_cpp" / "__init__.py").write_text("\n".join(lines))
    before = list(sys.path)
    found = library(tmp_path)
    monkeypatch.delitem(sys.modules, "llama_cpp")
    assert Path(found.__file__).parents[1] == tmp_path and found.started == [1]
    assert sys.path == before
    with pytest.raises(Unavailable, match="holds no llama_cpp") as caught:
        library(tmp_path / "elsewhere")
    assert "--target" in caught.value.hint


def test_a_page_of_results_keeps_the_other_instruction_sets(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import cpu

    machine = {
        "cpu": "Chip", "instructions": "avx2", "threads": 2, "threads_why": "cores",
        "bandwidth": 3e10, "multiply_adds": {"Q8_0": 2e11}, "versions": {"localllm": "1"},
    }  # fmt: skip
    rows = [report.record(Row("m", Case("pp", 512), 2, [1.0], [[2.0]], [1e9]))]
    first = cpu.page("", cpu.section(machine, "peer 1", ["-r", "5"], rows))
    assert "## avx2\n" in first and "Q8_0 200 G" in first and "peer 1" in first
    both = cpu.page(first, cpu.section({**machine, "instructions": "neon"}, "p", [], rows))
    again = cpu.page(both, cpu.section(machine, "peer 2", ["-r", "5"], rows))
    assert again.count("## ") == 2 and "peer 1" not in again and "peer 2" in again
    assert again.index("## avx2") < again.index("## neon") and again.count(" 2.00 |") == 2


def test_costs_leave_out_the_embedding_unless_it_is_the_head(tmp_path):
    numbers = {"vocab": 320, "width": 64, "layers": 1, "feed_forward": 96}
    for architecture, tied in (("llama", False), ("gemma3", True)):
        path = tiny.write(tmp_path / f"{architecture}.gguf", architecture=architecture, **numbers)
        with GGUF.open(path) as gguf:
            found = costs(gguf, kv_bytes=4)
            size = sum(tensor.nbytes for tensor in gguf.tensors.values())
            embedding = gguf.tensors["token_embd.weight"].nbytes
        assert found.head == {"Q8_0": 320 * 64}
        assert found.layers == {"Q8_0": 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96}
        assert found.weight_bytes == size - (0 if tied else embedding)


def test_a_whole_benchmark_of_a_tiny_model(tmp_path, kept_kernels, monkeypatch):
    from localllm.bench import session

    monkeypatch.setattr(session, "keep", lambda: kept_kernels)
    path = tiny.write(tmp_path / "m.gguf")
    cases = grid([24], [3], [0, 20], [1, 2])
    rows = list(session.bench("m", path, cases, 2, repeats=2, progress=lambda *_: None))
    assert [row.case for row in rows] == cases
    for row in rows:
        assert len(row.seconds) == 2 and min(row.seconds) > 0 and row.bandwidth > 1e8
        assert row.peak_percent > 0


def test_a_profile_names_what_a_pass_does(tmp_path, kept_kernels, monkeypatch):
    from localllm.bench import session

    monkeypatch.setattr(session, "keep", lambda: kept_kernels)
    path = tiny.write(tmp_path / "m.gguf", layers=3)
    cases = grid([24], [2], [0], [1])
    for each in session.profiles(path, cases, 2, progress=lambda *_: None):
        records = each.records
        assert any("attend" in record["operation"] for record in records), records
        shares = [record["share_percent"] for record in records]
        assert sum(shares) == pytest.approx(100, abs=1) and shares == sorted(shares, reverse=True)
        assert "bound" in each.remark and each.case in cases
        assert len(report.markdown(records, report.OPERATIONS)) == 2 + len(records)
    assert max(record["layers"] for record in records) >= 3


def test_what_operations_cost_as_threads_grow():
    def operations(*seconds):
        names = zip(("qkv", "attend"), seconds, strict=True)
        return [Operation(name, {0: t}, 0, 0, waited=0.0) for name, t in names]

    rows = scaling({1: operations(8e-6, 40e-6), 2: operations(4e-6, 25e-6)})
    assert rows == [
        ["operation", "us, 1 thread", "us, 2 threads", "times"],
        ["attend", "40", "25", "1.60"],
        ["qkv", "8", "4", "2.00"],
        ["all", "48", "29", "1.66"],
    ]
