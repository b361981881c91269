# SPDX-License-Identifier: Apache-2.0
"""GPUs, in the words of several device plugins, as fields of a GPUJob."""

import pytest

GIB_80 = 80 << 10


def sizes(spec):
    return {key: spec[key] for key in ("gpus", "share", "mig", "resourceName") if key in spec}


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"nvidia.com/gpu": 8}, {"gpus": 8}),
        ({"nvidia.com/gpu": "2"}, {"gpus": 2}),
        ({"nvidia.com/mig-3g.20gb": 1}, {"gpus": 1, "mig": "3g.20gb"}),
        ({"nvidia.com/mig-1g.18gb.me": 2}, {"gpus": 2, "mig": "1g.18gb+me"}),
        ({"amd.com/gpu": 4}, {"gpus": 4, "resourceName": "amd.com/gpu"}),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpucores": 100}, {"gpus": 2}),
        (
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
            {"share": {"percent": 30, "memory": "3000Mi", "isolation": "limited"}},
        ),
        (
            {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
            {"share": {"percent": 30, "memory": "3000Mi", "isolation": "limited"}},
        ),
    ],
)
def test_a_request_with_an_equivalent_is_converted_completely(converted, pod, limits, size):
    found = converted(pod(limits))
    assert sizes(found.spec) == size
    assert found.dropped == []
    assert "resources" not in found.worker


def test_the_resource_of_the_present_plugin_can_be_kept(converted, pod):
    spec = converted(pod({"nvidia.com/gpu": 2}), keep_resource=True).spec
    assert sizes(spec) == {"gpus": 2, "resourceName": "nvidia.com/gpu"}


def test_a_share_is_always_of_gpupacks_own_gpus(converted, pod):
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    found = converted(pod(limits), keep_resource=True)
    assert sizes(found.spec).keys() == {"share"}
    assert found.notes == ["spec.containers[0].resources.nvidia.com/gpumem"]


def test_memory_without_compute_is_a_cooperative_share_and_says_so(converted, pod):
    found = converted(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192}))
    assert sizes(found.spec) == {"share": {"percent": 10, "memory": "8192Mi"}}
    assert found.dropped == ["spec.containers[0].resources.nvidia.com/gpumem"]


def test_the_percentage_is_in_proportion_where_the_memory_of_a_gpu_is_known(converted, pod):
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192}
    spec = converted(pod(limits), gpu_memory_mib=GIB_80).spec
    assert sizes(spec) == {"share": {"percent": 10, "memory": "8192Mi"}}
    limits["nvidia.com/gpumem"] = 8193
    assert converted(pod(limits), gpu_memory_mib=GIB_80).spec["share"]["percent"] == 11


def test_a_percentage_of_memory_needs_the_memory_of_a_gpu(converted, pod):
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 40, "nvidia.com/gpucores": 60}
    unknown = converted(pod(limits))
    assert sizes(unknown.spec) == {"gpus": 1}
    assert unknown.dropped == ["spec.containers[0].resources.nvidia.com/gpumem-percentage"]
    known = converted(pod(limits), gpu_memory_mib=GIB_80)
    assert known.spec["share"] == {"percent": 60, "memory": "32768Mi", "isolation": "limited"}
    assert known.dropped == []


def test_several_parts_of_gpus_become_whole_gpus(converted, pod):
    found = converted(
        pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30})
    )
    assert sizes(found.spec) == {"gpus": 2}
    assert found.dropped == ["spec.containers[0].resources.nvidia.com/gpumem"]


@pytest.mark.parametrize(
    ("annotations", "size"),
    [
        ({"gpu-fraction": "0.5"}, {"percent": 50, "memory": "40960Mi"}),
        ({"gpu-memory": "2000"}, {"percent": 3, "memory": "2000Mi"}),
    ],
)
def test_fractions_of_kai_are_cooperative_shares(converted, pod, annotations, size):
    found = converted(pod({}, annotations=annotations), gpu_memory_mib=GIB_80)
    assert found.spec["share"] == size
    assert found.dropped == []
    assert "metadata" not in found.spec["template"]


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"cpu": 1},
        {"nvidia.com/gpu": 0},
        {"nvidia.com/gpu": "many"},
        {"nvidia.com/gpu": 1, "amd.com/gpu": 1},
        {"nvidia.com/gpu": 1.5},
        {"nvidia.com/gpu": -1},
        {"nvidia.com/gpu": 65},
    ],
    ids=str,
)
def test_a_request_without_an_equivalent_is_not_converted(converted, pod, limits):
    found = converted(pod(limits))
    assert found.objects == []
    assert len(found.dropped) == 1


@pytest.mark.parametrize("fraction", ["0", "1.5", "x", "nan", "inf", "1e400"])
def test_an_invalid_fraction_is_not_converted(converted, pod, fraction):
    assert converted(pod({}, annotations={"gpu-fraction": fraction})).objects == []


def test_other_gpu_resources_are_reported(converted, pod):
    found = converted(pod({"nvidia.com/gpu": 1, "nvidia.com/priority": 0}))
    assert found.dropped == ["spec.containers[0].resources.nvidia.com/priority"]
