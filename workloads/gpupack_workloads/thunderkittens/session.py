# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels, checks them, times them against Gluon, Triton and libraries, and reports.

Before anything is timed, ragged products and sequences are compared in every element with the
reference, and memory around the results must be untouched. Of what is timed, the first and the last
result of each of our kernels are compared, whatever language it is in.

All that compute one problem take turns, since tensor cores draw all the power that the GPU may.

Without a GPU our Triton kernels compute in the interpreter, and those of ThunderKittens are
compiled, where there are a compiler and TK_ROOT, for a GPU that is not there.
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend

from gpupack_workloads.attention.checks import CheckSpec, Inputs, head_of, random_inputs
from gpupack_workloads.attention.rivals import torch_attention
from gpupack_workloads.attention.session import MASKS
from gpupack_workloads.cuda_compiler import COMPILERS, Compiler, choose_compiler
from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import BadArgument, NoSuchDevice, WrongResult
from gpupack_workloads.memory import require_memory
from gpupack_workloads.reference.agreement import Agreement, closest
from gpupack_workloads.reference.attention import compare as compare_head
from gpupack_workloads.reference.attention import expected
from gpupack_workloads.reference.freivalds import random_signs
from gpupack_workloads.reference.gemm import ROW_STEP, compare, in_64_bits
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.thunderkittens import ThunderKittensOptions
from gpupack_workloads.thunderkittens.implementations import (
    Forward,
    Product,
    TileAttention,
    TileGemm,
    cold_seconds,
    gluon_attention,
    gluon_gemm,
    triton_attention,
    triton_gemm,
)
from gpupack_workloads.thunderkittens.kernels import (
    ARCH,
    HOPPER,
    SOURCES,
    Compiled,
    Source,
    compiled,
    root_of,
)
from gpupack_workloads.thunderkittens.programs import (
    ATTENTION,
    GEMM,
    GLUON,
    OURS,
    PROGRAMS,
    TRITON,
    lines_of,
)
from gpupack_workloads.timing import LatestResult, seconds_in_turns

logger = logging.getLogger(__name__)

WORKLOAD = "thunderkittens"
CUBLAS, CUDNN = "cublas", "cudnn"
LIBRARIES = (CUBLAS, CUDNN)
DIMENSION = 128

SIZES, SIZE_WITHOUT = (4096, 8192), 128
LENGTHS, LENGTH_WITHOUT = (4096, 16384), 96
# Positions of all sequences of a batch that is timed, if one has not more; and how many there are
# at most: each head of each is checked by itself.
POSITIONS, MAX_SEQUENCES = 16384, 32
HEADS, HEADS_WITHOUT = 16, 2
# M, N and K: less than a tile; a rest in M, in N, in both; one step and many.
RAGGED = ((1, 64, 64), (65, 192, 128), (129, 256, 64), (200, 320, 576), (300, 1088, 1024))
# Heads, key heads, rows and keys of a batch of two.
RAGGED_HEADS = ((2, 2, 1, 1), (4, 2, 300, 300), (3, 1, 70, 333), (2, 1, 512, 512))
# Elements on each side of a result that must stay untouched; a multiple of 16 bytes.
MARGIN = 4096
ROUNDS = 9
# Work of one turn: long enough that launches and events do not count, shorter than the heating.
TURN_OPERATIONS = 6e12
MAX_REPEATS = 50
# Operands, and a result of each that takes turns; what a check holds of a row of scores.
PRODUCT_TENSORS, ATTENTION_TENSORS = 6, 7
CHECK_BYTES_PER_KEY = 12 * 2048 * 8


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Findings of one problem.

    Attributes:
        name: name of the problem, in metrics.
        operations: multiplications and additions, masked ones left out.
        seconds: seconds of each that computed it, in the same turns.
        agreement: agreement of our kernels' results, the one that came closest to its bound.
    """

    name: str
    operations: float
    seconds: Mapping[str, float]
    agreement: Agreement

    def tflops(self, by: str) -> float:
        """Return the speed of one."""
        return round(self.operations / self.seconds[by] / 1e12, 2)

    def ratio(self, by: str) -> float:
        """Return the speed in tile C++ over that of one."""
        return round(self.seconds[by] / self.seconds[OURS], 4)

    def rows(self) -> list[dict[str, Scalar]]:
        """Return a row of the result's table for each."""
        return [
            {
                "problem": self.name,
                "by": by,
                "tflops": self.tflops(by),
                "thunderkittens_ratio": self.ratio(by),
                "seconds": seconds,
            }
            for by, seconds in self.seconds.items()
        ]


