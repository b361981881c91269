# SPDX-License-Identifier: Apache-2.0
import json

import pytest

JOBS = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs"
NAMESPACE = "/api/v1/namespaces/team"
CALLS = (("jobs",), ("quota",), ("logs", "train"), ("explain", "train"))


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
async def test_a_namespace_that_does_not_exist_is_named(server, capfd, call):
    assert await server.called(*call, "-n", "team") == 66
    assert capfd.readouterr().err == (
        "gpupack: namespace 'team' does not exist; `kubectl get namespaces` lists them\n"
    )


@pytest.mark.parametrize("readable", [True, False], ids=["exists", "may not be read"])
@pytest.mark.parametrize("call", CALLS, ids=" ".join)
async def test_a_namespace_that_may_exist_is_not_reported(server, capfd, call, readable):
    server.put(NAMESPACE, {"metadata": {"name": "team"}})
    if not readable:
        server.forbidden.add(NAMESPACE)
    assert await server.called(*call, "-n", "team") in {0, 66}
    assert "namespace 'team' does not exist" not in capfd.readouterr().err


@pytest.mark.parametrize(("column", "shown"), [("8", 8), ("2x40%", "2x40%"), ("", "")])
async def test_documents_have_gpu_counts_as_numbers(server, capfd, column, shown):
    meta = {"name": "train", "namespace": "team"}
    server.put(f"{JOBS}/train", {"metadata": meta, "status": {"gpus": column}})
    assert await server.called("jobs", "-n", "team", "-o", "json") == 0
    assert json.loads(capfd.readouterr().out)["jobs"][0]["gpus"] == shown
