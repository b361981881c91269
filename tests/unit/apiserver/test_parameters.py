# SPDX-License-Identifier: Apache-2.0
"""A parameter of the query that a call has not is refused, whatever the call."""

import dataclasses

import pytest
from prometheus_client import CollectorRegistry

from gpupack_apiserver.app import application
from gpupack_apiserver.parameters import known_to

DOCUMENT = "openapi/openapi.json"


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("nodes", "gpu_typ", "gpu_type, limit, min_memory_gb; did you mean gpu_type?"),
        ("nodes", "LIMIT", "did you mean limit?"),
        ("jobs", "colour", "there are after, limit, namespace, phase"),
        ("status", "limit", "this call has no parameters; remove it"),
        ("nodes", "x" * 5000, "there are after, gpu_type, limit, min_memory_gb"),
        ("nodes", "", "there are after, gpu_type, limit, min_memory_gb"),
    ],
)
async def test_a_parameter_that_a_call_does_not_have_is_named_with_those_that_it_has(
    call, path, given, says
):
    found = await call(path, **{given: "V100"})
    assert (found.status, found.type) == (400, "application/problem+json")
    assert found.body.get("field", "") == given[:64]
    assert found.body["value"] == "V100"
    assert found.body["fix"].endswith(says)


async def test_every_call_refuses_what_it_does_not_document_and_documents_that(call):
    paths = (await call(DOCUMENT, user="")).body["paths"]
    for path, methods in paths.items():
        for method, told in methods.items():
            where = path.removeprefix("/api/v1/gpu/").format(namespace="team", name="a")
            body = {} if method == "post" else None
            found = await call(where, method=method.upper(), body=body, nosuch="1")
            assert (found.status, found.body["field"]) == (400, "nosuch"), (method, path)
            assert "400" in told["responses"], (method, path)


async def test_what_counts_as_known_is_what_the_document_names(call, parts):
    document = (await call(DOCUMENT, user="")).body["paths"]
    app = application(dataclasses.replace(parts, registry=CollectorRegistry()))
    for route in app.routes:
        for method, (handler, _) in getattr(route, "route_handler_map", {}).items():
            told = document.get(route.path_format, {}).get(method.lower(), {}).get("parameters", ())
            if handler.resolve_include_in_schema():
                wanted = sorted(each["name"] for each in told if each["in"] == "query")
                assert known_to(handler) == wanted, route.path


async def test_the_page_its_files_and_metrics_may_be_asked_with_any(call, server):
    server.rights.add(("admin", "get", "/metrics"))
    assert (await call("../../../metrics", **{"name[]": "up"})).status == 200
    assert (await call("../../..", utm_source="chat")).status == 404
    assert (await call(DOCUMENT, v="2", user="")).status == 200
