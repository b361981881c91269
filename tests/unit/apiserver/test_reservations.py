# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations in the answers."""

import msgspec
import pytest

from gpupack_crds.kinds import GpuReservation


@pytest.fixture
def reserved(model):
    def show(namespace, name, **status):
        built = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
            "spec": {"model": "H100", "gpus": 4, "recurrence": "FREQ=DAILY"},
            "status": status,
        }
        model.quotas.reservations.upsert(msgspec.convert(built, GpuReservation))

    return show


async def test_reservations_are_listed_with_their_window_and_what_is_wrong(call, reserved):
    wrong = {
        "type": "Honored",
        "status": "False",
        "reason": "GpusMissing",
        "message": "2 GPUs are missing",
        "lastTransitionTime": "2026-12-07T08:00:00Z",
    }
    start = "2026-12-07T08:00:00Z"
    reserved("team", "day", phase="Active", windowStart=start, missing="2", conditions=[wrong])
    (found,) = (await call("reservations", user="tenant")).body["reservations"]
    assert (found["namespace"], found["name"], found["gpus"]) == ("team", "day", "4")
    assert (found["phase"], found["window_start"], found["missing"]) == ("Active", start, "2")
    assert (found["recurrence"], found["problem"]) == ("FREQ=DAILY", "2 GPUs are missing")


async def test_a_tenant_sees_the_reservations_of_its_namespaces_only(call, reserved):
    reserved("team", "day")
    reserved("others", "secret")
    found = (await call("reservations", user="tenant")).body
    assert [each["name"] for each in found["reservations"]] == ["day"]
    assert (found["total"], found["may_list"]) == (1, True)
    assert (await call("reservations", user="other")).body["may_list"] is False
    refused = await call("reservations", user="tenant", namespace="others")
    assert refused.status == 403
    assert "may not list gpureservations in namespace others" in refused.body["detail"]


async def test_reservations_are_listed_page_by_page(call, reserved):
    for name in ("a", "b", "c"):
        reserved("team", name)
    first = (await call("reservations", user="tenant", limit=2)).body
    assert [each["name"] for each in first["reservations"]] == ["a", "b"]
    assert (first["next"], first["total"]) == ("team/b", 3)
    rest = (await call("reservations", user="tenant", after=first["next"])).body
    assert [each["name"] for each in rest["reservations"]] == ["c"]
    assert rest["next"] == ""
