# SPDX-License-Identifier: Apache-2.0
"""The mix for the measure of fragmentation when jobs come and go.

It has the typical pods, and an extra weight for each size of two or more whole GPUs:

    extra weight of size n = 0.03 · n / largest n        (the typical pods together weigh 1)

spread evenly over the kinds of that size. By frequency alone a large job weighs next to nothing (8
GPUs: 0.5 % of openb's pods, 6 % of the requested GPUs); yet it waits until a whole node is idle,
while a share waits for the next gap. The spread is even because the few jobs that need 8 GPUs with
120 cores wait for the few nodes that have them. Spread by frequency, the weight must be larger to
protect those nodes, and then small jobs wait longer under overload.
"""

from collections import Counter
from dataclasses import replace

from gpupack_devices.units import NO_MEMORY
from gpupack_placement.demand_forecast import RequestMix
from gpupack_placement.request import Request

LARGE_JOB_WEIGHT = 0.03


def with_large_jobs(mix: RequestMix) -> RequestMix:
    """Return the typical pods with the extra weights; the node's memory is left out."""
    bare = RequestMix.of((replace(d.request, memory=NO_MEMORY), d.weight) for d in mix.demands)
    typical = bare.typical()
    covered = sum(d.weight for d in typical.demands)
    weights = [(d.request, d.weight / covered) for d in typical.demands]
    return RequestMix.of([*weights, *_extra(bare)])


def _extra(mix: RequestMix) -> list[tuple[Request, float]]:
    large = [d.request for d in mix.demands if (d.request.gpus or 0) > 1]
    kinds = Counter(request.gpus or 0 for request in large)
    most = max(kinds, default=1)
    return [
        (r, LARGE_JOB_WEIGHT * size / most / kinds[size]) for r in large if (size := r.gpus or 0)
    ]
