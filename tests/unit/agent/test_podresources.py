# SPDX-License-Identifier: Apache-2.0
import asyncio
import time

import grpc
import pytest

from gpupack_agent.errors import KubeletTooOld, KubeletUnavailable
from gpupack_agent.podresources import PodResources
from gpupack_crds import names


@pytest.fixture
async def resources(kubelet):
    async with PodResources.connect(kubelet.folder / "pod-resources/kubelet.sock") as connected:
        yield connected


async def test_device_tokens_of_a_container_are_collected_over_all_entries(kubelet, resources):
    kubelet.tokens["a"] = ["gpu-1", "gpu-0"]
    found = await resources.tokens("team", "a", names.GPU)
    assert found == {"worker": frozenset({"gpu-0", "gpu-1"})}


async def test_device_tokens_of_other_resources_do_not_count(kubelet, resources):
    kubelet.tokens["a"] = ["gpu-1"]
    assert await resources.tokens("team", "a", "nvidia.com/gpu") == {}


async def test_a_pod_that_the_kubelet_does_not_know_has_no_device_tokens(resources):
    assert await resources.tokens("team", "unknown", names.GPU) == {}


async def test_a_kubelet_without_get_is_too_old(kubelet, resources):
    kubelet.error = (grpc.StatusCode.UNIMPLEMENTED, "unknown method Get")
    with pytest.raises(KubeletTooOld, match=r"1\.36"):
        await resources.tokens("team", "a", names.GPU)


async def test_a_busy_kubelet_is_an_error_that_asking_again_may_heal(kubelet, resources):
    kubelet.error = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    with pytest.raises(KubeletUnavailable, match="rate limit"):
        await resources.tokens("team", "a", names.GPU)


async def test_an_unavailable_kubelet_is_an_error_and_a_returning_one_is_found(kubelet, resources):
    await kubelet.stop()
    with pytest.raises(KubeletUnavailable):
        await resources.tokens("team", "a", names.GPU)
    await kubelet.start()
    async with asyncio.timeout(30):
        while True:
            try:
                return await resources.tokens("team", "a", names.GPU)
            except KubeletUnavailable:
                await asyncio.sleep(0.05)


async def test_many_calls_at_once_stay_below_the_kubelets_limit(kubelet, resources):
    began = time.monotonic()
    await asyncio.gather(*(resources.tokens("team", "a", names.GPU) for _ in range(20)))
    assert kubelet.gets == 20
    assert time.monotonic() - began >= 20 / 100


async def test_devices_of_all_plugins_are_known(kubelet, resources):
    kubelet.allocatable = {names.GPU: ["gpu-0", "gpu-1"], "nvidia.com/gpu": ["GPU-5a"]}
    assert await resources.served() == {
        names.GPU: {"gpu-0", "gpu-1"},
        "nvidia.com/gpu": {"GPU-5a"},
    }


async def test_device_tokens_of_several_resources_are_in_one_answer(kubelet, resources):
    kubelet.tokens["a"], kubelet.tokens["b"] = ["gpu-1"], ["GPU-5a"]
    kubelet.resources["b"] = "nvidia.com/gpu"
    for pod, token in (("a", "gpu-1"), ("b", "GPU-5a")):
        found = await resources.tokens("team", pod, names.GPU, "nvidia.com/gpu")
        assert found == {"worker": frozenset({token})}


async def test_a_kubelet_that_does_not_list_its_resources_is_an_error(kubelet, resources):
    kubelet.error = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    with pytest.raises(KubeletUnavailable, match=r"GetAllocatableResources.* rate limit"):
        await resources.served()