def run(options: ThunderKittensOptions) -> Result:
    """Compile, check and time the kernels.

    Raises:
        BadArgument: there is no ThunderKittens or compiler, or a source does not compile.
        NoSuchDevice: the GPU is not a Hopper.
        OutOfMemory: the matrices or sequences do not fit.
        WrongResult: something is wrong; nothing about speed is reported then.
    """
    device = choose_device(require_gpu=options.require_gpu)
    with memory_errors("a product or attention"):
        return simulate(device, options) if device.simulated else measure(device, options)


def measure(device: Device, options: ThunderKittensOptions) -> Result:
    """Compile, check and time the kernels on a Hopper GPU."""
    capability = torch.cuda.get_device_capability(device.torch)
    if capability != HOPPER:
        raise NoSuchDevice(
            f"the kernels are for {ARCH}, which is Hopper alone: {device.name} has compute"
            f" capability {capability[0]}.{capability[1]}"
        )
    root = root_of(os.environ)
    compiler = choose_compiler(options.compiler)
    sizes = (options.size,) if options.size else SIZES
    lengths = (options.length,) if options.length else LENGTHS
    heads = options.heads or HEADS
    check_memory(device, max(sizes), max(lengths), heads)
    codes = {source.name: by_compilers(source, compiler, root) for source in SOURCES}
    # Makes the context that the code is loaded into.
    torch.cuda.synchronize()
    gemm = TileGemm(codes[GEMM][compiler.name])
    attention = TileAttention(codes[ATTENTION][compiler.name])
    check_ragged_products(gemm, device, seed=options.seed)
    check_ragged_heads(attention, device, seed=options.seed)
    logger.info("ragged products and sequences: verified")

    products: dict[str, Product] = {OURS: gemm, GLUON: gluon_gemm(), TRITON: triton_gemm()}
    forwards: dict[str, Forward] = {
        OURS: attention,
        GLUON: gluon_attention(),
        TRITON: triton_attention(),
    }
    code = code_rows(codes, compiler, cold(products, forwards, device, seed=options.seed))
    timed = [
        *(timed_product(products, size, device, seed=options.seed) for size in sizes),
        *(
            timed_attention(forwards, (heads, length), mask, device, seed=options.seed)
            for length, mask in itertools.product(lengths, MASKS)
        ),
    ]
    return summarise(device, timed, code, compiler)


def check_memory(device: Device, size: int, length: int, heads: int) -> None:
    """Refuse before any work what does not fit."""
    # NumPy has B in 64 bits, the reference, and two to bound the error; the GPU has B so, too.
    product = size * size * (2 * PRODUCT_TENSORS + 8)
    positions = max(length, POSITIONS)
    attention = 2 * ATTENTION_TENSORS * positions * heads * DIMENSION
    require_memory(
        device,
        doing=f"a product of {size} x {size} matrices, and attention of length {length}",
        on_device=max(product, attention + length * CHECK_BYTES_PER_KEY),
        on_host=2 * 8 * size * size,
        smaller="--size, --length or --heads",
    )


def by_compilers(source: Source, chosen: Compiler, root: Path) -> dict[str, Compiled]:
    """Compile a source by the chosen compiler, and by the other one where that can do it, too.

    Raises:
        BadArgument: the chosen one does not compile it.
    """
    found = {chosen.name: compiled(source, chosen, root)}
    for name in COMPILERS:
        try:
            other = choose_compiler(name)
            if other.name not in found:
                found[other.name] = compiled(source, other, root)
        except BadArgument as error:
            logger.info("%s: not by %s as well: %s", source.name, name, error)
    for name, code in found.items():
        logger.info("%s: compiled by %s in %.2f s", source.name, name, code.seconds)
    return found


def cold(
    products: Mapping[str, Product], forwards: Mapping[str, Forward], device: Device, *, seed: int
) -> dict[tuple[str, str], float]:
    """Return how long Triton and Gluon compile each kernel: attention with both masks."""
    a, b = operands((SIZES[0],) * 3, torch.bfloat16, device, seed=seed)
    inputs = sequences((2, 1, SIZES[0], SIZES[0]), 1, torch.bfloat16, device, seed=seed)
    q, k, v = (x.detach() for x in inputs.qkv)
    calls: dict[tuple[str, str, str], Callable[[], object]] = {}
    for by in (GLUON, TRITON):
        calls[GEMM, by, ""] = partial(products[by], a, b)
        for mask, causal in MASKS.items():
            calls[ATTENTION, by, mask] = partial(forwards[by], q, k, v, causal=causal)
    found: dict[tuple[str, str], float] = {}
    for (kernel, by, mask), seconds in cold_seconds(calls).items():
        logger.info("%s %s: compiled by %s in %.2f s", kernel, mask, by, seconds)
        found[kernel, by] = found.get((kernel, by), 0.0) + seconds
    return found


