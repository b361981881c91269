# SPDX-License-Identifier: Apache-2.0
"""GPU requests from container limits, and the errors for invalid ones."""

import msgspec
import pytest
from extender_builders import OBSERVED, plan_request, pod, share_limits

from gpupack_crds import names
from gpupack_placement import Share
from gpupack_scheduler.errors import RequestInvalid
from gpupack_scheduler.requests import gpu_request, pod_request, pod_resources


def request(limits):
    return pod_request.of_watch(pod("p", asking=limits), (OBSERVED,)).served()


def test_a_share_is_asked_for_by_three_limits():
    assert request(share_limits(30, "8Gi")).share == Share(300, 8192)


def test_memory_of_a_share_is_rounded_up():
    assert request(share_limits(30, 1)).share.memory == 1


def test_gpus_of_another_plugin_are_asked_for_by_its_name():
    asked = request({OBSERVED: "2"})
    assert (asked.gpus, asked.resource) == (2, OBSERVED)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {names.GPU_SHARE: "1"},
            (
                "a share of a GPU needs gpupack.dev/gpu-share: 1 with gpupack.dev/gpu-percent and "
                "gpupack.dev/gpu-memory in the same container; "
                "add gpupack.dev/gpu-percent and gpupack.dev/gpu-memory"
            ),
        ),
        (
            {names.GPU_SHARE: "1", names.GPU_PERCENT: "30"},
            "in the same container; add gpupack.dev/gpu-memory",
        ),
        ({names.GPU_MEMORY: "8Gi", names.GPU_PERCENT: "30"}, "add gpupack.dev/gpu-share"),
        (
            share_limits(30, slots=2),
            "gpupack.dev/gpu-share is 2; a container gets one share of one GPU: ask for 1",
        ),
        (share_limits(30, slots=0), "gpupack.dev/gpu-share is 0; a container gets one share"),
        (
            share_limits(100),
            "gpupack.dev/gpu-percent is 100; for a whole GPU ask for gpupack.dev/gpu: 1 instead",
        ),
        (share_limits(0), "gpupack.dev/gpu-percent is 0; ask for 1 to 99"),
        (share_limits(101), "gpupack.dev/gpu-percent is 101; ask for 1 to 99"),
        (share_limits("500m"), "'500m' is not a whole number"),
        (
            share_limits(30, 0),
            (
                "gpupack.dev/gpu-memory is 0; ask for the GPU memory that the share needs, such as "
                "10Gi"
            ),
        ),
        (share_limits(30, "much"), "'much' is not a quantity"),
        (
            share_limits(30) | {names.GPU: "1"},
            (
                "one container asks for gpupack.dev/gpu and gpupack.dev/gpu-share; ask for one "
                "kind of GPU: whole ones (gpupack.dev/gpu, nvidia.com/gpu), a share "
                "(gpupack.dev/gpu-share) or MIG slices of one profile (gpupack.dev/mig-1g.18gb)"
            ),
        ),
        (
            {names.GPU: "1", OBSERVED: "1"},
            "one container asks for gpupack.dev/gpu and nvidia.com/gpu; ask for one kind",
        ),
    ],
)
def test_an_invalid_request_is_refused_with_what_to_write(limits, text):
    with pytest.raises(RequestInvalid) as refused:
        request(limits)
    assert text in str(refused.value)


def test_memory_beyond_any_gpu_stays_beyond_any_gpu():
    assert request(share_limits(30, "9E")).share.memory == (1 << 24) + 1


@pytest.mark.parametrize("limits", [share_limits(30), {OBSERVED: "1"}, {names.GPU: "1"}])
def test_a_pod_that_asks_is_known_as_one(limits):
    assert pod_request.requests_gpus(pod("p", asking=limits).spec, (OBSERVED,))


def test_a_resource_that_is_not_observed_is_no_ask():
    spec = pod("p", asking={"example.org/gpu": "1"}).spec
    assert not pod_request.requests_gpus(spec, (OBSERVED,))
    assert pod_resources.device_tokens(spec, (OBSERVED,)) == {}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"resourceName": "example.org/gpu"},
            (
                "resourceName 'example.org/gpu' is not served; use one of: "
                "gpupack.dev/gpu, nvidia.com/gpu"
            ),
        ),
        (
            {"share": {"percent": 30, "memory": "8Gi"}, "resourceName": OBSERVED},
            "GPUs of nvidia.com/gpu cannot be shared; ask for whole ones with gpus",
        ),
        ({"share": {"percent": 30, "memory": "0"}}, "share.memory is 0; ask for the GPU memory"),
    ],
)
def test_a_job_with_an_invalid_request_is_refused_with_what_to_write(spec, text):
    with pytest.raises(RequestInvalid) as refused:
        gpu_request.of_job(plan_request("train", **spec).spec, (OBSERVED,), namespace="default")
    assert text in str(refused.value)


def test_a_job_asks_for_a_share_or_for_whole_gpus_and_not_for_both(world):
    share = plan_request("train", share={"percent": 30, "memory": "8Gi"})
    assert gpu_request.of_job(share.spec, (), namespace="default").share == Share(300, 8192)
    neither = msgspec.structs.replace(share.spec, share=None)
    both = msgspec.structs.replace(share.spec, gpus=1)
    for spec in (neither, both):
        with pytest.raises(RequestInvalid, match="ask for exactly one of gpus, share"):
            world.plan(msgspec.structs.replace(share, spec=spec))
