"""Which models a server may load, two of them at work at once, and the key that a file holds."""

import os
import threading

import httpx
import pytest
import tiny
from fakes_server import serving, until

from localllm import catalog, opening
from localllm.cli.commands.serve import read_key
from localllm.errors import BadRequest, NotFound
from localllm.server.library import Installed

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def paths(tmp_path):
    return [str(tiny.write(tmp_path / f"tiny{i}.gguf", seed=i)) for i in (1, 2)]


def test_what_was_named_and_nothing_else(paths):
    library = Installed(paths, {})
    assert library.named == ("tiny1", "tiny2") == tuple(library.names())
    assert library.find("tiny1").size > 1000
    for name in (paths[0], "smollm2", "hf:a/b", "../tiny1", "", "tiny1.gguf"):
        assert library.find(name) is None, "a request pulls nothing and reads no path"
    assert library.bytes("tiny1") > 1000
    library.close()


def test_an_alias_the_user_made(paths):
    catalog.copy(paths[0], "mine")
    library = Installed([], {})
    assert library.find("mine").name == "mine" and library.named == ()
    library.close()


def test_two_models_of_one_name(tmp_path, paths):
    (tmp_path / "other").mkdir()
    twin = tiny.write(tmp_path / "other" / "tiny1.gguf")
    with pytest.raises(BadRequest, match="tiny1"):
        Installed([paths[0], str(twin)], {})


def test_models_that_are_not_there(tmp_path):
    with pytest.raises(NotFound):
        Installed([str(tmp_path / "none.gguf")], {})


def test_two_models_take_turns_and_make_room(paths, kept_kernels, monkeypatch):
    monkeypatch.setattr(opening, "keep", lambda: kept_kernels)
    library = Installed(paths, {"context": 64, "threads": 2})

    def ask(site, model):
        body = {"model": model, "prompt": "abc", "max_tokens": 20, "temperature": 0}
        answer = httpx.post(f"{site.note.url}/v1/completions", json=body, timeout=600)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]

    with serving(library, library.named) as site:
        alone = {name: ask(site, name) for name in library.named}
        together = []

        def work(name):
            together.append((name, ask(site, name)))

        threads = [threading.Thread(target=work, args=(name,)) for name in library.named * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(together) == 8 and all(alone[name] == text for name, text in together)
        engines = [t for t in threading.enumerate() if t.name == "localllm-engine"]
        assert len(engines) == 1, "one thread computes for all models"
    with serving(library, memory=int(1.5 * library.bytes("tiny1"))) as site:
        assert ask(site, "tiny1") == alone["tiny1"]
        assert until(lambda: site.pool.entries["tiny1"].users == 0)
        assert ask(site, "tiny2") == alone["tiny2"] and list(site.pool.entries) == ["tiny2"]
    library.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps files by other means")
def test_a_key_file_is_the_users_alone(tmp_path):
    file = tmp_path / "key"
    file.write_text("sesame\n")
    file.chmod(0o600)
    assert read_key(file) == "sesame"
    file.chmod(0o644)
    with pytest.raises(BadRequest, match="Others can read"):
        read_key(file)
    with pytest.raises(NotFound):
        read_key(tmp_path / "none")
