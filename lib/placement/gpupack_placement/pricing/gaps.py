# SPDX-License-Identifier: Apache-2.0
"""The value of a gap on one GPU under a mix.

    worth(f) = max Σ_m price_m · count_m over what fits into f milli-GPU;
    worth(1000) is at least the price of a GPU

Prices are those of the LP (cutting_stock.py), for demand of 1, 1.05, 1.1 and 1.2 GPUs on one GPU of
supply: prices jump as demand crosses supply, and the future demand is unknown.
"""

from collections.abc import Mapping
from math import gcd

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import IntArray
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.fragmentation import UNIT
from gpupack_placement.pricing.cutting_stock import Stock, prices
from gpupack_placement.pricing.knapsack import filled

SCALES = (1.0, 1.05, 1.1, 1.2)
SIZES = 64
"""Maximum number of share sizes that are distinguished to the milli; if there are more, they are
rounded up."""
COARSE = 10


def plain() -> IntArray:
    """Return the values while nothing is known of the mix: a gap is worth its capacity."""
    return np.arange(WHOLE_GPU + 1, dtype=np.int64) * UNIT // WHOLE_GPU


def worth_of_gaps(mix: RequestMix) -> IntArray:
    """Return the value of a gap of 0 to 1000 milli, in parts: UNIT parts are a GPU.

    Raises:
        NoPrices: as for cutting_stock.prices.
    """
    mean = sum(d.weight * d.request.milli for d in mix.demands) / WHOLE_GPU
    if not mean:
        return plain()
    shares = _shares(mix)
    unit = gcd(WHOLE_GPU, *shares)
    stock = Stock(
        sizes=tuple(milli // unit for milli in shares),
        demand=tuple(weight / mean for weight in shares.values()),
        whole=sum(d.weight * (d.request.gpus or 0) for d in mix.demands) / mean,
        capacity=WHOLE_GPU // unit,
    )
    slots, gpu = prices(stock, SCALES)
    worth = filled(stock.sizes, slots.tolist(), stock.capacity).worth
    worth[-1] = max(worth[-1], gpu)
    parts: IntArray = np.round(worth * UNIT).astype(np.int64)
    return parts[np.arange(WHOLE_GPU + 1) // unit]


def _shares(mix: RequestMix) -> Mapping[int, float]:
    """Return weights by size in milli, ascending."""
    sizes = {d.request.share.milli for d in mix.demands if d.request.share}
    step = COARSE if len(sizes) > SIZES else 1
    weights: dict[int, float] = {}
    for demand in mix.demands:
        if demand.request.share:
            milli = -(-demand.request.share.milli // step) * step
            weights[milli] = weights.get(milli, 0.0) + demand.weight
    return {milli: weights[milli] for milli in sorted(weights)}
