# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_apiserver.quota_history import MAX_QUOTAS, MAX_SAMPLES, QuotaHistory

START = dt.datetime(2026, 11, 24, 10, tzinfo=dt.UTC)


@pytest.fixture
def after(quota_history, model):
    """Return a function that takes a sample this many intervals after the start."""

    def look(number):
        moment = START + dt.timedelta(seconds=number * quota_history.seconds)
        quota_history.add(moment, model.quotas.quotas.items.values())

    return look


async def test_a_quota_is_shown_over_time(call, quota, after):
    quota("team", nominal="8", used="2.5", borrowed="0")
    after(0)
    quota("team", nominal="8", used="10", borrowed="2")
    after(1)
    found = (await call("quotas/history", user="tenant")).body
    assert found["interval_seconds"] == 10
    assert found["timestamps"] == ["2026-11-24T10:00:00Z", "2026-11-24T10:00:10Z"]
    (series,) = found["quotas"]
    assert (series["used"], series["borrowed"]) == ([2.5, 10.0], [0.0, 2.0])


async def test_figures_of_a_new_quota_are_unknown_before_its_creation(call, quota, after):
    quota("team", used="1", nominal="4", borrowed="0")
    after(0)
    quota("others")
    after(1)
    quota("others", used="3", nominal="4", borrowed="0")
    after(2)
    (others, _) = (await call("quotas/history")).body["quotas"]
    assert (others["namespace"], others["used"]) == ("others", [None, None, 3.0])


async def test_the_history_of_a_hidden_quota_is_not_shown(call, quota, after):
    for namespace in ("team", "others"):
        quota(namespace, used="1")
    after(0)
    found = (await call("quotas/history", user="tenant")).body["quotas"]
    assert [each["namespace"] for each in found] == ["team"]
    refused = await call("quotas/history", user="tenant", namespace="others")
    assert refused.status == 403


async def test_quota_histories_are_paged(call, quota, after):
    for namespace in ("a", "b", "c"):
        quota(namespace, used="1")
    after(0)
    first = (await call("quotas/history", limit=2)).body
    second = (await call("quotas/history", limit=2, after=first["next"])).body
    assert [each["namespace"] for each in first["quotas"] + second["quotas"]] == ["a", "b", "c"]
    assert second["next"] == ""


async def test_quotas_without_figures_are_counted(call, quota, after):
    quota("team", used="1")
    after(0)
    quota("others", used="1")
    found = (await call("quotas/history")).body
    assert [each["namespace"] for each in found["quotas"]] == ["team"]
    assert (found["total"], found["next"]) == (2, "")


def test_the_history_is_limited_to_an_hour_and_a_number_of_samples(quota, model):
    history = QuotaHistory(lambda: None, seconds=1)
    assert history.seconds == 5
    for number in range(MAX_QUOTAS + 10):
        quota(f"team-{number:04}", used="1")
    for number in range(MAX_SAMPLES + 5):
        quotas = list(model.quotas.quotas.items.values()) if number % 360 == 0 else []
        history.add(START + dt.timedelta(seconds=number), quotas[: 2 * MAX_QUOTAS])
    assert len(history.timestamps) == MAX_SAMPLES
    history.add(START, model.quotas.quotas.items.values())
    assert len(history.by_namespace) == MAX_QUOTAS
    assert {len(each.used) for each in history.by_namespace.values()} == {MAX_SAMPLES}
