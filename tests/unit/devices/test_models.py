# SPDX-License-Identifier: Apache-2.0
import pytest
from placement_builders import cluster_of, node, whole

from gpupack_devices.errors import InvalidRequest
from gpupack_devices.models import common_model, may_match, nearest_models
from gpupack_placement import Placement, decide, matches_model, policy_named, require_model

A100_80 = ("NVIDIA A100-SXM4-80GB", 81920)
A100_40 = ("NVIDIA A100-SXM4-40GB", 40960)
A100_PCIE = ("NVIDIA A100 80GB PCIe", 81920)
H100 = ("NVIDIA H100 80GB HBM3", 81559)
H100_PCIE = ("NVIDIA H100 PCIe", 81559)
H100_NVL = ("NVIDIA H100 NVL", 95830)
GH200 = ("NVIDIA GH200 480GB", 97871)
H200 = ("NVIDIA H200", 143771)
V100 = ("Tesla V100-SXM2-32GB", 32768)
V100S = ("Tesla V100S-PCIE-32GB", 32768)
MI300X = ("AMD Instinct MI300X OAM", 196592)
MAX_1550 = ("Intel Data Center GPU Max 1550", 131072)
ASCEND = ("Ascend 910B3", 65536)
UNKNOWN_SIZE = ("AMD Instinct MI300X OAM", 1)


@pytest.mark.parametrize(
    ("asked", "model", "matches"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("h100", "NVIDIA-H100-80GB-HBM3", True),
        ("H100 80GB", "NVIDIA-H100-80GB-HBM3", True),
        ("nvidia h100 80gb hbm3", "NVIDIA-H100-80GB-HBM3", True),
        ("A10", "NVIDIA A100-SXM4-40GB", False),
        ("H100 NVL", "NVIDIA H100", False),
        ("-", "NVIDIA H100", False),
        ("H20", "NVIDIA H200", False),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB", True),
        ("H200-141GB", "NVIDIA H200", False),
    ],
)
def test_a_product_name_alone_matches_by_whole_words_and_the_size_that_it_tells(
    asked, model, matches
):
    assert matches_model(asked, model) is matches


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ("V100", [V100]),
        ("v100-32gb", [V100]),
        ("V100-16GB", []),
        ("A100", [A100_80, A100_40, A100_PCIE]),
        ("A100-80GB", [A100_80, A100_PCIE]),
        ("a100 80gb", [A100_80, A100_PCIE]),
        ("A100 (80 GB)", [A100_80, A100_PCIE]),
        ("80GB A100", [A100_80, A100_PCIE]),
        ("a100_40g", [A100_40]),
        ("A100-SXM", [A100_80, A100_40]),
        ("A100-SXM4-80GB", [A100_80]),
        ("A100-PCIe", [A100_PCIE]),
        ("NVIDIA-A100-SXM4-80GB", [A100_80]),
        ("H100-SXM", [H100]),
        ("H100 SXM5", [H100]),
        ("h100sxm5", [H100]),
        ("H100-SXM4", []),
        ("H100 PCIe", [H100_PCIE]),
        ("H100-80GB", [H100, H100_PCIE]),
        ("H100-94GB", [H100_NVL]),
        ("H200-141GB", [H200]),
        ("H200 SXM", [H200]),
        ("GH200-96GB", [GH200]),
        ("GH200 480GB", [GH200]),
        ("MI300X", [MI300X]),
        ("mi 300x", [MI300X]),
        ("MI300X-192GB", [MI300X]),
        ("AMD MI300X", []),
        ("AMD", [MI300X]),
        ("Max 1550", [MAX_1550]),
        ("max1550-128GB", [MAX_1550]),
        ("Ascend910B3", [ASCEND]),
        ("910B3", [ASCEND]),
        ("MI300", []),
    ],
)
def test_what_people_write_is_understood(asked, fits):
    there = [A100_80, A100_40, A100_PCIE, H100, H100_PCIE, H100_NVL, GH200, H200]
    there += [V100, V100S, MI300X, MAX_1550, ASCEND]
    assert [kind for kind in there if matches_model(asked, *kind)] == fits


def test_an_unknown_memory_size_does_not_match_the_requested_one():
    assert matches_model("MI300X", *UNKNOWN_SIZE)
    assert not matches_model("MI300X-192GB", *UNKNOWN_SIZE)
    assert matches_model("A100-80GB", A100_80[0], 1)


def test_decisions_look_at_names_and_memory_together():
    small = node("small", model="NVIDIA H100 PCIe", gpu_memory=81559)
    large = node("large", model="NVIDIA H100 NVL", gpu_memory=95830)
    cluster = cluster_of(small, large)
    answer = decide(cluster, whole(1, models=("H100-94GB",)), policy_named("best-fit"))
    assert isinstance(answer, Placement)
    assert answer.node == "large"


def test_a_model_that_is_narrowed_to_one_product_keeps_its_size():
    assert common_model("A100-80GB", A100_80[0]) == A100_80[0]
    assert common_model("A100-80GB", A100_40[0]) is None
    narrowed = common_model("H100-94GB", H100_NVL[0])
    assert matches_model(narrowed, *H100_NVL)
    assert not matches_model(narrowed, H100_NVL[0], 81559)
    assert may_match("H100-94GB", H100_PCIE[0])


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("nvidia.com/gpu: 2", "resourceName: nvidia.com/gpu and gpus: 2"),
        ("amd.com/gpu=1", "resourceName: amd.com/gpu and gpus: 1"),
        ("nvidia.com/gpu", "write resourceName: nvidia.com/gpu"),
        ("A100:8", "write 'A100' and, for each worker, gpus: 8"),
        ("2x A100-80GB", "write 'A100-80GB' and, for each worker, gpus: 2"),
        ("8xH100", "write 'H100' and, for each worker, gpus: 8"),
        ("V100 x4", "write 'V100' and, for each worker, gpus: 4"),
        ("*", "names no model of a GPU; write one such as A100-80GB"),
    ],
)
def test_what_is_no_model_is_refused_with_what_to_write_instead(text, instead):
    with pytest.raises(InvalidRequest) as refused:
        require_model(text)
    assert repr(text) in str(refused.value)
    assert instead in str(refused.value)


@pytest.mark.parametrize("text", ["RTX 4090", "Max 1550", "AMD Instinct MI250X / MI250", "80GB"])
def test_names_with_numbers_and_slashes_are_models(text):
    require_model(text)


def test_a_refusal_names_the_nearest_models_with_their_memory():
    there = [H100, A100_40, V100S, MI300X, H100]
    assert nearest_models(("V100",), there)[0] == "Tesla V100S-PCIE-32GB (32 GiB)"
    assert nearest_models(("MI300",), there)[0] == "AMD Instinct MI300X OAM (196592 MiB)"
    assert nearest_models(("A100-80GB",), there)[0] == "NVIDIA A100-SXM4-40GB (40 GiB)"
    assert len(nearest_models(("V100",), there)) == 3
    assert nearest_models(("V100",), []) == ()
    assert nearest_models(("MI300X-192GB",), [UNKNOWN_SIZE]) == ("AMD Instinct MI300X OAM",)
