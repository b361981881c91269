# SPDX-License-Identifier: Apache-2.0
from dataclasses import FrozenInstanceError, replace

import pytest
from placement_builders import device, gang, node, slices, whole

from gpupack_placement import (
    DecisionError,
    Gang,
    Grant,
    Interconnect,
    InvalidInventory,
    InvalidPlacement,
    InvalidRequest,
    Placement,
    Request,
    Share,
    Slices,
    Spread,
    Taint,
)

GRANT = Grant("u", 1000, 1)


def both_cut_and_whole():
    cut = device("a", 1, profile="1g.10gb", parent="a/0")
    return replace(node("a"), devices=(device("a", 0), cut))


@pytest.mark.parametrize(
    ("error", "build"),
    [
        (InvalidInventory, lambda: device("a", -1)),
        (InvalidInventory, lambda: device("a", 0, memory=0)),
        (InvalidInventory, lambda: device("a", 0, memory=1 << 31)),
        (InvalidInventory, lambda: device("a", 0, numa_node=40_000)),
        (InvalidInventory, lambda: device("a", 0, numa_node=-1)),
        (InvalidInventory, lambda: device("a", 0, model="")),
        (InvalidInventory, lambda: device("a", 0, max_shares=-1)),
        (InvalidInventory, lambda: device("a", 0, speed=0)),
        (InvalidInventory, lambda: device("a", 0, speed=10_001)),
        (InvalidInventory, lambda: Taint("")),
        (InvalidInventory, lambda: node("")),
        (InvalidInventory, lambda: node("a", cpu=-1)),
        (InvalidInventory, lambda: node("a", pods=-1)),
        (InvalidPlacement, lambda: Placement("a", (GRANT,), pods=2)),
        (InvalidInventory, lambda: replace(node("a"), devices=(device("a", 0),) * 2)),
        (
            InvalidInventory,
            lambda: replace(node("a"), devices=(device("a", 0), device("b", 0))),
        ),
        (InvalidInventory, lambda: device("a", 0, profile="1g.10gb")),
        (InvalidInventory, lambda: device("a", 0, parent="GPU-1")),
        (InvalidInventory, lambda: device("a", 0, profile="1g.10gb", parent="a/0")),
        (InvalidInventory, both_cut_and_whole),
        (InvalidRequest, Request),
        (InvalidRequest, lambda: Request(gpus=1, share=Share(1, 1))),
        (InvalidRequest, lambda: Request(gpus=-1)),
        (InvalidRequest, lambda: Request(gpus=1, cpu=-1)),
        (InvalidRequest, lambda: Request(gpus=1, models=(" ",))),
        (InvalidRequest, lambda: Share(0, 1)),
        (InvalidRequest, lambda: Share(1000, 1)),
        (InvalidRequest, lambda: Share(1, -1)),
        (InvalidRequest, lambda: Slices("")),
        (InvalidRequest, lambda: Slices("1g.10gb", 0)),
        (InvalidRequest, lambda: Request(gpus=1, slices=Slices("1g.10gb"))),
        (InvalidRequest, lambda: slices("1g.10gb", 2, interconnect=Interconnect.NVLINK)),
        (InvalidRequest, lambda: Spread(max_nodes=0)),
        (InvalidRequest, lambda: gang(2, slices("1g.10gb"), same_clique=True)),
        (InvalidRequest, lambda: gang(2, whole(0), same_clique=True)),
        (InvalidRequest, lambda: gang(2, whole(1), same_clique=True, one_worker_per_node=True)),
        (InvalidRequest, lambda: Gang.of(0, Request(gpus=1))),
        (InvalidRequest, lambda: Gang.of(3, Request(gpus=1), Spread(2, one_worker_per_node=True))),
        (InvalidPlacement, lambda: Grant("u", 0, 1)),
        (InvalidPlacement, lambda: Grant("u", 1001, 1)),
        (InvalidPlacement, lambda: Grant("u", 1, -1)),
        (InvalidPlacement, lambda: Placement("a", (GRANT, GRANT))),
        (InvalidPlacement, lambda: Placement("a", (), -1)),
    ],
)
def test_what_cannot_exist_is_rejected_when_it_is_made(error, build):
    with pytest.raises(error) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, DecisionError)


def test_a_request_for_slices_takes_devices_and_no_milli_gpu():
    request = slices("1g.10gb", 2)
    assert (request.needs_gpu, request.devices, request.milli) == (True, 2, 0)


def test_inventory_and_requests_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        node("a").ready = False
    with pytest.raises(FrozenInstanceError):
        Request(gpus=1).gpus = 2
