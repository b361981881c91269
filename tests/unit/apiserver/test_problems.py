# SPDX-License-Identifier: Apache-2.0
"""Answers to parameters and bodies that violate the schema."""

import pytest

TEAM = {"namespace": "team", "job": {"gpus": 1}}
WORKLOAD = "allocations/team/allocation-1/workload"


@pytest.mark.parametrize(
    ("query", "field", "value", "fix"),
    [
        (
            {"phase": "Done"},
            "phase",
            "Done",
            "use one of Admitted, Failed, Pending, Running, Succeeded, Suspended",
        ),
        ({"limit": "0"}, "limit", "0", "write a whole number of at least 1"),
        ({"limit": "many"}, "limit", "many", "write a whole number"),
        ({"after": "x" * 999}, "after", "x" * 128, "write text of at most 400 characters"),
    ],
)
async def test_an_invalid_parameter_is_answered_with_value_and_fix(call, query, field, value, fix):
    found = await call("jobs", **query)
    assert found.status == 400
    assert [found.body[key] for key in ("field", "value", "fix")] == [field, value, fix]


@pytest.mark.parametrize(
    ("path", "body", "field", "value", "fix"),
    [
        ("allocate", {"gpu_count": 0}, "gpu_count", "0", "write a whole number of at least 1"),
        ("what-if", TEAM | {"policy": "best"}, "policy", "best", "use one of best-fit, "),
        ("allocate", {"gpus": 1}, "gpus", "", "remove or correct it; the fields are gpu_count,"),
        (
            "what-if",
            TEAM | {"quotas": [{"namespace": "team", "spec": {}, "gpus": 1}]},
            "gpus",
            "",
            "remove or correct it; the fields are namespace, spec",
        ),
        (
            "what-if",
            TEAM | {"quotas": [{"namespace": "Team", "spec": {}}]},
            "quotas[0].namespace",
            "Team",
            "write lower-case letters, digits and '-'",
        ),
    ],
)
async def test_an_invalid_field_is_answered_with_value_and_fix(call, path, body, field, value, fix):
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
        (WORKLOAD, {"image": "a b", "command": ["x"]}, "image"),
        (WORKLOAD, {"image": "a", "command": ["x"], "environment": {"A B": "1"}}, "environment"),
        (WORKLOAD, {"image": "a", "command": ["x"], "environment": {"A": 1}}, "environment"),
    ],
)
async def test_no_answer_shows_a_regular_expression(call, path, body, field):
    found = await call(path, user="tenant", body=body)
    assert (found.status, found.body["field"]) == (400, field)
    assert "regex" not in found.text
    assert "write " in found.body["detail"]


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("validate", {"gpu_count": 0}, "gpu_count is '0': write a whole number of at least 1"),
        (
            "validate",
            {"gpu_count": 9999},
            "gpu_count is '9999': write a whole number of at most 4096",
        ),
        ("validate", {"memory_gb": -1}, "memory_gb is '-1': write a number of at least 0"),
        ("validate", {"gpu_count": "2"}, "gpu_count is '2': write a whole number, without quotes"),
        ("what-if", TEAM | {"policy": "best"}, "policy is 'best': use one of best-fit, "),
        ("what-if", {"job": {}}, "namespace is missing: add it"),
        ("validate", [], "the body: write a JSON object"),
    ],
)
async def test_the_detail_alone_says_the_field_the_value_and_the_fix(call, path, body, detail):
    found = await call(path, user="tenant", body=body)
    assert found.status == 400
    assert found.body["detail"].startswith(detail)


@pytest.mark.parametrize(
    ("path", "field", "fix"),
    [
        ("jobs", "limit", "write a whole number"),
        ("jobs", "phase", "use one of Admitted, "),
        ("cost", "since", "write a time such as "),
    ],
)
async def test_an_empty_parameter_is_shown_as_any_other_value(call, path, field, fix):
    found = await call(path, **{field: ""})
    assert found.status == 400
    assert found.body["detail"].startswith(f"{field} is '': {fix}")


async def test_an_invalid_header_has_the_name_that_the_caller_sent(call):
    found = await call("allocate", user="tenant", body={}, key="x" * 129)
    assert (found.status, found.body["field"]) == (400, "Idempotency-Key")
    assert found.body["detail"] == "Idempotency-Key: write text of at most 128 characters"


@pytest.mark.parametrize("body", [b"{", b'{"memory_gb": 1e400}', b"gpu_count=1"])
async def test_a_body_that_is_not_json_is_named_with_its_start(call, body):
    found = await call("validate", content=body)
    assert (found.status, found.body["field"]) == (400, "body")
    assert found.body["detail"].startswith(f"body is {body.decode()!r}: write valid JSON (")


async def test_a_call_without_its_body_says_what_to_send(call):
    found = await call("validate", method="POST")
    assert (found.status, found.body["field"]) == (400, "body")
    assert found.body["detail"].startswith("the body is empty: send a JSON object")


async def test_a_field_of_the_body_is_not_confused_with_a_part_of_the_path(call):
    found = await call("jobs/team/train/rerun", user="tenant", body={"name": "UPPER"})
    assert found.body["detail"].startswith("name is 'UPPER': write lower-case letters")
    assert found.body["value"] == "UPPER"


@pytest.mark.parametrize("path", ["nodes", "jobs", "holders", "queue", "quotas/history", "cost"])
@pytest.mark.parametrize("cursor", ["no cursor", "x\n"])
async def test_a_cursor_that_no_answer_contained_is_refused(call, path, cursor):
    found = await call(path, after=cursor)
    assert (found.status, found.body["field"], found.body["value"]) == (400, "after", cursor)
    assert found.body["fix"] == "send `next` of the answer before, unchanged"
