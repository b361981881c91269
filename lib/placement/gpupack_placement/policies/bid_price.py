# SPDX-License-Identifier: Apache-2.0
"""Bid prices: the node that loses least of the value of its free GPUs for future requests.

    score = floor( [ (1 - 0.6·θ) · (ΔU - 0.034·opens) - (1 - θ) · Z - θ·ΔF - K ] / 0.0234 )

Δ: after placement less before. In GPUs:
  U       Σ_gpu W(free) - 0.845 · Ψ(Σ_gpu W(free) - free CPU / r): the value of gaps with CPU to use
          them. W by an LP over the mix of requests (pricing/gaps.py), Ψ: a soft corner at r cores
          per GPU, as in the mix (pricing/stranding.py)
  opens   1 if a share opens an idle GPU
  Z       for a pod without GPUs: 0.182 · [the node has GPU capacity free] + 0.131 · CPU left / 128
          cores: the pod goes where its CPU strands nothing
  F       fragmentation (fragmentation.py) by the typical pods plus large jobs
          (pricing/large_jobs.py)
  K       price of the GPUs that are taken, if some requests can use no other kinds
          (pricing/sought_kinds.py); while the mix is unknown, higher for kinds that more requests
          could use (pricing/versatility.py)
  θ       min(1, 2 · churn), churn: recent departures per arrival

θ = 0: nothing ever leaves and no gap is given back, so each gap is used as well as the LP can.
θ = 1, steady state: gaps come back by themselves. The scarce resource is nodes that are idle enough
for large jobs, which F protects. One formula covers both, since a cluster that fills up for the
first time later turns over.

Whole-number scores are part of the policy: nodes that differ by less than a step of 0.0234 GPU tie,
and ties go to the first node of a fixed order, which keeps the last ones empty. A share goes to the
fullest GPU of the node. All figures are whole numbers, UNIT parts to a GPU, and per mille. While
the mix is unknown, a gap is worth its capacity; best-fit in that phase was measured to cost 0.45
points of openb's GPUs, because the CPU of the first nodes strands them.

Source: ours. Bid prices are those of revenue management (Talluri and van Ryzin, «The Theory and
Practice of Revenue Management», 2004, section 3.2). Figures: docs/packing.md.
"""

from threading import Lock

import numpy as np

from gpupack_devices.units import WHOLE_GPU
from gpupack_placement.arrays import MIXED, Arrays, BoolArray, FloatArray, IntArray
from gpupack_placement.demand_forecast import DemandForecast, RequestMix
from gpupack_placement.fragmentation import UNIT, Fragmentation, Parts
from gpupack_placement.memo import RowMemo, Rows
from gpupack_placement.policies.fitting import accepted, first_idle, fits_share, kind_of_score
from gpupack_placement.policies.policy import Policy
from gpupack_placement.pricing.gaps import plain, worth_of_gaps
from gpupack_placement.pricing.large_jobs import with_large_jobs
from gpupack_placement.pricing.sought_kinds import SoughtKinds
from gpupack_placement.pricing.stranding import CORES_PER_GPU, Stranding, cores_per_gpu
from gpupack_placement.pricing.versatility import Versatility
from gpupack_placement.request import Request

STEP = 0.0234
STRANDED = 0.845
OPENING = 0.034
NEXT_TO_FREE_GPUS = 0.182
CPU_LEFT = 0.131
LARGEST_CPU_MILLI = 128_000
SETTLED_CHURN = 0.5
"""The churn from which θ is 1."""
LESS_WHEN_SETTLED = 0.6

_MILLE = 1000
_LAST = np.iinfo(np.int64).max
_STEP_PARTS = round(STEP * UNIT) * _MILLE * WHOLE_GPU


