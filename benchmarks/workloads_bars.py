# SPDX-License-Identifier: Apache-2.0
"""Performance targets of the workloads, and the figures of their results that are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]
Pick = Callable[[Result], float]


@dataclass(frozen=True)
class Bar:
    """One performance target.

    Attributes:
        what: description.
        run: name of the run whose report is read.
        gpus: number of GPUs of the run.
        target: the target in words.
        threshold: the target; it is compared with the ratio, or with the figure if there is none.
        most: whether the threshold is a maximum, not a minimum.
        ratio: picks the ratio to the rival that `target` names, from the same run.
        figure: picks the speed or time.
        unit: unit of the figure.
        digits: decimal places of the figure.
    """

    what: str
    run: str
    gpus: int
    target: str
    threshold: float
    figure: Pick
    unit: str
    ratio: Pick | None = None
    most: bool = False
    digits: int = 0

    def holds(self, judged: float) -> bool:
        """Return whether the target is met."""
        return judged <= self.threshold if self.most else judged >= self.threshold


def metric(name: str) -> Pick:
    """Pick one of the metrics."""
    return lambda result: float(result["metrics"][name])


def least(column: str, **where: Any) -> Pick:
    """Pick the smallest figure of a column, among the rows that match `where`.

    Each condition is a value, or a function of the value that returns a bool.
    """
    return lambda result: min(_column(result, column, where))


def most(column: str, **where: Any) -> Pick:
    """Pick the largest figure of a column, among the rows that match `where`."""
    return lambda result: max(_column(result, column, where))


def _column(result: Result, column: str, where: dict[str, Any]) -> list[float]:
    """Return a column's figures.

    Raises:
        ValueError: no row matches.
    """
    found = [
        float(row[column])
        for row in result.get("rows", [])
        if column in row and all(_agrees(row.get(name), value) for name, value in where.items())
    ]
    if not found:
        raise ValueError(f"no row has {column} where {where}")
    return found


def _agrees(value: Any, wanted: Any) -> bool:
    return bool(wanted(value)) if callable(wanted) else value == wanted


def ragged(rows: int) -> bool:
    """Return whether a number of rows is no multiple of any tile's."""
    return rows % 16 != 0


def softmax(dtype: str, way: str) -> tuple[Bar, Bar]:
    """Return the targets of one pass, against a copy and against torch; the worst row counts."""
    figure = least(f"{way}_gb_per_s", dtype=dtype)
    what = f"softmax {way}, {dtype}, rows of 1k to 32k"
    copy, torch = (least(f"{way}_{rival}_ratio", dtype=dtype) for rival in ("copy", "torch"))
    return (
        Bar(what, "softmax", 1, "0.95 of a copy", 0.95, figure, "GB/s", ratio=copy),
        Bar(what, "softmax", 1, "1.0 of torch", 1.0, figure, "GB/s", ratio=torch),
    )


def gemm(target: float, **shape: int) -> Bar:
    """Return the target of one bf16 product against cuBLAS."""
    where: dict[str, Any] = {"dtype": "bfloat16", **shape}
    return Bar(
        f"gemm bf16, {' x '.join(map(str, shape.values()))}",
        "gemm",
        1,
        f"{target:g} of cuBLAS",
        target,
        least("tflops", **where),
        "TFLOP/s",
        ratio=least("cublas_ratio", **where),
    )


def attention(mask: str, way: str, target: float) -> Bar:
    """Return the target of one pass of attention against cuDNN."""
    where: dict[str, Any] = {"mask": mask, "pass": way}
    return Bar(
        f"attention {way}, {mask}, D = 128, 16k",
        "attention",
        1,
        f"{target} of cuDNN",
        target,
        least("tflops", **where),
        "TFLOP/s",
        ratio=least("cudnn_ratio", **where),
    )


def llm_kernel(kernel: str, way: str) -> Bar:
    """Return the target of one pass of a language model's kernel against torch.compile."""
    return Bar(
        f"{kernel} {way}, bf16",
        "llm-kernels",
        1,
        "1.0 of torch.compile",
        1.0,
        least("ms", kernel=kernel, **{"pass": way}),
        "ms",
        ratio=least("compiled_ratio", kernel=kernel, **{"pass": way}),
        digits=3,
    )


def peer_copy(way: str) -> Bar:
    """Return the target of a kernel's copies between two GPUs, in the slower direction."""
    return Bar(
        f"p2p-cpp, {way} in another GPU's memory, 1 GiB",
        "p2p-cpp",
        2,
        "0.9 of cudaMemcpyPeerAsync",
        0.9,
        metric(f"{way}_gb_per_s"),
        "GB/s",
        ratio=metric(f"{way}_memcpy_ratio"),
    )


