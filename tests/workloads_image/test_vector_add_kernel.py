# SPDX-License-Identifier: Apache-2.0
"""The Triton vector addition; interpreted where there is no GPU."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_kernels.errors import Unsupported
from gpupack_kernels.operators.vector_add.ops import vector_add
from gpupack_workloads.reference.vector_add import compare

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])


def values(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 3, 4096, 65537, 200001])
def test_every_element_is_the_sum_rounded_once(count, dtype):
    x, y = values(count, dtype, 1), values(count, dtype, 2)
    x64, y64, z64 = (v.double().cpu().numpy() for v in (x, y, vector_add(x, y)))
    agreement = compare(x=x64, y=y64, z=z64, dtype=str(dtype).removeprefix("torch."))
    assert agreement.holds, agreement


def test_matrices_in_any_order_are_added():
    x = values(60, torch.float32, 1).reshape(6, 10)
    y = values(60, torch.float32, 2).reshape(10, 6).T
    torch.testing.assert_close(vector_add(x, y), x + y)


def test_nothing_and_nothing_is_nothing():
    nothing = torch.zeros(0, device=DEVICE)
    assert vector_add(nothing, nothing).numel() == 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.zeros(4), "cannot add shapes"),
        (torch.zeros(3, dtype=torch.float64), "both must be one of"),
        (torch.zeros(3, device="meta"), "are on"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(y, message):
    with pytest.raises(Unsupported, match=message):
        vector_add(torch.zeros(3), y)
