# SPDX-License-Identifier: Apache-2.0
import datetime as dt

from rest_answers import queue_row

from gpupack.jobs import sort_queue
from gpupack_cli.queue_rows import cells

NOW = dt.datetime(2026, 11, 25, 10, 0, tzinfo=dt.UTC)


def test_rows_are_sorted_by_position_and_unpositioned_ones_are_last():
    rows = [
        queue_row("team", "outside", priority=9),
        queue_row("team", "late", position=7),
        queue_row("other", "notebook", kind="Pod", position=2),
    ]
    assert [cells(row, NOW)[:3] for row in sort_queue(rows)] == [
        (2, "other", "pod/notebook"),
        (7, "team", "late"),
        ("", "team", "outside"),
    ]
