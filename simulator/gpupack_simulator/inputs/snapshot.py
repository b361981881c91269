# SPDX-License-Identifier: Apache-2.0
"""A cluster's state as placement writes it (gpupack_placement.snapshot), in a JSON file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpupack_placement import Cluster, InvalidSnapshot, snapshot
from gpupack_simulator.inputs.compression import read_text
from gpupack_simulator.inputs.faults import Faults

_HINT = "--adopt holds it all the same, as the ledger of a live cluster does"


def read_snapshot(path: Path, *, adopt: bool = False) -> dict[str, Any]:
    """Read a document that `cluster_of` can load with the same `adopt`.

    Raises:
        InvalidInput: it is not JSON, or a field is wrong; the message names the first one.
    """
    faults = Faults(path)
    try:
        document = msgspec.json.decode(read_text(faults.path, faults), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise faults.fatal(f"is not a JSON object: {error}") from error
    except RecursionError as error:
        raise faults.fatal("is nested too deeply") from error
    try:
        cluster_of(document, adopt=adopt)
    except InvalidSnapshot as error:
        hint = f"; {_HINT}" if not adopt and _can_adopt(document) else ""
        raise faults.fatal(f"{error}{hint}") from error
    return document


def _can_adopt(document: Mapping[str, Any]) -> bool:
    try:
        cluster_of(document, adopt=True)
    except InvalidSnapshot:
        return False
    return True


def cluster_of(document: Mapping[str, Any], *, adopt: bool = False) -> Cluster:
    """Return a new cluster, holders included.

    `adopt`: holdings are facts even if they do not fit, as in the ledger of a live cluster, where
    nodes may be absent for the moment.
    """
    return snapshot.load(document, strict=not adopt)
