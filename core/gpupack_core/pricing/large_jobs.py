# SPDX-License-Identifier: Apache-2.0
"""The mix by which fragmentation is measured where jobs come and go.

The typical pods, and for each size of two or more whole GPUs some weight on top:

    extra weight of size n = 0.03 · n / largest n        (the typical pods together weigh 1)

spread evenly over the CPU figures of that size, and by frequency over kinds that differ in
something else. By frequency alone a large job weighs next to nothing (8 GPUs: 0.5 % of openb's
pods, 6 % of what is asked for); yet it waits until a whole node falls idle, while a share waits for
the next gap. Evenly, because the few who need 8 GPUs with 120 cores wait for the few nodes that
have them: spread by frequency the weight must be larger to keep those, and then small jobs wait
longer when there is more work than room. By frequency within, because half the weight would go to
the few who name models, and the others, who wait for as much CPU, would wait longer.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from gpupack_core.outlook import Mix
from gpupack_core.request import Request
from gpupack_core.units import NO_MEMORY

EXTRA = 0.03

_Size = tuple[int, int]
"""GPUs and CPU asked for."""


def with_large_jobs(mix: Mix) -> Mix:
    """The typical pods and the extra weights; the node's memory left aside."""
    bare = Mix.of((replace(d.request, memory=NO_MEMORY), d.weight) for d in mix.demands)
    typical = bare.typical()
    covered = sum(d.weight for d in typical.demands)
    weights = [(d.request, d.weight / covered) for d in typical.demands]
    return Mix.of([*weights, *_extra(bare)])


def _extra(mix: Mix) -> list[tuple[Request, float]]:
    large = [(_size(d.request), d) for d in mix.demands if (d.request.gpus or 0) > 1]
    weights: defaultdict[_Size, float] = defaultdict(float)
    for size, demand in large:
        weights[size] += demand.weight
    figures = Counter(gpus for gpus, _ in weights)
    most = max(figures, default=1)
    each = {size: EXTRA * size[0] / most / figures[size[0]] for size in weights}
    return [(d.request, each[size] * d.weight / weights[size]) for size, d in large]


def _size(request: Request) -> _Size:
    return request.gpus or 0, request.cpu
