"""`localllm bench` on the command line: rows as they are done, in every form, and Ctrl-C."""

import csv
import io
import json

import pytest
import tiny
from typer.testing import CliRunner

from localllm.bench import session
from localllm.bench.grid import Case
from localllm.bench.measure import Row
from localllm.bench.profile import Operation, records
from localllm.cli import app as cli

ROWS = [Row("m", Case("pp", 512), 2, [1.0, 2.0, 4.0]), Row("m", Case("tg", 64), 2, [1.0])]


@pytest.fixture
def bench(home, tmp_path, monkeypatch):
    """bench(...) -> the result of the command; `session` has what bench.done says."""
    path = tiny.write(tmp_path / "m.gguf")

    def invoke(*words):
        def given(*_, **options):
            invoke.options = options
            for each in invoke.done:
                if isinstance(each, BaseException):
                    raise each
                yield each

        monkeypatch.setattr(session, "bench", given)
        monkeypatch.setattr(session, "profiles", given)
        return CliRunner().invoke(cli.build(), ["bench", str(path), *words])

    invoke.done = ROWS
    return invoke


def test_a_table_is_the_default(bench):
    result = bench()
    head, rule, first, second = result.stdout.splitlines()
    assert (result.exit_code, "llama.cpp" in head) == (0, False) and set(rule) <= set("|-: ")
    assert "| pp512 " in first and " 256.0 ± " in first and " 64.0 |" in second
    assert len({len(line) for line in result.stdout.splitlines()}) == 1


def test_repeats_are_only_fixed_when_they_are_asked_for(bench):
    bench()
    assert bench.options["repeats"] is None and bench.options["peer"] is False
    bench("-r", "5", "--peer")
    assert bench.options["repeats"] == 5 and bench.options["peer"] is True


def test_json_and_csv_say_the_same(bench):
    found = json.loads(bench("--json").stdout)
    assert [(r["test"], r["tokens_per_second"], r["runs"]) for r in found] == [
        ("pp512", 256.0, 3), ("tg64", 64.0, 1)
    ]  # fmt: skip
    lines = list(csv.DictReader(io.StringIO(bench("--csv").stdout)))
    assert [line["tokens_per_second"] for line in lines] == ["256.0", "64.0"]
    assert list(lines[0]) == list(found[0])


@pytest.mark.parametrize("words", [[], ["--json"], ["--csv"]])
def test_an_interrupt_keeps_what_is_done(bench, words):
    bench.done = [*ROWS[:1], KeyboardInterrupt()]
    result = bench(*words)
    assert result.exit_code == 130 and result.stdout.count("pp512") == 1
    if words == ["--json"]:
        assert [record["test"] for record in json.loads(result.stdout)] == ["pp512"]
    bench.done = [KeyboardInterrupt()]
    assert (bench(*words).exit_code, bench(*words).stdout) == (130, "")


def profile():
    operations = [
        Operation("qkv", {0: 1e-5, 1: 3e-5}, bytes=10**5, products=10**6, waited=1e-6),
        Operation("attend", {0: 6e-5}, bytes=0, products=0, waited=0.0),
    ]
    plain = records(operations, bandwidth=1e10, rate=1e11)
    return session.Profile(Case("tg", 1), operations, plain, "qkv is furthest from its bound.")


def test_a_profile_in_every_form(bench):
    bench.done = [profile()]
    found = json.loads(bench("--profile", "--json").stdout)
    assert [(r["test"], r["threads"], r["operation"], r["us"]) for r in found[:2]] == [
        ("tg1", found[0]["threads"], "attend", 60.0), ("tg1", found[0]["threads"], "qkv", 40.0)
    ]  # fmt: skip
    assert found[0]["bound_percent"] is None and found[0]["gb_per_second"] is None
    assert found[1]["bound_us"] == 10 and found[1]["bound_percent"] == 25
    assert (found[1]["us_a_layer_least"], found[1]["us_a_layer_most"]) == (10, 30)
    lines = list(csv.DictReader(io.StringIO(bench("--profile", "--csv").stdout)))
    assert [line["us"] for line in lines] == ["60.0", "40.0"] and list(lines[0]) == list(found[0])
    text = bench("--profile", "-t", "1,2").stdout
    assert text.count("| attend ") == 2 and text.count("furthest from its bound.") == 2
    assert "as threads grow" in text
