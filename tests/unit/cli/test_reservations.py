# SPDX-License-Identifier: Apache-2.0
"""Rows of `gpupack reservations`."""

import msgspec

from gpupack_cli.commands.reservations import COLUMNS, row_of
from gpupack_crds.kinds import GpuReservation


def test_a_row_has_the_window_and_what_is_wrong():
    wrong = {
        "type": "Accepted",
        "status": "False",
        "reason": "QuotaExceeded",
        "message": "it reserves 16 GPUs",
        "lastTransitionTime": "2026-12-07T08:00:00Z",
    }
    built = {
        "metadata": {"name": "night", "namespace": "lab"},
        "spec": {"model": "H100", "nodes": 2, "gpusPerNode": 8},
        "status": {"phase": "Refused", "conditions": [wrong]},
    }
    row = row_of(msgspec.convert(built, GpuReservation))
    assert (row.namespace, row.name, row.gpus, row.phase) == ("lab", "night", "16", "Refused")
    assert row.problem == "it reserves 16 GPUs"
    assert len(row.cells()) == len(COLUMNS)


def test_a_document_names_the_window_from_and_to():
    built = {
        "metadata": {"name": "day", "namespace": "lab"},
        "spec": {"model": "H100", "gpus": 4},
        "status": {"windowStart": "2026-12-07T08:00:00Z", "windowEnd": "2026-12-07T16:00:00Z"},
    }
    shown = msgspec.to_builtins(row_of(msgspec.convert(built, GpuReservation)))
    assert (shown["from"], shown["to"]) == ("2026-12-07T08:00:00Z", "2026-12-07T16:00:00Z")
