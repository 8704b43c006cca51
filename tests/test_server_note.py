"""The note a server leaves, the proof it gives, and the server seen as an LLM."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving, until

from localllm.errors import BadRequest, NotFound, PromptTooLong, Unavailable
from localllm.request import Logprob
from localllm.sampling import Sampling
from localllm.server import note as notes
from localllm.server.note import Note
from localllm.server.remote import RemoteLLM, find
from localllm.tui import thinking

pytestmark = pytest.mark.usefixtures("home")


def test_a_server_is_found_asked_and_stopped():
    with serving(FakeLibrary(), ["fake"]) as site:
        found = notes.find_server()
        assert found == site.note
        assert until(lambda: notes.status(found)["models"][0]["state"] == "ready")
        status = notes.status(found)
        assert (status["pid"], status["running"]) == (os.getpid(), 0)
        notes.stop(found)
        assert until(lambda: notes.find_server() is None)
    assert not list(notes.folder().glob("*"))


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps files by other means")
def test_only_the_user_can_read_the_note():
    with serving(FakeLibrary()) as site:
        path = notes.folder() / f"{site.note.port}.json"
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        assert notes.read(path) is None and notes.find_server() is None


def test_the_secret_never_crosses_the_wire():
    heard = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(
                str(self.headers) + self.rfile.read(int(self.headers["Content-Length"])).decode()
            )
            body = json.dumps({"proof": "0" * 64}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    impostor = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=impostor.serve_forever, daemon=True).start()
    try:
        note = Note("127.0.0.1", impostor.server_port, 1, b"s" * 32)
        with notes.leave(note):
            assert notes.find_server() is None
        (said,) = heard
        assert note.secret.hex() not in said and note.token() not in said
        assert "authorization" not in said.lower()
    finally:
        impostor.shutdown()
        impostor.server_close()


def test_an_answer_passed_on_from_the_real_server_proves_nothing():
    """An impostor on another port asks the real server and repeats its proof."""
    with serving(FakeLibrary()) as site:
        nonce = "n" * 64
        answer = httpx.post(f"{site.note.url}/control/prove", json={"nonce": nonce}).json()
        assert answer["proof"] == site.note.proof(nonce)
        elsewhere = Note(site.note.host, site.note.port + 1, site.note.pid, site.note.secret)
        assert elsewhere.proof(nonce) != answer["proof"]
        assert elsewhere.token() != site.note.token()


def test_only_who_knows_the_secret_may_steer():
    with serving(FakeLibrary(), api_key="sesame") as site:
        for headers in ({}, {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer x"}):
            url = f"{site.note.url}/control"
            assert httpx.post(f"{url}/stop", json={}, headers=headers).status_code == 403
            assert httpx.get(f"{url}/status", headers=headers).status_code == 403
        assert notes.status(site.note)["running"] == 0
        assert RemoteLLM(site.note, "fake").tokenize("a") == [97], "the token is a key as well"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"host": 1}', '{"host": "a", "port": "1", "pid": 1, "secret": "00"}',
             '{"host": "a", "port": 1, "pid": 1, "secret": "zz"}', "x" * 10_000]
)  # fmt: skip
def test_what_is_no_note_is_passed_over(text):
    notes.folder().mkdir(parents=True)
    path = notes.folder() / "1.json"
    path.write_text(text)
    path.chmod(0o600)
    assert notes.read(path) is None and notes.find_servers() == []


def test_a_note_of_a_server_that_died_is_passed_over():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with notes.leave(Note("127.0.0.1", sock.getsockname()[1], 1, b"s" * 32)):
            assert notes.find_server() is None


def test_a_note_stays_when_another_server_has_taken_the_port():
    first, second = (Note("127.0.0.1", 5, pid, bytes([pid]) * 32) for pid in (1, 2))
    with notes.leave(second):
        with notes.leave(first), notes.leave(second):
            pass
        with notes.leave(first):
            os.replace(notes.folder() / "5.json", notes.folder() / "kept")
            os.replace(notes.folder() / "kept", notes.folder() / "5.json")
    with notes.leave(first):
        path = notes.folder() / "5.json"
        path.unlink()
        with notes.leave(second):
            assert notes.read(path) == second


def test_the_clients_side_is_light():
    code = "import sys, localllm.server.note; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"numba", "numpy", "starlette", "uvicorn", "prometheus_client", "anyio"}
    assert not heavy & set(loaded.stdout.split())


def test_run_through_a_server_needs_no_numba():
    code = "import sys, localllm.server.remote; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numba", "starlette", "uvicorn"} & set(loaded.stdout.split())


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        llm = FakeLLM()
        with serving(FakeLibrary(llm), ["fake"]) as site:
            yield RemoteLLM(site.note, "fake"), llm


def test_a_chat_through_a_server(remote):
    llm, behind = remote
    reply = llm.chat([{"role": "user", "content": "hi"}], temperature=0, seed=3, max_tokens=5)
    deltas = list(reply)
    assert deltas[0].progress == (20, 20)
    assert "".join(delta.text for delta in deltas) == reply.text == "Hello"
    assert reply.finish_reason == "length"
    assert reply.usage == {"prompt_tokens": 20, "cached_tokens": 10, "completion_tokens": 5}
    assert reply.timings["load_ms"] == 1.0 and "ttft_ms" in reply.timings
    assert (behind.asked[-1]["sampling"].seed, behind.asked[-1]["sampling"].temperature) == (3, 0)


def test_a_text_through_a_server(remote):
    llm, behind = remote
    reply = llm.generate("hi", stop="o", logit_bias={5: float("-inf")}, cache=False)
    assert reply.text == "Hell" and (reply.finish_reason, reply.stop) == ("stop", "o")
    assert behind.asked[-1]["sampling"].logit_bias == {5: float("-inf")}
    assert behind.asked[-1]["cache"] is False
    ids = [id for delta in llm.generate([104, 105], max_tokens=3) for id in delta.ids]
    assert ids == [72, 101, 108]
    assert behind.asked[-1]["ids"] == [104, 105]


def test_text_and_ids_through_a_server(remote):
    llm, _ = remote
    assert llm.tokenize("é", bos=True) == [256, 195, 169] and llm.detokenize([195, 169]) == "é"
    assert (llm.context, llm.system) == (4096, None) and "messages" in llm.template


def test_probabilities_through_a_server_are_those_of_an_llm(remote):
    llm, behind = remote
    for reply in (llm.chat([{"role": "user", "content": "hi"}], logprobs=2, max_tokens=2),
                  llm.generate("hi", logprobs=2, max_tokens=2)):  # fmt: skip
        told = [one for delta in reply for one in delta.logprobs or ()]
        assert told == [Logprob(ord(char), -0.5, ((97, -1.0), (98, -2.0))) for char in "He"]
    count = len(behind.asked)
    assert [llm.detokenize([one.id]) for one in told] == ["H", "e"] and len(behind.asked) == count
    assert llm.detokenize([97]) == "a"


def test_what_a_model_recommends_comes_through_a_server(remote):
    llm, behind = remote
    assert llm.defaults == Sampling() and llm.server == llm.note.url
    behind.defaults = Sampling(temperature=0.3, seed=5, samplers=("top_k",))
    try:
        assert RemoteLLM(llm.note, "fake").defaults == behind.defaults
    finally:
        behind.defaults = Sampling()


@pytest.mark.parametrize(
    "said", ["<think>\nhm\n</think>\n\nYes.", "<think>\nhm", "No thought."], ids=len
)
def test_reasoning_through_a_server_is_marked_as_an_llm_marks_it(remote, said):
    llm, behind = remote
    before, behind.answer = behind.answer, said
    try:
        reply = llm.chat([{"role": "user", "content": "hi"}])
        assert thinking.split(reply.text) == thinking.split(said)
    finally:
        behind.answer = before


def test_run_uses_a_model_only_where_it_is_in_memory(home):
    with serving(FakeLibrary(FakeLLM(system="Be brief."), FakeLLM("other")), ["fake"]) as site:
        assert until(lambda: find("fake") is not None)
        assert find("fake").note == site.note and find("fake").system == "Be brief."
        assert find("other") is None and "other" not in site.pool.entries
    assert find("fake") is None


def test_what_a_server_refuses_is_the_same_error_here(remote):
    llm, _ = remote
    with pytest.raises(BadRequest, match="temperature"):
        llm.chat([{"role": "user", "content": "x"}], temperature=-1)
    with pytest.raises(PromptTooLong) as caught:
        llm.generate("x" * 5000)
    assert (caught.value.prompt_tokens, caught.value.context) == (5001, 4096)
    with pytest.raises(NotFound):
        RemoteLLM(llm.note, "none")
    with pytest.raises(Unavailable):
        RemoteLLM(Note("127.0.0.1", 1, 1, b"x"), "fake")


def test_a_server_that_has_gone_is_unavailable(home):
    with serving(FakeLibrary(FakeLLM()), ["fake"]) as site:
        llm = RemoteLLM(site.note, "fake")
    with pytest.raises(Unavailable):
        llm.generate("x")


def test_cancelling_through_a_server(home):
    llm = FakeLLM(answer="x" * 100_000, seconds=0.005)
    with serving(FakeLibrary(llm), ["fake"]) as site:
        reply = RemoteLLM(site.note, "fake").generate("hi")
        for delta in reply:
            if delta.text:
                reply.cancel()
        assert reply.finish_reason == "cancelled"
        assert until(lambda: llm.running == 0)
