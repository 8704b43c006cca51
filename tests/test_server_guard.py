"""Safe by default: each attack that hit other runners is turned away."""

import http.client
import json
import os
import socket
import time

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until

from localllm.errors import BadRequest
from localllm.server.settings import Settings, loopback

CHAT = {"messages": [{"role": "user", "content": "hi"}], "model": "fake"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with serving(FakeLibrary(), ["fake"], body_bytes=5000, body_seconds=0.3) as site:
        yield site


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def post(site, headers=None, **options):
    options = {"json": CHAT} | options
    return httpx.post(f"{site.note.url}/v1/chat/completions", headers=headers, **options)


def refused(answer, status, code):
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code
    return True


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_other_machines_need_a_key_or_insecure(host):
    with pytest.raises(BadRequest, match="no key"):
        Settings(host)
    assert Settings(host, api_key="k").host == host
    assert Settings(host, insecure=True).host == host


@pytest.mark.parametrize("key", ["", " ", "k ", "schl\u00fcssel", "a\nb"])
def test_a_key_that_no_header_carries_is_refused(key):
    with pytest.raises(BadRequest, match="key"):
        Settings(api_key=key)
    assert Settings(api_key="a key!").api_key == "a key!"


def test_what_counts_as_this_machine():
    assert all(map(loopback, ["localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"]))
    assert not any(map(loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.org", ""]))


@pytest.mark.parametrize("host", ["evil.org", "evil.org:80", "127.0.0.1.evil.org", "", "[", "a b"])
def test_dns_rebinding(site, host):
    assert refused(post(site, {"Host": host}), 403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:9", "LOCALHOST:11435"])
def test_names_of_this_machine_are_allowed(site, host):
    assert post(site, {"Host": host}).status_code == 200


def test_two_host_headers(site):
    with socket.create_connection((site.note.host, site.note.port)) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.org\r\n\r\n")
        assert sock.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize(
    ("headers", "status"),
    [("", b"200"), ("Origin: http://None\r\n", b"403"), ("Host:\r\n", b"403"),
     ("Host: evil.org\r\n", b"403")],
)  # fmt: skip
def test_probes_of_http_1_0_need_no_host_and_pages_do(site, headers, status):
    with socket.create_connection((site.note.host, site.note.port)) as sock:
        sock.sendall(f"GET /health HTTP/1.0\r\n{headers}\r\n".encode())
        assert sock.recv(100).split()[1] == status


@pytest.mark.parametrize(
    "origin", ["http://evil.org", "null", "https://localhost", "http://127.0.0.1:1", "file://"]
)
def test_pages_of_other_origins(site, origin):
    answer = post(site, {"Origin": origin})
    assert refused(answer, 403, "origin_not_allowed")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_may_call(site):
    assert post(site, {"Origin": site.note.url}).status_code == 200


def test_a_preflight_from_elsewhere_gets_nothing(site):
    headers = {"Origin": "http://evil.org", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{site.note.url}/v1/chat/completions", headers=headers)
    assert refused(answer, 403, "origin_not_allowed")


def test_listed_origins_get_cors_and_no_credentials():
    page = "http://page.example"
    with serving(FakeLibrary(), origins=(page,)) as site:
        url = f"{site.note.url}/v1/chat/completions"
        before = httpx.options(url, headers={"Origin": page})
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == page
        allowed = before.headers["access-control-allow-headers"].split(", ")
        assert {"*", "Authorization"} <= set(allowed)  # openai's own in a browser: X-Stainless-*
        answer = post(site, {"Origin": page})
        assert answer.headers["access-control-allow-origin"] == page
        assert "access-control-allow-credentials" not in answer.headers
        assert post(site, {"Origin": page + ".evil.org"}).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_simple_requests_of_other_pages(site, kind):
    """CSRF: a page may send these without a preflight."""
    answer = post(site, {"Content-Type": kind}, json=None, content=json.dumps(CHAT))
    assert refused(answer, 415, "not_json")


def test_json_with_a_charset_is_json(site):
    kind = {"Content-Type": "application/json; charset=utf-8"}
    assert post(site, kind, json=None, content=json.dumps(CHAT)).status_code == 200


def test_a_body_with_a_length_too_large(site):
    assert refused(post(site, content=b"x" * 6000, json=None, headers=JSON), 413, "body_too_large")


JSON = {"Content-Type": "application/json"}


def test_a_body_without_a_length_too_large(site):
    chunks = (b"x" * 1000 for _ in range(9))
    assert refused(post(site, content=chunks, json=None, headers=JSON), 413, "body_too_large")


@pytest.mark.parametrize("length", ["-1", "1e3", "99999999999999999999999", "x"])
def test_lengths_that_are_none(site, length):
    head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((site.note.host, site.note.port)) as sock:
        sock.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())
        assert sock.recv(100).split()[1] in (b"400", b"413")


def test_a_body_that_never_comes(site):
    connection = http.client.HTTPConnection(site.note.host, site.note.port, timeout=5)
    connection.putrequest("POST", "/completion")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "100")
    connection.endheaders(b'{"prompt":')
    since = time.monotonic()
    answer = connection.getresponse()
    assert answer.status == 408 and time.monotonic() - since < 3
    connection.close()


def test_headers_that_never_end():
    with serving(FakeLibrary(), header_seconds=0.2) as site:
        address = (site.note.host, site.note.port)
        with socket.create_connection(address, 5) as slow, socket.create_connection(address, 5):
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: local")
            assert slow.recv(100) == b""
        with httpx.Client() as client:
            for _ in range(3):  # one that has asked may stay
                assert client.get(f"{site.note.url}/health").status_code == 200
                time.sleep(0.25)


def test_a_key():
    with serving(FakeLibrary(), api_key="sesame") as site:
        assert refused(post(site), 401, "invalid_api_key")
        for wrong in ("Bearer wrong", "Bearer", "sesame", "Basic sesame", "Bearer \xff"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert refused(post(site, headers), 401, "invalid_api_key")
        assert post(site, {"Authorization": "Bearer sesame"}).status_code == 200
        assert post(site, {"authorization": "bearer sesame"}).status_code == 200
        assert post(site, {"X-Api-Key": "sesame"}).status_code == 200
        for path in ("/v1/models", "/metrics", "/slots", "/props", "/nothing"):
            assert httpx.get(site.note.url + path).status_code == 401
        for path in ("/health", "/", "/docs"):
            assert httpx.get(site.note.url + path).status_code == 200


def test_any_bearer_will_do_without_a_key(site):
    assert post(site, {"Authorization": "Bearer"}).status_code == 200
    assert post(site, {"Authorization": "Bearer sk-anything"}).status_code == 200


def test_errors_carry_no_paths_and_no_traces():
    library = FakeLibrary(FakeLLM("fake"), FakeLLM("broken"), FakeLLM("odd"))
    library.broken.add("broken")
    library.llms["odd"].defaults = None  # type: ignore[assignment]
    with serving(library) as site:
        broken = post(site, json=CHAT | {"model": "broken"})
        assert broken.status_code == 503 and "secret" not in broken.text
        odd = post(site, json=CHAT | {"model": "odd"})
        assert odd.status_code == 500
        assert "Traceback" not in odd.text and "NoneType" not in odd.text and ".py" not in odd.text


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "hf:user/repo", "./fake.gguf", "C:\\x", "a" * 300]
)
def test_a_request_never_names_a_path_a_source_or_a_download(site, name):
    assert post(site, json=CHAT | {"model": name}).status_code in (400, 404)
    assert httpx.get(f"{site.note.url}/props", params={"model": name}).status_code in (400, 404)


@pytest.mark.parametrize("field", ["n_discard", "n_keep", "id_slot"])
def test_numbers_that_broke_others_change_nothing(site, field):
    """CVE-2026-21869: a negative n_discard wrote outside of its array."""
    body = {"prompt": "x", "model": "fake", field: -(2**31)}
    answer = httpx.post(f"{site.note.url}/completion", json=body)
    assert answer.status_code == 200 and answer.json()["content"] == "Hello, you!"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1), ("temperature", 1e9), ("top_p", 2), ("n", 0), ("n", 1000),
        ("seed", 2**70), ("max_tokens", -2), ("top_logprobs", 21), ("repeat_last_n", -2),
        ("mirostat", 3), ("t_max_predict_ms", -1), ("logit_bias", {"1": 1e9}),
        ("logit_bias", {"999999": 1}), ("logit_bias", [[1]]), ("stop", ["a"] * 17),
        ("stop", "a" * 1025), ("temperature", "hot"), ("temperature", True),
        ("stream", 1), ("unknown", 1),
    ],
)  # fmt: skip
def test_numbers_out_of_range(site, field, value):
    answer = post(site, json=CHAT | {"logprobs": True, field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("ids", [[-1], [261], [2**40], [1.5], [True], [[1], ["a"]], []])
def test_token_ids_are_checked(site, ids):
    body = {"prompt": ids, "model": "fake"}
    assert httpx.post(f"{site.note.url}/v1/completions", json=body).status_code == 400
    body = {"tokens": ids, "model": "fake"}
    wanted = 200 if not ids else 400
    assert httpx.post(f"{site.note.url}/detokenize", json=body).status_code == wanted


def test_every_answer_has_the_headers_that_keep_pages_out(site):
    for path in ("/", "/health", "/nothing", "/v1/models"):
        headers = httpx.get(site.note.url + path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_prompts_stay_out_of_the_log_unless_asked_for(caplog):
    caplog.set_level("INFO", "localllm.server")
    said = {"messages": [{"role": "user", "content": "my secret"}], "model": "fake"}
    for asked in (False, True):
        caplog.clear()
        with serving(FakeLibrary(), log_prompts=asked) as site:
            assert post(site, json=said).status_code == 200
        assert ("my secret" in caplog.text) is asked
        assert ("Hello, you!" in caplog.text) is asked
        assert ('"cached": "A"' in caplog.text) is asked, "where the prompt left the cache"


@pytest.mark.skipif(os.name == "nt", reason="there is no such signal")
def test_no_thread_and_no_descriptor_stays(site):
    def descriptors():
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    post(site)
    before = descriptors()
    for _ in range(20):
        post(site)
        post(site, content=b"{", json=None, headers=JSON)
    assert until(lambda: descriptors() <= before + 2)
    assert until(lambda: not site.records)
