# SPDX-License-Identifier: Apache-2.0
import pytest

TRAINING = {"gpu_count": 1, "gpu_type": "H100"}


@pytest.mark.parametrize(
    ("field", "value", "shown_value"),
    [
        ("mixed_precision", 0, "0"),
        ("mixed_precision", "true", "true"),
        ("gpu_count", "1", "1"),
        ("memory_gb", "16", "16"),
    ],
)
async def test_a_field_of_a_convertible_type_is_refused(call, field, value, shown_value):
    found = await call("validate", body=TRAINING | {field: value})
    assert (found.status, found.type) == (400, "application/problem+json")
    assert (found.body["field"], found.body["value"]) == (field, shown_value)
    assert found.body["fix"].startswith("write ")


async def test_an_integer_is_accepted_for_a_number(call):
    assert (await call("validate", body=TRAINING | {"memory_gb": 16})).status == 200
    assert (await call("validate", body=[])).status == 400
    assert (await call("validate", method="POST")).status == 400


@pytest.mark.parametrize("path", ["validate", "what-if"])
async def test_an_unparsable_body_is_answered_400(call, path):
    body = b'{"job":' + b"[" * 100_000
    found = await call(path, content=body)
    assert (found.status, found.body["field"]) == (400, "body")
