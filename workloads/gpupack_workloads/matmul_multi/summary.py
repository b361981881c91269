# SPDX-License-Identifier: Apache-2.0
"""Makes the result from the measurements."""

from collections.abc import Sequence

from gpupack_workloads.devices import describe
from gpupack_workloads.distributed.rank import Rank
from gpupack_workloads.matmul_multi.operands import Operands
from gpupack_workloads.matmul_multi.timed_turns import ALONE, Timed, fastest
from gpupack_workloads.reference.agreement import Agreement
from gpupack_workloads.results import Result, Scalar, headline


def summarise(
    heat: Sequence[Timed],
    final: Sequence[Timed],
    agreement: Agreement,
    *,
    operands: Operands,
    rank: Rank,
) -> Result:
    """Return the fastest of each layout, and all of them."""
    flops = 2 * operands.size**3
    best, single = fastest(final), fastest(final, ALONE)
    metrics: dict[str, Scalar] = {
        **speeds(best, single, flops),
        "size": operands.size,
        "dtype": str(operands.dtype).removeprefix("torch."),
        "ranks": rank.ranks,
        "backend": rank.backend,
        **ways(best, single),
        "error": agreement.error,
        "error_bound": agreement.bound,
        **speedups(final, single),
    }
    return Result(
        workload="matmul-multi",
        headline=headline(
            f"{single.seconds / best.seconds:.2f} x one GPU on {rank.ranks}",
            simulated=rank.device.simulated,
        ),
        verified=True,
        simulated=rank.device.simulated,
        metrics=metrics | describe(rank.device),
        rows=[
            row(one, single.seconds, flops) | {"round": name}
            for name, timed in (("final", final), ("heat", heat))
            for one in timed
        ],
    )


def speeds(best: Timed, single: Timed, flops: int) -> dict[str, Scalar]:
    """Return the fastest way's figures and one GPU's."""
    return {
        "speedup_ratio": round(single.seconds / best.seconds, 4),
        "tflops": round(flops / best.seconds / 1e12, 4),
        "one_gpu_tflops": round(flops / single.seconds / 1e12, 4),
        "seconds": best.seconds,
        "one_gpu_seconds": single.seconds,
    }


def ways(best: Timed, single: Timed) -> dict[str, Scalar]:
    """Return how the fastest computed it, and one GPU."""
    return {
        "layout": best.candidate.layout,
        "exchange": best.candidate.exchange,
        "chunks": best.candidate.cuts.chunks,
        "width": best.candidate.cuts.width,
        "one_gpu_width": single.candidate.cuts.width,
    }


def speedups(final: Sequence[Timed], single: Timed) -> dict[str, Scalar]:
    """Return how much faster than one GPU each layout is."""
    return {
        f"{name.replace('-', '_')}_speedup_ratio": round(
            single.seconds / fastest(final, name).seconds, 4
        )
        for name in sorted({one.candidate.layout for one in final} - {ALONE})
    }


def row(timed: Timed, single: float, flops: int) -> dict[str, Scalar]:
    """Return a row of the result's table."""
    return {
        "layout": timed.candidate.layout,
        "exchange": timed.candidate.exchange,
        "chunks": timed.candidate.cuts.chunks,
        "width": timed.candidate.cuts.width,
        "seconds": timed.seconds,
        "tflops": round(flops / timed.seconds / 1e12, 3),
        "speedup_ratio": round(single / timed.seconds, 4),
    }