def operands(
    shape: tuple[int, int, int], dtype: torch.dtype, device: Device, *, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A[M, K] and B[K, N] of normal numbers; one seed gives one pair per device."""
    m, n, k = shape
    chance = torch.Generator(device.torch).manual_seed(seed)
    a, b = (
        torch.randn(sides, generator=chance, device=device.torch).to(dtype)
        for sides in ((m, k), (k, n))
    )
    return a, b


def sequences(
    shape: tuple[int, int, int, int], batch: int, dtype: torch.dtype, device: Device, *, seed: int
) -> Inputs:
    """Return Q, K and V of so many heads, key heads, rows and keys."""
    heads, kv_heads, rows, keys = shape
    return random_inputs(
        (batch, heads, rows, DIMENSION),
        (batch, kv_heads, keys, DIMENSION),
        device=device.torch,
        dtype=dtype,
        seed=seed,
    )


def check_ragged_products(gemm: TileGemm, device: Device, *, seed: int) -> None:
    """Check every element of products that fill no tile, and the memory around them.

    Raises:
        WrongResult: an element is wrong, or memory around C has changed.
    """
    for shape in RAGGED:
        a, b = operands(shape, torch.bfloat16, device, seed=seed)
        with untouched_around((shape[0], shape[1]), device, f"gemm {shape}") as c:
            gemm.into(a, b, c)
        products_agree({OURS: c}, a, b, f"gemm {shape}", step=1)


def check_ragged_heads(attention: TileAttention, device: Device, *, seed: int) -> None:
    """Check every element of attention that fills no tile, shared heads, and the memory around.

    Raises:
        WrongResult: an element is wrong, or memory around O has changed.
    """
    for shape in RAGGED_HEADS:
        inputs = sequences(shape, 2, torch.bfloat16, device, seed=seed)
        q, k, v = (x.detach() for x in inputs.qkv)
        for mask, causal in MASKS.items():
            if causal and q.shape[2] != k.shape[2]:
                continue
            name = f"attention {mask} {shape}"
            with untouched_around(tuple(q.shape), device, name) as o:
                attention.into((q, k, v), o, causal=causal)
            outputs_agree({OURS: o}, inputs, CheckSpec(causal=causal), name)


@contextlib.contextmanager
def untouched_around(shape: tuple[int, ...], device: Device, name: str) -> Iterator[torch.Tensor]:
    """Give a tensor of NaNs to write to, in memory that must not change around it.

    Raises:
        WrongResult: it has changed.
    """
    inside = torch.Size(shape).numel()
    around = torch.full(
        (2 * MARGIN + inside,), torch.nan, device=device.torch, dtype=torch.bfloat16
    )
    before, result, after = around.split((MARGIN, inside, MARGIN))
    yield result.view(shape)
    torch.cuda.synchronize()
    if not (before.isnan().all() and after.isnan().all()):
        raise WrongResult(f"{name}: memory around the result has changed")


def products_agree(
    results: Mapping[str, torch.Tensor],
    a: torch.Tensor,
    b: torch.Tensor,
    name: str,
    *,
    step: int = ROW_STEP - 1,
) -> Agreement:
    """Compare every so many rows of products with NumPy's.

    Raises:
        WrongResult: an element is further off than rounding explains.
    """
    rows = range(0, a.shape[0], step)
    a64, b64 = in_64_bits(a[rows]), in_64_bits(b)
    found = {
        by: compare(a=a64, b=b64, c=in_64_bits(c[rows]), dtype=str(c.dtype).removeprefix("torch."))
        for by, c in results.items()
    }
    return judged(found, name)


def outputs_agree(
    results: Mapping[str, torch.Tensor], inputs: Inputs, question: CheckSpec, name: str
) -> Agreement:
    """Compare O of all heads with the reference: elements, or projected on signs.

    Raises:
        WrongResult: an element is further off than rounding explains.
    """
    batch, heads = inputs.q.shape[:2]
    group = heads // inputs.k.shape[1]
    found: dict[str, list[Agreement]] = {by: [] for by in results}
    for entry, number in itertools.product(range(batch), range(heads)):
        head = head_of(inputs, question, place=(entry, number, number // group))
        wanted = expected(head)
        for by, o in results.items():
            found[by].append(compare_head(o[entry, number], head, wanted.o, wanted.o_bound))
    return judged({by: closest(each) for by, each in found.items()}, name)


def judged(found: Mapping[str, Agreement], name: str) -> Agreement:
    """Return what came closest to its bound.

    Raises:
        WrongResult: it is beyond.
    """
    for by, agreement in found.items():
        if not agreement.holds:
            raise WrongResult(
                f"{name} by {by} is wrong by {agreement.error:.3e} where rounding explains"
                f" {agreement.bound:.3e}"
            )
    return closest(list(found.values()))


def timed_product(
    products: Mapping[str, Product], size: int, device: Device, *, seed: int
) -> Timed:
    """Check products of one size, time them in turns with cuBLAS, and check what was left."""
    name = f"{GEMM}_{size}"
    a, b = operands((size,) * 3, torch.bfloat16, device, seed=seed)
    works = {by: LatestResult(partial(product, a, b)) for by, product in products.items()}
    first = products_agree(results_of(works), a, b, name)
    for work in works.values():
        work.spoil()
    rival = LatestResult(partial(torch.matmul, a, b))
    operations = 2 * size**3
    seconds = turns(works | {CUBLAS: rival}, operations, device)
    last = products_agree(results_of(works), a, b, f"{name}, as it was timed,")
    logger.info("%s: %s", name, seconds)
    return Timed(
        name=name, operations=operations, seconds=seconds, agreement=closest([first, last])
    )


def timed_attention(
    forwards: Mapping[str, Forward],
    shape: tuple[int, int],
    mask: str,
    device: Device,
    *,
    seed: int,
) -> Timed:
    """Check attention of so many heads and positions, time it in turns with cuDNN, check again."""
    heads, length = shape
    causal = MASKS[mask]
    name = f"{mask}_{length}"
    batch = batch_of(length)
    inputs = sequences((heads, heads, length, length), batch, torch.bfloat16, device, seed=seed)
    q, k, v = (x.detach() for x in inputs.qkv)
    works = {
        by: LatestResult(partial(forward, q, k, v, causal=causal))
        for by, forward in forwards.items()
    }
    # Two right results of a row of weights differ in rounding alone, and signs show any other.
    signs = random_signs(DIMENSION, torch.Generator(device.torch).manual_seed(seed))[:, None]
    question = CheckSpec(causal=causal, signs=signs)
    first = outputs_agree(results_of(works), inputs, question, name)
    for work in works.values():
        work.spoil()
    rival = LatestResult(
        partial(torch_attention, q, k, v, causal=causal, backend=SDPBackend.CUDNN_ATTENTION)
    )
    operations = 4 * batch * heads * length**2 * DIMENSION * (0.5 if causal else 1.0)
    seconds = turns(works | {CUDNN: rival}, operations, device)
    last = outputs_agree(results_of(works), inputs, question, f"{name}, as it was timed,")
    logger.info("%s: %s", name, seconds)
    return Timed(
        name=name, operations=operations, seconds=seconds, agreement=closest([first, last])
    )


def batch_of(length: int) -> int:
    """Return of how many sequences of a length a batch that is timed is."""
    return min(MAX_SEQUENCES, max(1, POSITIONS // length))


def results_of(works: Mapping[str, LatestResult]) -> dict[str, torch.Tensor]:
    """Return what each has left."""
    return {by: work.result for by, work in works.items()}


def turns(works: Mapping[str, LatestResult], operations: float, device: Device) -> dict[str, float]:
    """Return the seconds of each, in turns of about as much work."""
    repeats = max(1, min(MAX_REPEATS, round(TURN_OPERATIONS / operations)))
    return seconds_in_turns(
        works, device=device.torch, repeats=repeats, rounds=ROUNDS, warm_up=min(repeats, 3)
    )


def code_rows(
    codes: Mapping[str, Mapping[str, Compiled]],
    compiler: Compiler,
    cold_by: Mapping[tuple[str, str], float],
) -> list[dict[str, Scalar]]:
    """Return a row of the result's table for each program: its lines, and how long it compiles."""
    rows: list[dict[str, Scalar]] = []
    for (kernel, by), program in PROGRAMS.items():
        row: dict[str, Scalar] = {"kernel": kernel, "by": by, "lines": lines_of(program)}
        if by == OURS:
            found = codes.get(kernel, {})
            if compiler.name in found:
                row["compile_seconds"] = round(found[compiler.name].seconds, 3)
            for name, code in found.items():
                row[f"{name.split()[0].lower()}_seconds"] = round(code.seconds, 3)
        elif (kernel, by) in cold_by:
            row["compile_seconds"] = round(cold_by[kernel, by], 3)
        rows.append(row)
    return rows


def summarise(
    device: Device, timed: list[Timed], code: list[dict[str, Scalar]], compiler: Compiler
) -> Result:
    """Make the result: ratios first, then speeds, then what the programs are like."""
    metrics: dict[str, Scalar] = {}
    for each in timed:
        for by in each.seconds:
            if by != OURS:
                metrics[f"{each.name}_{by}_ratio"] = each.ratio(by)
    for each in timed:
        for by in each.seconds:
            metrics[f"{each.name}_{by}_tflops"] = each.tflops(by)
    metrics |= of_code(code)
    worst = closest([each.agreement for each in timed])
    metrics |= {
        "error": worst.error,
        "error_bound": worst.bound,
        "compiler": compiler.name,
        "architecture": ARCH,
    }
    best = {
        kernel: max(each.tflops(OURS) for each in timed if (GEMM in each.name) == (kernel == GEMM))
        for kernel in (GEMM, ATTENTION)
    }
    return Result(
        workload=WORKLOAD,
        headline=f"{best[GEMM]:.1f} TFLOP/s GEMM, {best[ATTENTION]:.1f} attention",
        verified=True,
        simulated=False,
        metrics=metrics | describe(device),
        rows=[*itertools.chain.from_iterable(each.rows() for each in timed), *code],
    )


def of_code(rows: Iterable[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the metrics of the programs."""
    return {
        f"{row['kernel']}_{row['by']}_{what}": row[what]
        for row in rows
        for what in ("lines", "compile_seconds")
        if what in row
    }


def simulate(device: Device, options: ThunderKittensOptions) -> Result:
    """Check Triton's kernels in the interpreter, and compile ThunderKittens' if that can be."""
    size = options.size or SIZE_WITHOUT
    length = options.length or LENGTH_WITHOUT
    heads = options.heads or HEADS_WITHOUT
    check_memory(device, size, length, heads)
    codes: dict[str, dict[str, Compiled]] = {}
    left_out = "not on this machine, which has no GPU"
    try:
        compiler = choose_compiler(options.compiler)
        root = root_of(os.environ)
    except BadArgument as error:
        if options.compiler is not None:
            raise
        left_out = str(error)
        logger.warning("the kernels in tile C++ are not compiled: %s", error)
        names = "none"
    else:
        codes = {source.name: by_compilers(source, compiler, root) for source in SOURCES}
        names = compiler.name
    a, b = operands((size,) * 3, torch.float32, device, seed=options.seed)
    found = [products_agree({TRITON: triton_gemm()(a, b)}, a, b, f"{GEMM}_{size}")]
    inputs = sequences((heads, heads, length, length), 1, torch.float32, device, seed=options.seed)
    q, k, v = (x.detach() for x in inputs.qkv)
    forward = triton_attention()
    for mask, causal in MASKS.items():
        o = forward(q, k, v, causal=causal)
        question = CheckSpec(causal=causal)
        found.append(outputs_agree({TRITON: o}, inputs, question, f"{mask}_{length}"))
    worst = closest(found)
    rows: list[dict[str, Scalar]] = [
        {"kernel": kernel, "by": by, "lines": lines_of(program)}
        for (kernel, by), program in PROGRAMS.items()
    ]
    for row in rows:
        if row["by"] == OURS:
            row |= {"compiled": row["kernel"] in codes, "left_out": left_out}
    said = f"{len(codes)} source(s) compiled for {ARCH}" if codes else "none compiled"
    metrics: dict[str, Scalar] = {
        "compiled": len(codes),
        "compiler": names,
        "architecture": ARCH,
        "error": worst.error,
        "error_bound": worst.bound,
        "size": size,
        "length": length,
    }
    return Result(
        workload=WORKLOAD,
        headline=headline(said, simulated=True),
        verified=True,
        simulated=True,
        metrics=metrics | of_code(rows) | describe(device),
        rows=rows,
    )
