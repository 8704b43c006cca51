"""One file over HTTP: resumed, checked, redirected with care, its credentials kept at home."""

import base64
import hashlib
import time

import pytest
from fake_web import serving

from localllm.errors import BadFile, NotFound, Unavailable
from localllm.sources import transfer
from localllm.sources.transfer import Remote
from localllm.sources.web import Web, split_credentials

BODY = bytes(range(256)) * 4096
HASH = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def web(monkeypatch):
    for name in ("LOCALLLM_OFFLINE", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with serving() as served:
        yield served


@pytest.fixture
def target(tmp_path):
    return tmp_path / "model.gguf"


def quiet(done: int, total: int) -> None:
    pass


def test_a_file_comes_whole_and_shows_its_progress(web, target):
    seen = []
    url = web.add("/x", BODY)
    Remote(url, len(BODY), HASH).fetch(target, lambda *each: seen.append(each))
    assert target.read_bytes() == BODY and seen[-1] == (len(BODY), len(BODY))
    assert [file.name for file in target.parent.iterdir()] == ["model.gguf"]


def test_what_broke_off_goes_on(web, target):
    url = web.add("/x", BODY, breaks=[300_000, 200_000], headers={"ETag": '"v1"'})
    Remote(url).fetch(target, quiet)
    assert target.read_bytes() == BODY
    assert web.ranges() == ["", "bytes=300000-", "bytes=500000-"]
    assert web.asked[1][1]["if-range"] == '"v1"'


def test_a_later_process_goes_on(web, target):
    part = target.with_name("model.gguf.part")
    part.write_bytes(BODY[:1000])
    Remote(web.add("/x", BODY), len(BODY), HASH).fetch(target, quiet)
    assert target.read_bytes() == BODY and web.ranges() == ["bytes=1000-"]


def test_half_of_another_file_is_not_gone_on_with(web, target):
    part = target.with_name("model.gguf.part")
    part.write_bytes(b"old")
    part.with_name("model.gguf.part.tag").write_text('"v1"')
    Remote(web.add("/x", BODY, headers={"ETag": '"v2"'})).fetch(target, quiet)
    assert target.read_bytes() == BODY
    part.write_bytes(b"nobody knows what")
    target.unlink()
    Remote(web.add("/y", BODY)).fetch(target, quiet)
    assert target.read_bytes() == BODY and web.ranges()[-1] == ""


def test_a_damaged_half_is_fetched_again(web, target):
    target.with_name("model.gguf.part").write_bytes(b"x" * 1000)
    Remote(web.add("/x", BODY), len(BODY), HASH).fetch(target, quiet)
    assert target.read_bytes() == BODY and web.ranges() == ["bytes=1000-", ""]


def test_a_server_without_ranges_starts_over(web, target):
    target.with_name("model.gguf.part").write_bytes(BODY[:1000])
    Remote(web.add("/x", BODY, ranges=False), len(BODY), HASH).fetch(target, quiet)
    assert target.read_bytes() == BODY


def test_a_half_longer_than_the_file(web, target):
    part = target.with_name("model.gguf.part")
    part.write_bytes(BODY * 2)
    Remote(web.add("/x", BODY), 0, HASH).fetch(target, quiet)
    assert target.read_bytes() == BODY


def test_wrong_contents_are_refused(web, target):
    with pytest.raises(BadFile, match="not what was promised"):
        Remote(web.add("/x", BODY[:-1] + b"!"), len(BODY), HASH).fetch(target, quiet)
    with pytest.raises(BadFile, match=r"1048576 bytes.*; 7 were promised"):
        Remote(web.add("/y", BODY), 7).fetch(target, quiet)
    assert not target.exists()


def test_it_gives_up_at_last(web, target):
    url = web.add("/x", BODY, breaks=[0] * 20)
    with pytest.raises(Unavailable, match="broke off"):
        Remote(url, len(BODY), HASH).fetch(target, quiet)
    web.pages["/x"].breaks[:] = [9] + [0] * 20
    with pytest.raises(Unavailable, match="broke off"):
        Remote(url, len(BODY), HASH).fetch(target, quiet)
    assert len(web.asked) < 3 * transfer.TRIES
    with pytest.raises(NotFound, match="404"):
        Remote(web.address + "/none").fetch(target, quiet)


def test_nobody_listens(target):
    with serving() as gone:
        url = gone.address + "/x"
    began = time.monotonic()
    with pytest.raises(Unavailable, match="Cannot reach 127"):
        Remote(url).fetch(target, quiet)
    assert time.monotonic() - began < 3


def test_offline_asks_nobody(web, target, monkeypatch):
    monkeypatch.setenv("LOCALLLM_OFFLINE", "1")
    with pytest.raises(Unavailable, match="offline"):
        Remote(web.add("/x", BODY)).fetch(target, quiet)
    assert web.asked == []


def test_credentials_stay_with_their_host(web, target):
    secret = "Basic " + base64.b64encode(b"me:s@crt").decode()
    with serving() as other:
        end = other.add("/end", BODY)
        here = web.add("/here", status=302, headers={"Location": "/next"}, authorization=secret)
        web.add("/next", status=302, headers={"Location": end}, authorization=secret)
        Remote(here.replace("//", "//me:s%40crt@")).fetch(target, quiet)
        assert target.read_bytes() == BODY
        assert [headers.get("authorization") for _, headers in web.asked] == [secret, secret]
        assert "authorization" not in other.asked[0][1]
        target.unlink()
        Remote(web.address + "/here", authorization=secret).fetch(target, quiet)
        assert "authorization" not in other.asked[1][1]


@pytest.mark.parametrize(
    "goal", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://a:b@127.0.0.1/"]
)
def test_unsafe_redirects_are_refused(web, target, goal):
    url = web.add("/x", status=302, headers={"Location": goal})
    with pytest.raises(Unavailable):
        Remote(url).fetch(target, quiet)
    assert not target.exists()


@pytest.mark.parametrize(
    "old, new, allowed",
    [
        ("https://a.org/x", "https://cdn.b.org/x", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "https://localhost/x", False),
        ("https://a.org/x", "https://10.0.0.7/x", False),
        ("https://a.org/x", "https://[::1]/x", False),
        ("https://a.org/x", "https://169.254.169.254/x", False),
        ("http://127.0.0.1/x", "http://127.0.0.1:99/x", True),
    ],
)
def test_where_a_redirect_may_lead(old, new, allowed):
    from urllib.request import Request

    from localllm.sources.web import _Redirects

    def follow():
        return _Redirects().redirect_request(Request(old), None, 302, "", {}, new)

    if allowed:
        assert follow().full_url == new
    else:
        with pytest.raises(OSError, match="not safe"):
            follow()


def test_a_loop_of_redirects_ends(web, target):
    url = web.add("/x", status=302, headers={"Location": "/x?"})
    with pytest.raises(Unavailable):
        Remote(url).fetch(target, quiet)
    assert len(web.asked) < 12


def test_netrc_and_addresses(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine host.org login me password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert split_credentials("https://a:b@x.org:8/p?q") == ("https://x.org:8/p?q", "Basic YTpi")
    assert split_credentials("https://x.org/p") == ("https://x.org/p", "")
    assert split_credentials("https://host.org/p")[1] == "Basic bWU6cHc="


def test_pages_have_a_limit(web):
    url = web.add("/page", "x" * 1000, kind="text/html")
    assert Web().read(url, 1000, "text/html") == (b"x" * 1000, "text/html", url)
    with pytest.raises(Unavailable, match="larger"):
        Web().read(url, 999, "text/html")
