# SPDX-License-Identifier: Apache-2.0
"""What is counted of watches and of requests to the API server."""

import types

import pytest
from fake_api import ApiServer, connected, kubeconfig
from prometheus_client import CollectorRegistry

from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import KubeError
from gpupack_kubeclient.metrics import KubeRequests, UnreadableObjects
from gpupack_kubeclient.resources import PODS


def test_unreadable_objects_are_counted_by_kind():
    watches, registry = {"pods": types.SimpleNamespace(unreadable=3)}, CollectorRegistry()
    registry.register(UnreadableObjects(watches))
    watches["jobs"] = types.SimpleNamespace(unreadable=1)
    name = "gpupack_unreadable_objects_total"
    assert registry.get_sample_value(name, {"kind": "pods"}) == 3
    assert registry.get_sample_value(name, {"kind": "jobs"}) == 1


async def test_requests_are_counted_by_how_they_were_answered():
    server, registry = ApiServer(), CollectorRegistry()
    async with connected(server.app()) as (api, _):
        registry.register(KubeRequests(api))
        await api.page(PODS)
        for fault in ({"down": True}, {"down": False}):
            vars(server).update(fault)
            with pytest.raises(KubeError):
                await api.get(PODS, "missing", namespace="team")
    name = "gpupack_kube_requests_total"
    counts = {
        answer: registry.get_sample_value(name, {"answer": answer})
        for answer in ("2xx", "3xx", "4xx", "5xx", "none")
    }
    assert counts == {"2xx": 1, "3xx": 0, "4xx": 1, "5xx": 1, "none": 0}


async def test_a_request_without_an_answer_is_counted():
    with kubeconfig("http://127.0.0.1:1") as path:
        async with Api.connect({"KUBECONFIG": path}) as api:
            with pytest.raises(KubeError):
                await api.page(PODS)
            assert api.answers == {"none": 1}
