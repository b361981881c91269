# SPDX-License-Identifier: Apache-2.0
import datetime as dt

from gpupack.job_views import QueueRow, sort_queue
from gpupack_cli.queue_rows import cells

NOW = dt.datetime(2026, 11, 25, 10, 0, tzinfo=dt.UTC)


def test_rows_are_sorted_by_position_and_unpositioned_ones_are_last():
    rows = [
        QueueRow("team", "outside", priority=9),
        QueueRow("team", "late", position=7),
        QueueRow("other", "notebook", "Pod", position=2),
    ]
    assert [cells(row, NOW)[:3] for row in sort_queue(rows)] == [
        (2, "other", "pod/notebook"),
        (7, "team", "late"),
        ("", "team", "outside"),
    ]
