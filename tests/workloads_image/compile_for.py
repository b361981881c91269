# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels of attention for a GPU that need not be here, and says what they take of it.

Reads a list of cases in JSON, writes a list of what was found. A process of its own: where Triton
interprets kernels it cannot compile them.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
SINGLES = ("lse_ptr", "delta_ptr", "parts_ptr")
INTEGERS = ("offsets_q_ptr", "offsets_k_ptr", "table_ptr", "lengths_ptr")
# Of a view of numbers that the host has sent: neither begins at a multiple of 16 bytes.
ODD = ("table_ptr", "lengths_ptr", "stride_table", "stride_length")


def main():
    json.dump([found(case) for case in json.load(sys.stdin)], sys.stdout)


def found(case):
    module = importlib.import_module(f"gpupack_kernels.operators.{case['module']}.kernel")
    kernel = getattr(module, case["kernel"])
    names, constants = kernel.arg_names, case["constants"]
    constants = {name: constants[name] for name in names if name in constants}
    source = ASTSource(
        fn=kernel,
        signature={name: kind_of(name, constants, case) for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (place,): [["tt.divisibility", 16]]
            for place, name in enumerate(names)
            if name not in ODD and (name.endswith("_ptr") or name.startswith("stride"))
        },
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", case["capability"], 32), options=case["options"]
    )
    return {"shared_kib": compiled.metadata.shared / 1024, "stack": stack_of(compiled)}


def kind_of(name, constants, case):
    if name in constants:
        return "constexpr"
    if name in SINGLES or name in case.get("singles", ()):
        return "*fp32"
    if name in INTEGERS:
        return "*i64" if name in ODD else "*i32"
    if name.endswith("_ptr"):
        return f"*{case['dtype']}"
    return "fp32" if name.startswith("scale") else "i32"


def stack_of(compiled):
    """Return how many bytes a thread spills to its stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        listing = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return int(re.search(r"STACK:(\d+)", listing.stdout)[1])


if __name__ == "__main__":
    main()
