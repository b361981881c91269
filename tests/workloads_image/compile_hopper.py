# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels in Gluon for a Hopper GPU that need not be here, and says what they take.

Writes a list of what was found, in JSON. A process of its own: see compile_for.py.
"""

import json
import sys

import triton
from compile_for import stack_of
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from gpupack_kernels.operators.attention.hopper.backward import attention_backward_kernel
from gpupack_kernels.operators.attention.hopper.forward import attention_forward_kernel
from gpupack_kernels.operators.gemm.hopper.kernel import gemm_hopper_kernel
from gpupack_kernels.operators.gemm.hopper.launch import GROUP_WARPS, REGISTERS
from gpupack_kernels.operators.gemm.tuning import H200, HOPPER_TILES, SPLIT_TILES, SUM_TILES

TYPES = {"bf16": gl.bfloat16, "fp32": gl.float32}
HALF_M = 64
DIMENSION = 128
WIDE, NARROW = HOPPER_TILES[H200, 2]


def main():
    json.dump([found(*case) for case in (*gemms(), *attentions())], sys.stdout)


def gemms():
    """What a training step needs: bf16, gradients of one and of several, in 32 bits, cut."""
    yield gemm(WIDE, "bf16", turned=(False, True))
    yield gemm(NARROW, "bf16", others=2)
    yield gemm(SUM_TILES[0], "fp32", turned=(True, False))
    yield gemm(SPLIT_TILES, "fp32", turned=(True, False), splits=2)


def gemm(tiles, result, *, turned=(False, False), others=0, splits=1):
    a = by_map("bf16", [tiles.k, HALF_M] if turned[0] else [HALF_M, tiles.k])
    b = by_map("bf16", [tiles.n, tiles.k] if turned[1] else [tiles.k, tiles.n])
    c = by_map(result, [HALF_M, tiles.n // tiles.parts])
    types = {"a_map": a, "b_map": b, "c_map": c}
    types |= dict.fromkeys(("stride_cm", "M", "N", "K", "second_K", "third_K"), "i32")
    constants = dict.fromkeys(("c_ptr", "arrived_ptr", "first_tile", "part_rows"))
    for number, name in enumerate(("second", "third")):
        maps = {f"{name}_a_map": a, f"{name}_b_map": b}
        if number < others:
            types |= maps
        else:
            constants |= dict.fromkeys(maps)
    constants |= {
        "GROUP_M": tiles.group_m, "STAGES": tiles.stages, "PARTS": tiles.parts,
        "A_TURNED": turned[0], "B_TURNED": turned[1], "SPLITS": splits,
    }  # fmt: skip
    options = {"num_warps": GROUP_WARPS, "maxnreg": REGISTERS, "launch_pdl": True}
    return gemm_hopper_kernel, types, constants, options


def attentions():
    """Causal, at the width of most heads."""
    of_keys, of_rows = heads(128), heads(64)
    integers = ("rows", "keys", "heads", "kv_heads", "heads_per_kv", "owners", "owners_together")
    types = {"q_desc": of_rows, "o_desc": of_rows, "do_desc": of_rows, "k_desc": of_keys}
    types |= {"v_desc": of_keys, "dk_desc": of_keys, "dv_desc": of_keys, "lse_ptr": "*fp32"}
    types |= dict.fromkeys(integers, "i32") | {"scale": "fp32", "scale_log2": "fp32"}
    sums = f"tensordesc<fp32[64],{gl.NVMMASharedLayout(0, 32, rank=1)!r}>"
    types |= {"lse_desc": sums, "delta_desc": sums, "dq_desc": heads(64, "fp32")}
    forward = {"CAUSAL": True, "STAGES": 2}
    backward = {"CAUSAL": True, "RAGGED": False, "STAGES": 3, "STAGGER": 0}
    yield attention_forward_kernel, types, forward, {"num_warps": 4}
    yield attention_backward_kernel, types, backward, {"num_warps": 8}


def heads(rows, kind="bf16"):
    return by_map(kind, [1, 1, rows, DIMENSION])


def by_map(kind, shape):
    """A tensor map's type, as Triton names it."""
    layout = gl.NVMMASharedLayout.get_default_for(shape, TYPES[kind])
    return f"tensordesc<{kind}{shape},{layout!r}>"


def found(kernel, types, constants, options):
    names = kernel.arg_names
    source = GluonASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return {"shared_kib": compiled.metadata.shared / 1024, "stack": stack_of(compiled)}


if __name__ == "__main__":
    main()
