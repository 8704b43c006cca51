"""What a model may be called, and that names become safe and distinct folders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm import names
from localllm.errors import BadRequest


@pytest.mark.parametrize("name", ["smollm2", "gemma3:270m", "user/model:q4_k_m", "A.b-c_d:1.5b"])
def test_good_names(name):
    assert names.check(name) == name and names.is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../x",
        "a b",
        "a:b:c",
        "/abs",
        "a//b",
        "a\\b",
        "hf:a/b",
        "PYPI:x",
        "x.gguf",
        ".x",
        "a" * 256,
    ]
    + ["a\n", "é", "a/../b", None, 7],
)
def test_bad_names(name):
    with pytest.raises(BadRequest):
        names.check(name)


@pytest.mark.parametrize(
    "model, scheme",
    [
        ("smollm2", "name"),
        ("gemma3:270m", "name"),
        ("user/model:tag", "name"),
        ("hf:user/repo:Q4_K_M", "hf"),
        ("pypi:project/path", "pypi"),
        ("model.gguf", "path"),
        ("some/where/Model.GGUF", "path"),
        ("./blob", "path"),
        ("~/blob", "path"),
        ("/srv/blob", "path"),
        ("C:\\models\\x.gguf", "path"),
        ("C:/blob", "path"),
    ],
)
def test_what_a_word_is(model, scheme):
    assert names.scheme(model) == scheme


def test_a_bare_word_stays_a_name_where_a_file_is_called_so(tmp_path, monkeypatch):
    (tmp_path / "smollm2").write_text("")
    monkeypatch.chdir(tmp_path)
    assert names.scheme("smollm2") == "name"


def test_hub_names():
    assert names.hub("hf:user/repo") == ("user/repo", "")
    assert names.hub("hf:user/repo:Q8_0") == ("user/repo", "Q8_0")
    assert names.hub("hf:user/repo/sub/x.gguf") == ("user/repo", "sub/x.gguf")
    for bad in ("hf:user", "hf:/repo", "hf:user/repo/", "hf:a/b/c:Q8_0"):
        with pytest.raises(BadRequest):
            names.hub(bad)


def test_plain_names_keep_plain_folders():
    assert names.folder("smollm2") == "smollm2"
    assert names.folder("gemma3:270m") == "gemma3@270m"
    assert names.folder("hf:user/repo") == "hf@user+repo"


@given(st.text(max_size=300), st.text(max_size=300))
def test_folders_are_safe_and_distinct(one, other):
    folder = names.folder(one)
    assert names.is_file_name(folder) and folder == folder.lower() and len(folder) < 128
    assert (one == other) == (folder == names.folder(other))


@pytest.mark.parametrize(
    "twins", [("a:b", "a/b"), ("Mine", "mine"), ("a@b", "a:b"), ("con", "CON")]
)
def test_names_that_look_alike_get_folders_of_their_own(twins):
    assert len({names.folder(name).lower() for name in twins}) == 2


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "c:x", "nul", "NUL.txt", "x.", " x", "a\0", "a\n", "a*b"]
)
def test_no_file_names(name):
    assert not names.is_file_name(name)
