"""Models from a hub, by way of a small one on this machine."""

import json

import pytest
from fake_web import serving
from tiny_gguf import sha256, tiny

from localllm import catalog, store
from localllm.errors import BadFile, BadRequest, NotFound, Unavailable
from localllm.sources.choose import choose, quant

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    def __init__(self, web):
        self.web, self.siblings = web, []

    def add(self, file: str, data: bytes, *, lfs: bool = True) -> None:
        sibling = {"rfilename": file, "size": len(data)}
        if lfs:
            sibling["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 100}
        self.siblings.append(sibling)
        self.web.add(f"/cdn/{file}", data)
        goal = {"Location": f"/cdn/{file}"}
        self.web.add(f"/user/repo/resolve/{SHA}/{file}", status=302, headers=goal)
        info = {"id": "user/repo", "sha": SHA, "siblings": self.siblings}
        self.web.add("/api/models/user/repo", json.dumps(info), kind="application/json")


@pytest.fixture
def hub(home, monkeypatch):
    for name in ("LOCALLLM_OFFLINE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving() as web:
        monkeypatch.setenv("HF_ENDPOINT", web.address)
        yield Hub(web)


def test_pull_says_which_file_and_why(hub):
    for kind in ("Q8_0", "Q4_K_M", "F16"):
        hub.add(f"tiny-{kind}.gguf", tiny(kind))
    hub.add("README.md", b"hello", lfs=False)
    plan = catalog.plan("hf:user/repo")
    assert plan.files == ("tiny-Q4_K_M.gguf",) and plan.size == len(tiny("Q4_K_M"))
    assert plan.why == "Q4_K_M, the usual choice of 3"
    seen = []
    found = catalog.resolve("hf:user/repo", progress=lambda *each: seen.append(each))
    assert found.path.read_bytes() == tiny("Q4_K_M") and seen[-1] == (plan.size, plan.size)
    assert store.installed()[0].source == "hf:user/repo/tiny-Q4_K_M.gguf"
    asked = len(hub.web.asked)
    assert catalog.resolve("hf:user/repo").path == found.path
    assert catalog.resolve("hf:user/repo:q4_k_m").path == found.path
    assert len(hub.web.asked) == asked
    other = catalog.resolve("hf:user/repo:q8_0")
    assert other.path.read_bytes() == tiny("Q8_0") and other.name == "hf:user/repo:Q8_0"
    assert catalog.find("hf:user/repo:Q8_0").path == other.path


def test_shards_are_followed(hub):
    for number in (1, 2):
        hub.add(f"big/x-Q8_0-0000{number}-of-00002.gguf", tiny())
    plan = catalog.plan("hf:user/repo:Q8_0")
    assert plan.files == ("x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf")
    assert plan.size == 2 * len(tiny())


def test_a_break_is_gone_on_with(hub):
    data = tiny("x", 5000)
    hub.add("x-Q4_0.gguf", data)
    hub.web.pages["/cdn/x-Q4_0.gguf"].breaks[:] = [7000]
    assert catalog.resolve("hf:user/repo/x-Q4_0.gguf").path.read_bytes() == data
    assert "bytes=7000-" in hub.web.ranges()


def test_a_token_goes_to_the_hub(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add("x-Q4_0.gguf", tiny())
    hub.web.pages["/api/models/user/repo"].authorization = "Bearer hf_secret"
    hub.web.pages[f"/user/repo/resolve/{SHA}/x-Q4_0.gguf"].authorization = "Bearer hf_secret"
    assert catalog.resolve("hf:user/repo").path.read_bytes() == tiny()


def test_damaged_on_the_way(hub):
    hub.add("x-Q4_0.gguf", tiny())
    hub.web.pages["/cdn/x-Q4_0.gguf"].body = tiny("other")[: len(tiny())].ljust(len(tiny()), b"x")
    with pytest.raises(BadFile, match="not what was promised"):
        catalog.resolve("hf:user/repo")
    assert store.installed() == []


def test_names_that_lead_out_of_the_folder(hub):
    hub.add("..\\..\\x-Q4_0.gguf", tiny())
    with pytest.raises(BadFile, match="names its files"):
        catalog.resolve("hf:user/repo")


def test_what_is_not_there(hub):
    with pytest.raises(NotFound, match="no model user/none"):
        catalog.resolve("hf:user/none")
    hub.add("x-Q4_0.gguf", tiny())
    with pytest.raises(NotFound, match="no Q2_K") as caught:
        catalog.resolve("hf:user/repo:Q2_K")
    assert "Q4_0" in caught.value.hint
    with pytest.raises(BadRequest):
        catalog.resolve("hf:user")
    with pytest.raises(BadRequest):
        catalog.resolve("hf:us er/re!po")


def test_offline_says_so_at_once(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unavailable, match="offline"):
        catalog.resolve("hf:user/repo")
    assert hub.web.asked == []


def test_no_hub(hub, monkeypatch):
    with serving() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.address)
    with pytest.raises(Unavailable, match="Cannot reach"):
        catalog.resolve("hf:user/repo")


def test_the_hubs_own_cache_is_used_in_place(hub, home):
    base = home / "hf" / "hub" / "models--user--repo"
    file = base / "snapshots" / SHA / "x-Q4_0.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(tiny())
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(SHA)
    assert catalog.resolve("hf:user/repo").path == file
    assert catalog.resolve("hf:user/repo:q4_0").path == file
    assert hub.web.asked == [] and store.installed() == []


@pytest.mark.parametrize(
    "file, name",
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
        ("BF16/x-BF16-00001-of-00002.gguf", "BF16"),
        ("a.UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gemma-3-270m-q8_0.gguf", "Q8_0"),
        ("x-IQ4_XS.gguf", "IQ4_XS"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("Qwen2.5.gguf", ""),
    ],
)
def test_the_quantization_in_a_name(file, name):
    assert quant(file) == name


def test_choosing():
    files = ["a-Q5_K_M.gguf", "a-Q8_0.gguf", "mmproj-a-F16.gguf", "a-Q4_K_M-00001-of-00002.gguf"]
    assert choose(files).files == ("a-Q5_K_M.gguf",)  # half of a model is none
    assert choose([*files, "a-Q4_K_M-00002-of-00002.gguf"]).files[1].endswith("02-of-00002.gguf")
    assert choose(["odd.gguf"]).why == "the only GGUF file there"
    assert choose(["sub/a-Q8_0.gguf", "b.gguf"], "a-Q8_0.gguf").files == ("sub/a-Q8_0.gguf",)
    with pytest.raises(NotFound, match="Which"):
        choose(["one.gguf", "two.gguf"])
    with pytest.raises(NotFound, match="no GGUF"):
        choose(["model.safetensors"])
