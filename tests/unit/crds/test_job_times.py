# SPDX-License-Identifier: Apache-2.0
import datetime as dt

import pytest

from gpupack_crds import names
from gpupack_crds.job_times import checkpointed_at


def read(text):
    return checkpointed_at({names.CHECKPOINTED_AT_ANNOTATION: text})


@pytest.mark.parametrize(
    "text",
    ["2026-11-29T12:00:00Z", "2026-11-29T12:00:00.000Z", "2026-11-29T13:00:00.000000+01:00"],
)
def test_a_checkpoint_is_a_time_with_its_zone(text):
    assert read(text) == dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-29T12:00:00", "1764417600", "2026-11-29T12:00:00Z" + " " * 10_000]
)
def test_a_checkpoint_without_a_time_is_unknown(text):
    assert read(text) is None


def test_a_job_without_the_annotation_has_no_checkpoint():
    assert checkpointed_at({}) is None
