# SPDX-License-Identifier: Apache-2.0
"""Time-window reservations, with the real scheduler and operator."""

import datetime as dt

import pytest
from harness import wait_for


def moment(seconds):
    """So many seconds from now."""
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def reservation(model, *, gpus=1, start=5, end=600, name="day", **spec):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUReservation",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "gpus": gpus,
            "startTime": moment(start),
            "endTime": moment(end),
            **spec,
        },
    }


def quota(nominal):
    return {
        "apiVersion": "gpupack.dev/v1beta1",
        "kind": "GPUQuota",
        "metadata": {"name": "default"},
        "spec": {"gpus": [{"model": "*", "nominal": nominal}]},
    }


def gpunodes(kube):
    return [each["status"] for each in kube.gpunodes() if each.get("status")]


@pytest.fixture
def model(kube):
    """The model of the first node."""
    return gpunodes(kube)[0]["model"]


def status_when(kube, wanted, *, name="day", seconds=60):
    """Return the status once it is as wanted."""

    def shown():
        status = kube.get("gpureservation", name).get("status", {})
        return status if wanted(status) else None

    return wait_for(shown, seconds=seconds, what="the status of the reservation")


def test_a_reservation_beyond_the_quota_is_refused_by_its_status(kube, model):
    kube.submit(quota(1), reservation(model, gpus=2))
    status = status_when(kube, lambda status: status.get("phase") == "Refused")
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("Accepted", "QuotaExceeded")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"gpus": None}, "set either gpus, or nodes and gpusPerNode"),
        ({"end": -60}, "endTime must be after startTime"),
        ({"end": 15 * 86_400}, "a window lasts at most 14 days"),
        ({"end": 90_000, "recurrence": "FREQ=DAILY"}, "a repeated window lasts at most 24 hours"),
        ({"recurrence": "FREQ=SECONDLY"}, "recurrence"),
        ({"timeZone": "../zone"}, "timeZone"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_refused_at_its_creation(kube, model, spec, message):
    built = reservation(model, **spec)
    built["spec"] = {key: value for key, value in built["spec"].items() if value is not None}
    assert message in kube.apply(built).stderr


def test_a_reservation_cannot_change(kube, model):
    kube.submit(quota(1), reservation(model))
    assert "a reservation cannot change" in kube.apply(reservation(model, end=900)).stderr


def test_a_job_that_names_the_reservation_uses_it_in_its_window(kube, judged, model):
    kube.submit(quota(1), reservation(model))
    status_when(kube, lambda status: status.get("phase") == "Active")
    job = judged.job("ours", seconds=60)
    job["spec"]["reservation"] = "day"
    kube.submit(job)
    kube.wait_phase("ours", "Running")
    status = status_when(kube, lambda status: status.get("used") == "1")
    assert (status["held"], status["missing"]) == ("0", "0")


@pytest.mark.alone
def test_a_job_ends_when_the_window_of_another_namespace_begins(kube, others, judged):
    """The window needs every GPU of the model that most nodes have."""
    models = [each["model"] for each in gpunodes(kube)]
    model = max(set(models), key=models.count)
    gpus = sum(each["gpus"] for each in gpunodes(kube) if each["model"] == model)
    owner = others("owner")
    owner.submit(quota(gpus), reservation(model, gpus=gpus, start=45))
    status_when(owner, lambda status: status.get("phase") == "Upcoming")
    job = judged.job("batch", seconds=900)
    job["spec"]["gpuModels"] = [model]
    kube.submit(job)
    kube.wait_phase("batch", "Running")
    kube.wait_reason("batch", "ReservedForWindow")
    (attempt,) = kube.get("gpujob", "batch")["status"]["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Preempted", "TimeWindow")
    assert owner.namespace not in attempt["message"]
    status = status_when(owner, lambda status: status.get("phase") == "Active")
    assert status["held"] == str(gpus)
