"""The OpenAPI document and docs/api.md say what the declarations say, and schemathesis agrees."""

import json
from pathlib import Path

import httpx
import pytest
from fakes_server import FakeLibrary, FakeLLM, serving

from localllm.server import docs
from localllm.server.application import endpoints
from localllm.server.schema import WrongField, check

API = Path(__file__).parent.parent / "docs" / "api.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALLLM_HOME", str(tmp_path_factory.mktemp("home")))
        with serving(FakeLibrary(FakeLLM(answer="Hi", context=600)), ["fake"]) as site:
            yield site


def test_the_page_in_docs_is_the_declarations():
    assert API.read_text(encoding="utf-8") == docs.page(), (
        "python -m localllm.server.docs writes it"
    )


@pytest.mark.parametrize("endpoint", [e for e in endpoints() if e.body], ids=lambda e: e.path)
def test_every_field_is_explained_and_declared_once(endpoint):
    names = [field.name for field in endpoint.body.fields]
    assert len(names) == len(set(names))
    assert all(len(field.help) > 10 for field in endpoint.body.fields)
    check(endpoint.example, endpoint.body.schema())
    with pytest.raises(WrongField):
        endpoint.body.read(json.dumps(endpoint.example | {"no_such_field": 1}).encode())


@pytest.mark.parametrize("endpoint", [e for e in endpoints() if e.example], ids=lambda e: e.path)
def test_every_example_works(site, endpoint):
    answer = httpx.request(endpoint.method, site.note.url + endpoint.path, json=endpoint.example)
    assert answer.status_code == 200, answer.text


def test_the_pages_fetch_nothing_from_outside(site):
    for path in ("/", "/docs"):
        answer = httpx.get(site.note.url + path)
        assert answer.headers["content-type"].startswith("text/html")
        assert "http://" not in answer.text and "https://" not in answer.text
        assert "//" not in answer.text.replace("/completions", "").split("<script>")[0]


def test_no_server_error_whatever_is_sent(site):
    """schemathesis makes requests, right and wrong, from the OpenAPI document."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    document = httpx.get(f"{site.note.url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    for operation in schema.get_all_operations():

        @given(case=operation.ok().as_strategy())
        @settings(
            max_examples=25, deadline=None, database=None, derandomize=True,
            phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def probe(case):
            case.call_and_validate(base_url=site.note.url, checks=[not_a_server_error])

        probe()
    assert httpx.get(f"{site.note.url}/health").status_code == 200
