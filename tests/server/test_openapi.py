"""Requests made from the OpenAPI document: none may crash the service or surprise its schema."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings

from regimekit.server import schemas
from regimekit.server.app import create_app
from regimekit.server.config import Config
from regimekit.server.schemas import KEY_PATTERN

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

EXAMPLES = int(os.environ.get("REGIMEKIT_EXAMPLES", "12"))


@schemathesis.serializer("application/x-ndjson", "text/csv")
def as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


schema = schemathesis.openapi.from_dict(create_app(Config()).openapi())
endless = "/streams/{key}/live"  # has tests of its own


@pytest.fixture(scope="session")
def open_server(server: Any) -> Any:
    server.client.put("/streams/open", json={"model": "br_ihmm", "particles": 20})
    server.send("open", [{"y": float(i)} for i in range(10)])
    return server


@schema.exclude(path=endless).parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_surprises(open_server: Any, case: Any) -> None:
    if re.match(KEY_PATTERN, str(case.path_parameters.get("key", ""))):
        case.path_parameters["key"] = "open" if case.method != "DELETE" else "nobody"
    case.call_and_validate(
        base_url=open_server.url,
        excluded_checks=[
            schemathesis.specs.openapi.checks.positive_data_acceptance,  # models refuse too
            schemathesis.specs.openapi.checks.ignored_auth,
        ],
    )


def test_the_document_is_complete(server: Any) -> None:
    document = server.client.get("/openapi.json").json()
    own = "observations forecast events regimes transitions report snapshot live"
    assert {f"/streams/{{key}}/{part}" for part in own.split()} <= document["paths"].keys()
    assert {"put", "get", "delete"} == document["paths"]["/streams/{key}"].keys()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary") and operation.get("description"), (method, path)
            assert any(code.startswith("2") for code in operation["responses"]), (method, path)
    body = document["paths"]["/streams/{key}/observations"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-ndjson", "text/csv"}
    assert all("example" in content for content in body.values())


def test_every_body_and_answer_has_an_example_that_fits(server: Any) -> None:
    document = server.client.get("/openapi.json").json()
    known = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = [r for code, r in operation["responses"].items() if code.startswith("2")]
            for place in (operation.get("requestBody", {}), *answers):
                content = place.get("content", {}).get("application/json")
                if content is None:
                    continue
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                shown = {**known.get(name, {}), **content}
                assert "example" in shown or "examples" in shown, (method, path)
                if "example" in shown and hasattr(schemas, name):
                    getattr(schemas, name).model_validate(shown["example"])


def test_the_static_files_name_no_other_host(server: Any) -> None:
    folder = Path(__file__).parents[2] / "src" / "regimekit" / "server" / "static"
    for file in folder.iterdir():
        text = file.read_text().replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, file.name
    assert httpx.get(server.url, trust_env=False).status_code == 200
