# SPDX-License-Identifier: Apache-2.0
"""Answers of a newer server, which clients must read (docs/compatibility.md)."""

import msgspec
import pytest
from rest_answers import explanation, outcome, queue_row

from gpupack_restapi.questions import JobRef, StartView


@pytest.mark.parametrize(
    "newer",
    [
        queue_row("team", "train", kind="Workload"),
        explanation(start=StartView("Later"), ahead=[JobRef("team", "train", kind="Workload")]),
        outcome("Delayed", start=StartView("Later")),
    ],
    ids=["a row of the queue", "an explanation", "an outcome"],
)
def test_a_client_reads_values_and_fields_that_it_does_not_know(newer):
    sent = msgspec.to_builtins(newer) | {"new": 1}
    assert msgspec.json.decode(msgspec.json.encode(sent), type=type(newer)) == newer
