"""Models of other programs, used in place and left as they are."""

import json
from pathlib import Path

import pytest
from tiny_gguf import sha256, tiny

from localllm import catalog, foreign, store
from localllm.errors import BadFile, NotFound

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def nobody(home, tmp_path, monkeypatch):
    """A user who has nothing yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(foreign, "_ollama_places", lambda: [tmp_path / ".ollama" / "models"])


def ollama(place: Path, name: str, tag: str, data: bytes, digest: str | None = None) -> Path:
    digest = digest or f"sha256:{sha256(data)}"
    blob = place / "blobs" / f"sha256-{sha256(data)}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    manifest = place / "manifests" / "registry.ollama.ai" / "library" / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
    ]
    manifest.write_text(json.dumps({"layers": layers}))
    return blob


def test_nothing_found():
    assert foreign.found() == []
    with pytest.raises(NotFound):
        foreign.found(Path("/no/such/folder"))


def test_ollama(tmp_path):
    place = tmp_path / ".ollama" / "models"
    blob = ollama(place, "llama3.2", "1b", tiny("l"))
    ollama(place, "other", "latest", tiny("o"))
    ollama(place, "evil", "latest", tiny("e"), "sha256:../../../etc/passwd")
    (place / "manifests/registry.ollama.ai/library/other/odd").write_text("[" * 10_000)
    models = foreign.found()
    assert [(each.name, each.origin) for each in models] == [
        ("llama3.2:1b", "ollama"),
        ("other", "ollama"),
    ]
    assert foreign.found(place) == models
    before = blob.stat().st_mtime_ns
    model = foreign.adopt(models[0])
    assert model.in_place and model.path == blob and model.size == len(tiny("l"))
    assert catalog.resolve("llama3.2:1b", pull=False).path == blob
    store.verify("llama3.2:1b")
    assert foreign.adopt(models[0]) == model
    assert store.remove("llama3.2:1b") == 0 and blob.stat().st_mtime_ns == before
    assert store.installed() == []


def test_lm_studio_and_the_hub_cache(tmp_path):
    file = tmp_path / ".lmstudio" / "models" / "publisher" / "repo" / "Model X-Q4_0.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(tiny())
    (file.parent / "mmproj-x.gguf").write_bytes(tiny())
    base = tmp_path / ".cache" / "huggingface" / "hub" / "models--user--repo"
    cached = base / "snapshots" / SHA / "x-Q8_0.gguf"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(tiny("c"))
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(SHA + "\n")
    found = {each.name: each for each in foreign.found()}
    assert found["Model-X-Q4_0"].path == file and found["Model-X-Q4_0"].origin == "lm-studio"
    assert found["user/repo:q8_0"].path == cached and len(found) == 2
    assert foreign.adopt(found["user/repo:q8_0"]).path == cached
    assert catalog.find("user/repo:q8_0").path == cached


def test_any_folder_and_shards(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"big-0000{number}-of-00002.gguf").write_bytes(tiny())
    (folder / "small.gguf").write_bytes(tiny())
    (folder / "broken.gguf").write_bytes(b"no model")
    found = {each.name: each for each in foreign.found(folder)}
    assert set(found) == {"big", "small", "broken"}
    with pytest.raises(BadFile, match="broken"):
        foreign.adopt(found["broken"])
    foreign.adopt(found["small"])
    assert [model.name for model in store.installed()] == ["small"]


def test_a_name_that_is_taken(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.gguf").write_bytes(tiny(place))
        models = foreign.found(tmp_path / place)
        if place == "a":
            foreign.adopt(models[0])
    with pytest.raises(BadFile, match="installed already"):
        foreign.adopt(models[0])
    (tmp_path / "a" / "x.gguf").unlink()
    assert store.find("x") is None
    assert foreign.adopt(models[0]).path == tmp_path / "b" / "x.gguf"


def test_the_catalogues_names_stay_its_own(tmp_path):
    place = tmp_path / "ollama"
    ollama(place, "smollm2", "latest", tiny("l"))
    ollama(place, "gemma3", "270m", tiny("g"))
    names = [model.name for model in foreign.found(place)]
    assert names == ["gemma3:270m-ollama", "smollm2-ollama"]


def test_what_is_gone_is_not_found(tmp_path):
    file = tmp_path / "x.gguf"
    file.write_bytes(tiny())
    foreign.adopt(foreign.Found("x", file, "folder"))
    file.unlink()
    assert store.find("x") is None and not store.installed()[0].present
    with pytest.raises(BadFile, match="gone"):
        store.verify("x")
    assert store.remove("x") == 0
