# SPDX-License-Identifier: Apache-2.0
"""What callers are told where a parameter or a body is not what the schema says."""

import pytest

TEAM = {"namespace": "team", "job": {"gpus": 1}}


@pytest.mark.parametrize(
    ("query", "field", "value", "fix"),
    [
        (
            {"phase": "Done"},
            "phase",
            "Done",
            "name one of Admitted, Failed, Pending, Running, Succeeded, Suspended",
        ),
        ({"limit": "0"}, "limit", "0", "give `int` >= 1"),
        ({"limit": "many"}, "limit", "many", "give `int`"),
        ({"after": "x" * 999}, "after", "x" * 128, "give `str` of length <= 400"),
    ],
)
async def test_a_wrong_parameter_is_told_with_its_value_and_what_is_taken(
    call, query, field, value, fix
):
    found = await call("jobs", **query)
    assert found.status == 400
    assert [found.body[key] for key in ("field", "value", "fix")] == [field, value, fix]


@pytest.mark.parametrize(
    ("path", "body", "field", "value", "fix"),
    [
        ("allocate", {"gpu_count": 0}, "gpu_count", "0", "give `int` >= 1"),
        ("what-if", TEAM | {"policy": "best"}, "policy", "best", "name one of best-fit, "),
        ("allocate", {"gpus": 1}, "gpus", "", "remove it, or spell it right; there are gpu_count,"),
        (
            "what-if",
            TEAM | {"quotas": [{"namespace": "team", "spec": {}, "gpus": 1}]},
            "gpus",
            "",
            "remove it, or spell it right; there are namespace, spec",
        ),
        (
            "what-if",
            TEAM | {"quotas": [{"namespace": "Team", "spec": {}}]},
            "quotas[0].namespace",
            "Team",
            "lower-case letters, digits and '-'",
        ),
    ],
)
async def test_a_wrong_field_is_told_with_its_value_and_what_is_taken(
    call, path, body, field, value, fix
):
    found = await call(path, user="tenant", body=body)
    assert found.status == 400
    assert (found.body["field"], found.body.get("value", "")) == (field, value)
    assert found.body["fix"].startswith(fix)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("jobs/team/One", None, "name"),
        ("jobs/Team/one", None, "namespace"),
        ("allocate", {"gpu_count": 1, "namespace": "Team"}, "namespace"),
        ("validate", {"gpu_count": 1, "gpu_type": "*"}, "gpu_type"),
        ("setup-pytorch", {"job": "train"}, "job"),
    ],
)
async def test_no_answer_shows_a_regular_expression(call, path, body, field):
    found = await call(path, user="tenant", body=body)
    assert (found.status, found.body["field"]) == (400, field)
    assert "regex" not in found.text
    assert "write " in found.body["detail"]