class BidPrice(Policy):
    """Policy `bid-price`. `informed` returns a new object with its own memos."""

    name = "bid-price"

    def __init__(self) -> None:
        self.settled, self._mix = 0, RequestMix()
        self.worth = plain()
        self.stranding = Stranding(CORES_PER_GPU, weight=STRANDED)
        self.fragmentation = Fragmentation(RequestMix())
        self._sought = SoughtKinds(RequestMix())
        self._versatility = Versatility()
        self._scores = RowMemo(np.int64)
        self._before = RowMemo(np.int64, kept=1)
        self._lock = Lock()

    def informed(self, forecast: DemandForecast) -> "BidPrice":
        """Return the policy with prices by the forecast's mix.

        Raises:
            NoPrices: the LP was not solved.
        """
        informed = BidPrice()
        if not forecast.mix.demands:
            return informed
        settled = round(_MILLE * min(1.0, forecast.churn / SETTLED_CHURN))
        if (settled, forecast.mix) == (self.settled, self._mix):
            return self
        informed.settled, informed._mix = settled, forecast.mix
        informed.worth = worth_of_gaps(forecast.mix)
        informed.stranding = Stranding(cores_per_gpu(forecast.mix), weight=STRANDED)
        informed.fragmentation = Fragmentation(with_large_jobs(forecast.mix))
        informed._sought = SoughtKinds(forecast.mix)
        informed.fragmentation.extend_tables(self.fragmentation.kinds, columns=0)
        return informed

    def score(self, view: Arrays, request: Request, rows: IntArray) -> FloatArray:
        """Score by the formula above."""
        with self._lock:
            prices, cliques = self.prices(view), self._prices_of_cliques(view)
            kind = kind_of_score(request), prices.tobytes(), cliques.tobytes()
            compute = lambda some: (  # noqa: E731
                self._gains(view, request, some, prices, cliques) // _STEP_PARTS
            )
            return self._scores.of(kind, view.version, compute, rows)[rows].astype(np.float64)

    def prices(self, view: Arrays) -> IntArray:
        """Return K for each GPU, by kind, in parts times 1,000; empty if none has a price."""
        if not self._mix.demands:
            return self._versatility.by_kind(view) * _MILLE
        filling = _MILLE - self.settled
        busy, idle = self._sought.prices(view), self._sought.while_filling(view)
        return self.settled * busy + filling * idle

    def _prices_of_cliques(self, view: Arrays) -> IntArray:
        """Return the additional K, by GPUs of the node's largest clique; empty if there is none."""
        nothing: IntArray = np.zeros(0, np.int64)
        return nothing if self._mix.demands else self._versatility.by_clique(view) * _MILLE

    def _gains(
        self, view: Arrays, request: Request, rows: Rows, prices: IntArray, cliques: IntArray
    ) -> Parts:
        """Return the score before it is rounded: parts times 1,000,000."""
        left, cpu = free_after(view, request, rows), view.free_cpu[rows] - request.cpu
        gains = self._change(view, rows, left, cpu)
        gains += self.settled * self.fragmentation.total * request.milli
        gains -= self._penalty(view, request, rows, left, cpu)
        if len(prices):
            gains -= prices[view.node_kind[rows]] * request.milli
        if len(cliques):
            sizes = self._versatility.cliques(view)[rows]
            gains -= cliques[sizes] * request.milli
        return gains

    def _change(self, view: Arrays, rows: Rows, left: IntArray, cpu: IntArray) -> Parts:
        """Return the change of the value with this much left.

        For a few rows one pass gives the values before and after.
        """
        if isinstance(rows, slice):
            return self._value(view, rows, left, cpu) - self._values(view)
        free = np.concatenate([view.free_milli.T[:, rows], left], axis=1)
        both = np.concatenate([view.free_cpu[rows], cpu])
        values = self._value(view, np.concatenate([rows, rows]), free, both)
        return values[len(rows) :] - values[: len(rows)]

    def _values(self, view: Arrays) -> Parts:
        def compute(rows: Rows) -> Parts:
            return self._value(view, rows, view.free_milli.T[:, rows], view.free_cpu[rows])

        return self._before.of("now", view.version, compute)

    def _value(self, view: Arrays, rows: Rows, free: IntArray, cpu: IntArray) -> Parts:
        """Return U and the useful capacity (free less F), weighted: parts times 1,000,000."""
        worth = self.worth[free].sum(axis=0)
        value: Parts = (worth - self.stranding.of(worth, cpu)) * (self.in_use * WHOLE_GPU)
        if self.settled:
            measure, idle = self.fragmentation, (free == WHOLE_GPU).sum(axis=0)
            measure.extend_tables(view.kinds.values, view.shape[1])
            value += self.settled * measure.useful_with(view, rows, free=free, idle=idle, cpu=cpu)
        return value

    def _penalty(
        self, view: Arrays, request: Request, rows: Rows, left: IntArray, cpu: IntArray
    ) -> Parts:
        """Return the penalty of opening a GPU and of pods without GPUs, weighted as `_value`."""
        weight = self.in_use * WHOLE_GPU
        if request.share is not None:
            opened = (left == WHOLE_GPU).sum(axis=0) < view.idle_gpus[rows]
            penalty: Parts = opened * (_parts(OPENING) * weight)
            return penalty
        if request.milli:
            return np.zeros(len(cpu), np.int64)
        cpu_penalty: Parts = (view.free_gpu_milli[rows] > 0) * _parts(NEXT_TO_FREE_GPUS)
        cpu_penalty += _parts(CPU_LEFT) * cpu // LARGEST_CPU_MILLI
        return cpu_penalty * ((_MILLE - self.settled) * WHOLE_GPU)

    @property
    def in_use(self) -> int:
        """The weight of U in per mille."""
        return _MILLE - round(LESS_WHEN_SETTLED * self.settled)


def free_after(view: Arrays, request: Request, rows: Rows) -> IntArray:
    """Return the free milli-GPU by device and node after placement of the request.

    A share takes from the fullest GPU with room, whole GPUs are the first that fit; devices.py
    makes the real choice. The result is meaningless if the request does not fit.
    """
    free = view.free_milli.T[:, rows]
    if not request.milli:
        return free
    takes = _taking(view, request, rows, free)
    milli = request.share.milli if request.share else WHOLE_GPU
    left: IntArray = np.maximum(free - takes * np.int32(milli), 0)
    return left


def _taking(view: Arrays, request: Request, rows: Rows, free: IntArray) -> BoolArray:
    """Return the devices that the request takes."""
    mixed = (view.node_kind[rows] == MIXED).any()
    fits = accepted(view, request, rows) if mixed else np.ones(free.shape, np.bool_)
    if request.share is None:
        return first_idle(fits, free, request.gpus or 0)
    fits &= fits_share(view, request.share, rows)
    memory = view.free_memory.T[:, rows]
    # as Policy.share_column: of GPUs with as much capacity free, the one with the least memory
    fullest = np.where(fits, (free.astype(np.int64) << 32) + memory, _LAST).argmin(axis=0)
    taken: BoolArray = np.arange(len(free))[:, None] == fullest
    return taken


def _parts(gpus: float) -> int:
    return round(gpus * UNIT)
