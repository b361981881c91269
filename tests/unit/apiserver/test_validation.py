# SPDX-License-Identifier: Apache-2.0
import asyncio
import threading

import pytest
from extender_builders import pod, whole

from gpupack_apiserver.routes import parts
from gpupack_placement import plan_gang


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (True, True, 1, 1)),
        ({"gpu_count": 4, "gpu_type": "H100", "memory_gb": 80}, (True, True, 1, 4)),
        ({"gpu_count": 8, "distributed_training": True}, (True, True, 2, 4)),
        ({"gpu_count": 6, "distributed_training": True}, (True, True, 2, 3)),
        ({"gpu_count": 8}, (False, False, 1, 8)),
        ({"gpu_type": "V100"}, (False, False, 1, 1)),
        ({"memory_gb": 100}, (False, False, 1, 1)),
    ],
)
async def test_validation_divides_a_training_into_workers(call, asked, expected):
    found = (await call("validate", body=asked)).body
    outcome = (found["valid"], found["fits_now"], found["workers"], found["gpus_per_worker"])
    assert outcome == expected
    assert len(found["nodes"]) == (found["workers"] if found["fits_now"] else 0)
    assert bool(found["message"]) is not found["fits_now"]


async def test_a_training_that_fits_later_is_valid_with_a_reason(call, model):
    for name in ("a", "b"):
        model.ledger.pods.upsert(pod(f"p-{name}", on=name, devices=whole(name, 0)))
    found = (await call("validate", body={"gpu_count": 4})).body
    assert (found["valid"], found["fits_now"]) == (True, False)
    assert "fewer than 4 free GPUs" in found["message"]


async def test_a_query_changes_nothing(call, model):
    before = model.ledger.cluster.held()
    for _ in range(3):
        await call("validate", body={"gpu_count": 2})
    assert model.ledger.cluster.held() == before


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"gpu_count": 0}, "gpu_count"),
        ({"gpu_count": 4093, "distributed_training": True}, "gpu_count"),
        ({"gpu_count": "four"}, "gpu_count"),
        ({"gpu_type": "nvidia.com/gpu: 2"}, "gpu_type"),
        ({"memory_gb": -1}, "memory_gb"),
    ],
)
async def test_a_wrong_field_is_named(call, asked, field):
    found = await call("validate", body=asked)
    assert (found.status, found.body["field"]) == (400, field)


async def test_an_unknown_field_is_refused(call):
    found = await call("validate", body={"gpus": 2})
    assert found.status == 400
    assert "gpus" in found.body["detail"]


async def test_calls_are_answered_while_many_workers_are_placed(call, monkeypatch):
    placing, placed = threading.Event(), threading.Event()

    def slowly(*given, at_once=plan_gang):
        placing.set()
        assert placed.wait(30)
        return at_once(*given)

    monkeypatch.setattr(parts, "plan_gang", slowly)
    body = {"gpu_count": 1009, "distributed_training": True}
    asked = asyncio.ensure_future(call("validate", body=body, user="tenant"))
    assert await asyncio.to_thread(placing.wait, 10)
    try:
        assert (await call("status", user="tenant")).status == 200
        refused = await call("validate", body=body, user="tenant")
        assert (refused.status, "another request" in refused.body["detail"]) == (429, True)
    finally:
        placed.set()
    assert (await asked).status == 200


async def test_many_workers_get_the_same_placement_as_a_few(call):
    found = await call("validate", body={"gpu_count": 1009, "distributed_training": True})
    body = found.body
    assert (found.status, body["valid"], body["fits_now"], body["workers"]) == (
        200,
        False,
        False,
        1009,
    )
