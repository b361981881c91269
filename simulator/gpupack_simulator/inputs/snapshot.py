# SPDX-License-Identifier: Apache-2.0
"""A cluster's state as core writes it (gpupack_core.snapshot), in a JSON file."""

from pathlib import Path
from typing import Any

import msgspec

from gpupack_core import Cluster, InvalidSnapshot, snapshot
from gpupack_simulator.inputs.faults import Faults


def read_snapshot(path: Path) -> dict[str, Any]:
    """The document; it is known that `cluster_of` can load it.

    Raises:
        InvalidInput: it is not JSON, or names the first field that is wrong.
    """
    faults = Faults(path)
    try:
        document = msgspec.json.decode(faults.text(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise faults.fatal(f"is not a JSON object: {error}") from error
    try:
        cluster_of(document)
    except InvalidSnapshot as error:
        raise faults.fatal(str(error)) from error
    return document


def cluster_of(document: dict[str, Any]) -> Cluster:
    """A cluster of its own, holders included."""
    return snapshot.load(document)
