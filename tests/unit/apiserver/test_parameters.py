# SPDX-License-Identifier: Apache-2.0
"""Every call refuses unknown and repeated query parameters."""

import dataclasses

import pytest
from prometheus_client import CollectorRegistry

from gpupack_apiserver.app import application
from gpupack_apiserver.parameters import parameter_names

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
async def test_an_unknown_parameter_is_refused_with_the_known_ones(call, path, given, says):
    found = await call(path, **{given: "V100"})
    assert (found.status, found.type) == (400, "application/problem+json")
    assert found.body.get("field", "") == given[:64]
    assert found.body["value"] == "V100"
    assert found.body["fix"].endswith(says)


async def test_every_call_refuses_undocumented_parameters(call):
    paths = (await call(DOCUMENT, user="")).body["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            where = path.removeprefix("/api/v1/gpu/").format(namespace="team", name="a")
            body = {} if method == "post" else None
            found = await call(where, method=method.upper(), body=body, nosuch="1")
            assert (found.status, found.body["field"]) == (400, "nosuch"), (method, path)
            assert "400" in operation["responses"], (method, path)


async def test_every_call_refuses_a_repeated_parameter(call):
    paths = (await call(DOCUMENT, user="")).body["paths"]
    for path, methods in paths.items():
        known = [each["name"] for each in methods.get("get", {}).get("parameters", ())]
        where = path.removeprefix("/api/v1/gpu/").format(namespace="team", name="a")
        for name in known if "{" not in path else ():
            found = await call(where, **{name: ["1", "2"]})
            assert (found.status, found.body["field"], found.body["value"]) == (400, name, "2")
            assert found.body["fix"] == "the parameter is repeated; send it once"


async def test_known_parameters_are_those_of_the_openapi_document(call, parts):
    document = (await call(DOCUMENT, user="")).body["paths"]
    app = application(dataclasses.replace(parts, registry=CollectorRegistry()))
    for route in app.routes:
        for method, (handler, _) in getattr(route, "route_handler_map", {}).items():
            declared = (
                document.get(route.path_format, {}).get(method.lower(), {}).get("parameters", ())
            )
            if handler.resolve_include_in_schema():
                wanted = sorted(each["name"] for each in declared if each["in"] == "query")
                assert parameter_names(handler) == wanted, route.path


async def test_the_page_and_metrics_accept_any_parameter(call, server):
    server.rights.add(("admin", "get", "/metrics"))
    assert (await call("../../../metrics", **{"name[]": "up"})).status == 200
    assert (await call("../../..", utm_source="chat")).status == 404
    assert (await call(DOCUMENT, v="2", user="")).status == 200
