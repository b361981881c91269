# SPDX-License-Identifier: Apache-2.0
"""The devices of many nodes that could serve a request, by device and row, for policies.

The final choice is made by devices.py, for one node.
"""

from collections.abc import Hashable

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import Arrays, BoolArray, IntArray
from gpupack_placement.fragmentation import accepts
from gpupack_placement.memo import Rows
from gpupack_placement.request import Request, Share


def kind_of_score(request: Request) -> Hashable:
    """Return the key of all that the score of a row may depend on, other than the row."""
    return request.gpus, request.share, request.models, request.min_memory, request.cpu


def accepted(view: Arrays, request: Request, rows: Rows) -> BoolArray:
    """Return the devices of a model and size that would serve the request if idle."""
    accepting = [*(accepts(request, kind) for kind in view.kinds.values), False, False]
    found: BoolArray = np.array(accepting)[view.kind.T[:, rows]]
    return found


def first_idle(fits: BoolArray, free: IntArray, gpus: int) -> BoolArray:
    """Return the first `gpus` idle devices of each node that fit, in column order."""
    idle = fits & (free == WHOLE_GPU)
    first: BoolArray = idle & (idle.cumsum(axis=0) <= gpus)
    return first


def fits_share(view: Arrays, share: Share, rows: Rows) -> BoolArray:
    """Return the devices with capacity, memory and a slot for the share, of any model."""
    room: BoolArray = view.free_milli.T[:, rows] >= share.milli
    if share.memory:
        room &= view.free_memory.T[:, rows] >= share.memory
    return room & (view.free_shares.T[:, rows] > 0)