def gathered(way: str, rows: int) -> Bar:
    """Return the target of a fused all-gather and product, of so many rows and more.

    The figure is the fewest rows from which on it was faster at every size.
    """
    what = {"copies": "copies during products", "kernel": "one kernel"}[way]
    return Bar(
        f"all-gather and product by {what}, {rows:,} rows and more, slowest",
        "symmetric-memory",
        2,
        "1.0 of NCCL, then cuBLAS",
        1.0,
        metric(f"{way}_pays_from_rows"),
        "rows at least",
        ratio=least(f"{way}_nccl_ratio", part="matmul", rows=lambda found: found >= rows),
    )


def tiles(what: str, problem: str, library: str, target: float) -> Bar:
    """Return the target of a kernel in tile C++ against a library."""
    return Bar(
        f"thunderkittens {what}, bf16",
        "thunderkittens",
        1,
        f"{target} of {library}",
        target,
        metric(f"{problem}_thunderkittens_tflops"),
        "TFLOP/s",
        ratio=metric(f"{problem}_{library.lower()}_ratio"),
    )


BARS: tuple[Bar, ...] = (
    *softmax("float32", "forward"),
    *softmax("float32", "backward"),
    *softmax("bfloat16", "forward"),
    *softmax("bfloat16", "backward"),
    gemm(0.95, m=4096, n=4096, k=4096),
    gemm(0.95, m=8192, n=8192, k=8192),
    Bar(
        "gemm bf16, ragged",
        "gemm",
        1,
        "0.9 of cuBLAS",
        0.9,
        least("tflops", dtype="bfloat16", m=ragged),
        "TFLOP/s",
        ratio=least("cublas_ratio", dtype="bfloat16", m=ragged),
    ),
    attention("full", "forward", 1.0),
    attention("causal", "forward", 0.85),
    attention("full", "backward", 0.8),
    attention("causal", "backward", 0.8),
    tiles("gemm, 8192 x 8192 x 8192", "gemm_8192", "cuBLAS", 0.95),
    tiles("attention forward, full, D = 128, 16k", "full_16384", "cuDNN", 0.85),
    *(
        llm_kernel(kernel, way)
        for kernel in ("rms_norm", "rotary", "swiglu")
        for way in ("forward", "backward")
    ),
    llm_kernel("linear_cross_entropy", "forward"),
    llm_kernel("linear_cross_entropy", "both"),
    Bar(
        "transformer, a step with all of our kernels, compiled",
        "transformer-all",
        1,
        "1.1 of torch's kernels",
        1.1,
        metric("tokens_per_s"),
        "tokens/s",
        ratio=metric("kernels_ratio"),
    ),
    Bar(
        "all-reduce of 4 GiB by NCCL's defaults, relative to NCCL's other settings",
        "collectives",
        4,
        "0.98 of NCCL's best setting",
        0.98,
        metric("all_reduce_bus_gb_per_s"),
        "GB/s bus",
        ratio=metric("all_reduce_nccl_best_ratio"),
    ),
    Bar(
        "all-reduce of 8 B to 64 KiB by symmetric memory, slowest size",
        "collectives",
        4,
        "15 us at most",
        15,
        metric("small_packets_us"),
        "us",
        most=True,
        digits=1,
    ),
    peer_copy("loads"),
    peer_copy("stores"),
    gathered("copies", 512),
    gathered("kernel", 1024),
    Bar(
        "symmetric-memory, put by a kernel, 1 GiB, both ways at a time",
        "symmetric-memory",
        2,
        "0.9 of NCCL's send and receive",
        0.9,
        metric("triton_put_gb_per_s"),
        "GB/s",
        ratio=metric("triton_put_send_recv_ratio"),
    ),
    Bar(
        "resnet50",
        "resnet50",
        1,
        "6700 images/s",
        6700,
        metric("images_per_s"),
        "images/s",
    ),
    Bar(
        "resnet50 on 4 GPUs",
        "resnet50",
        4,
        "3.88 times one GPU",
        3.88,
        metric("images_per_s"),
        "images/s",
        ratio=metric("scaling_ratio"),
    ),
    Bar(
        "matmul-multi on 4 GPUs, bf16, 32768",
        "matmul-multi",
        4,
        "3.6 times one GPU",
        3.6,
        metric("tflops"),
        "TFLOP/s",
        ratio=metric("speedup_ratio"),
    ),
    Bar(
        "gpu-manager on 2 GPUs, independent tasks",
        "gpu-manager",
        2,
        "1.95 times one GPU",
        1.95,
        metric("tflops"),
        "TFLOP/s",
        ratio=metric("speedup_ratio"),
    ),
    Bar(
        "gpu-manager, a task that does nothing, of many that are queued",
        "gpu-manager",
        1,
        "50 us at most",
        50,
        metric("overhead_us"),
        "us",
        most=True,
        digits=1,
    ),
)
