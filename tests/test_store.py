"""What is installed: notes that hold, folders that come and go whole, books that balance."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_bytes import STRING, U32, array, gguf, pair, tensor

from localllm import paths, store
from localllm.errors import BadFile, Busy, NotFound
from localllm.lock import held

pytestmark = pytest.mark.usefixtures("home")
TINY = gguf(
    [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "Tiny"),
        pair("general.file_type", U32, 7),
        pair("llama.context_length", U32, 64),
        pair("llama.block_count", U32, 2),
        pair("tokenizer.chat_template", STRING, "{{ messages }} {% if tools %}x{% endif %}"),
        array("tokenizer.ggml.tokens", STRING, ["a", "<fim_prefix>"]),
    ],
    [tensor("a.weight", (32, 2), 8), tensor("b.weight", (4,), 0, offset=96)],
    bytes(112),
)


def install(name: str, data: bytes = TINY, sha256: str | None = None) -> store.Installed:
    folder = store.partial(name)
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest() if sha256 is None else sha256
    files = (folder / "model.gguf",)
    model = store.Installed(name, files, len(data), (digest,), "path:x", store.now(), False)
    store.write_note(folder, model)
    return store.settle(name, folder)


def test_nothing_is_installed_at_first():
    assert store.installed() == [] and store.find("smollm2") is None
    assert store.prune() == []
    with pytest.raises(NotFound):
        store.remove("smollm2")


def test_install_find_remove():
    model = install("gemma3:270m")
    assert store.find("gemma3:270m") == model and store.installed() == [model]
    assert model.path.read_bytes() == TINY and ":" not in str(model.path.relative_to(paths.data()))
    assert store.remove("gemma3:270m") == len(TINY)
    assert store.installed() == [] and not model.path.parent.exists()


def test_a_half_done_model_is_not_there():
    folder = store.partial("a")
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(TINY)
    assert store.installed() == []
    assert store.prune() == [("a", len(TINY))] and not folder.exists()


@pytest.mark.parametrize(
    "note",
    ["", "[", "7", "{}", "[" * 100_000]
    + [{"files": ["../../../etc/passwd"]}, {"files": []}, {"size": "1"}, {"name": 7}],
)
def test_a_damaged_note_is_no_model_and_can_be_pruned(note):
    model = install("a")
    path = model.path.parent / store.NOTE
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **note}) if isinstance(note, dict) else note)
    assert store.find("a") is None and store.installed() == []
    assert [name for name, _ in store.prune()] == ["a"]
    assert not model.path.exists()


def test_what_is_being_pulled_is_left_alone():
    folder = store.partial("a")
    folder.mkdir(parents=True)
    (folder / "x").write_text("half")
    install("b")
    with held(store.lock_file("a")), held(store.lock_file("b")):
        assert store.prune() == [] and folder.exists()
        with pytest.raises(Busy):
            store.remove("b")
    assert store.find("b")


def test_verify():
    model = install("a")
    seen = []
    store.verify("a", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(TINY), len(TINY))
    model.path.write_bytes(TINY[:-1] + b"x")
    with pytest.raises(BadFile, match="damaged"):
        store.verify("a")
    model.path.unlink()
    with pytest.raises(BadFile, match="gone"):
        store.verify("a")
    assert store.find("a") is None and len(store.installed()) == 1


def test_show():
    model = install("a")
    shown = store.show(model.path)
    assert json.loads(json.dumps(shown)) == shown
    wanted = {"name": "Tiny", "architecture": "llama", "parameters": 68, "context_length": 64}
    assert {key: shown[key] for key in wanted} == wanted
    assert (shown["size"], shown["layers"], shown["vocabulary"]) == (len(TINY), 2, 2)
    assert shown["quantization"] == "Q8_0" and shown["path"] == str(model.path)
    assert shown["capabilities"] == ["chat", "tools", "fim"]
    assert shown["tensors"]["Q8_0"] == {"count": 1, "parameters": 64, "size": 68}


def test_file_types_are_those_of_the_gguf_package():
    from gguf.constants import LlamaFileType

    from localllm.describe import FILE_TYPES

    names = {
        kind.value: kind.name.replace("MOSTLY_", "").replace("ALL_", "") for kind in LlamaFileType
    }
    assert all(names[number] == name for number, name in FILE_TYPES.items() if number in names)


def test_reading_the_list_loads_nothing_heavy():
    code = (
        "import sys; from localllm import store; store.installed();"
        "print({'numpy', 'yaml', 'filelock', 'huggingface_hub', 'numba'} & set(sys.modules))"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "set()", done.stderr
