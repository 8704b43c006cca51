"""models.yaml: ours is sound, the user's adds to it, a damaged one is named."""

import pytest

from localllm import entries, paths
from localllm.errors import BadFile
from localllm.sampling import Sampling
from localllm.sources import pypi


@pytest.fixture
def user(home):
    def write(text: str) -> None:
        path = paths.user_catalog()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write


def test_our_entries_are_complete(home):
    known = entries.read()
    assert set(known) >= {"smollm2", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"}
    for entry in known.values():
        assert entry.description and entry.license and entry.architecture and entry.sources
        assert entry.parameters and entry.size and entry.file.endswith(".gguf")
        assert len(entry.sha256) == 64
        Sampling(**entry.sampling)


def test_our_wheels_are_spelled_out(home):
    for entry in entries.read().values():
        for source in entry.sources:
            if source.startswith("pypi:"):
                specs = [pypi._spec(text) for text in pypi.expand(source.removeprefix("pypi:"))]
                assert all(version and member for _, version, member in specs)
                assert len({project for project, _, _ in specs}) == len(specs)


def test_the_user_adds_and_overrides(user):
    user(
        "models:\n"
        "  smollm2: {system: Be brief., sampling: {temperature: 0}}\n"
        "  mine: {sources: ['path:/x.gguf'], context: 4096}\n"
    )
    known = entries.read()
    assert known["smollm2"].system == "Be brief." and known["smollm2"].sources
    assert known["smollm2"].sampling == {"temperature": 0, "top_p": 0.9}
    assert known["mine"].context == 4096 and known["mine"].name == "mine"


@pytest.mark.parametrize(
    "text, message",
    [
        ("models: [", "is not YAML"),
        ("[" * 10_000, "is not YAML"),
        ("\0", "is not YAML"),
        ("models: 7", "must hold"),
        ("models: {a: 7}", "'a'.*not a list of fields"),
        ("models: {../a: {}}", "cannot be a model's name"),
        ("models: {hf:a: {}}", "source or a file|is not YAML|cannot be"),
        ("models: {a: {sizes: 1}}", "no such field: 'sizes'"),
        ("models: {a: {size: -1}}", "'size' must be a whole number"),
        ("models: {a: {size: true}}", "'size' must be a whole number"),
        ("models: {a: {sha256: abc}}", "64 digits"),
        ("models: {a: {file: ../../x}}", "plain file name"),
        ("models: {a: {sources: x}}", "list of at most"),
        ("models: {a: {sources: [1]}}", "must be text"),
        ("models: {a: {sampling: {top_k: many}}}", "names to numbers"),
        ("models: {a: !!python/object/apply:os.system [echo]}", "is not YAML"),
    ],
)
def test_a_damaged_file_is_named(user, text, message):
    user(text)
    with pytest.raises(BadFile, match=message) as caught:
        entries.read()
    assert str(paths.user_catalog()) in caught.value.message


def test_anchors_within_anchors_cost_nothing(user):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    user("\n".join(lines) + "\nmodels: {b: {capabilities: *a59}}\n")
    with pytest.raises(BadFile, match="must be text"):
        entries.read()


def test_an_oversized_file_is_refused(user):
    user("#" * (entries.MAX_BYTES + 1))
    with pytest.raises(BadFile, match="larger than"):
        entries.read()


def test_editing_keeps_what_is_there(user):
    user("models:\n  mine: {alias: smollm2, system: Grüße}\n")
    entries.edit(lambda models: models.update(other={"alias": "mine"}))
    known = entries.read()
    assert known["mine"].system == "Grüße" and known["other"].alias == "mine"
    assert [file.name for file in paths.data().iterdir()] == ["models.yaml"]
