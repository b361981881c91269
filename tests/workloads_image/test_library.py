# SPDX-License-Identifier: Apache-2.0
"""The kernels as a library."""

import os
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from torch._dynamo import compiled_autograd  # imports Triton
from torch._subclasses.fake_tensor import FakeTensorMode

from gpupack_kernels import (
    attention,
    attention_varlen,
    gemm,
    gemms,
    linear_cross_entropy,
    rms_norm,
    rotary,
    softmax,
    swiglu,
    vector_add,
)
from gpupack_workloads.devices import choose_device
from gpupack_workloads.transformer.operations import gate, normalise, rotate

IMPORT = "from gpupack_kernels import gemm, softmax, vector_add"
USE = "gemm(softmax(vector_add(x, x)), x)"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGETS = torch.tensor([3, 0, 10, 5], device=DEVICE)
PACK = torch.tensor([0, 4, 4, 9], device=DEVICE)
ANGLES = torch.outer(torch.arange(9.0), torch.arange(1.0, 5.0)).to(DEVICE)


def packed_attention(*qkv):
    parts = zip(*(x.transpose(0, 1).split([4, 5], 1) for x in qkv), strict=True)
    attended = [
        torch.nn.functional.scaled_dot_product_attention(*part, is_causal=True) for part in parts
    ]
    return torch.cat(attended, 1).transpose(0, 1)


# By name: the function, the shapes of what it takes, and what torch has for it.
FUNCTIONS = {
    "softmax": (softmax, [(3, 20)], lambda x: torch.softmax(x, -1)),
    "gemm": (gemm, [(5, 6), (6, 7)], torch.matmul),
    "gemms": (
        lambda a, *bs: torch.cat(gemms(a, bs), 1),
        [(5, 6), (6, 7), (6, 1), (6, 3)],
        lambda a, *bs: torch.cat([a @ b for b in bs], 1),
    ),
    "vector_add": (vector_add, [(40,), (40,)], torch.add),
    "attention": (
        lambda q, k, v: attention(q, k, v, causal=True),
        [(1, 2, 9, 64)] * 3,
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "attention_varlen": (
        lambda q, k, v: attention_varlen(q, k, v, PACK, PACK, causal=True),
        [(9, 2, 64)] * 3,
        packed_attention,
    ),
    "rms_norm": (rms_norm, [(3, 20), (20,)], normalise),
    "rotary": (
        lambda q, k: torch.cat(rotary(q, k, ANGLES.cos(), ANGLES.sin()), 1),
        [(2, 3, 9, 8), (2, 1, 9, 8)],
        lambda q, k: torch.cat(rotate(q, k, ANGLES.cos(), ANGLES.sin()), 1),
    ),
    "swiglu": (swiglu, [(4, 30), (4, 30)], gate),
    "linear_cross_entropy": (
        lambda x, weight: linear_cross_entropy(x, weight, TARGETS),
        [(4, 6), (11, 6)],
        lambda x, weight: torch.nn.functional.cross_entropy(x @ weight.T, TARGETS),
    ),
}


def inputs_of(shapes):
    chance = torch.Generator().manual_seed(11)
    return [torch.randn(shape, generator=chance).to(DEVICE).requires_grad_() for shape in shapes]


def value_and_gradients(function, inputs):
    result = function(*inputs)
    return result, *torch.autograd.grad(result.square().sum(), inputs)


def test_each_kernel_is_a_function_of_the_package_whatever_was_imported_before():
    program = f"""
import torch
x = torch.ones(2, 2, device="cuda" if torch.cuda.is_available() else "cpu")
{IMPORT}
{USE}
import gpupack_kernels.operators.gemm.ops
{IMPORT}
{USE}
"""
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(
        command, env=os.environ | interpreted, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_triton_hears_that_there_is_no_gpu_before_torch_imports_it(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    choose_device(require_gpu=False)
    assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_torchs(name):
    function, shapes, by_torch = FUNCTIONS[name]
    inputs = inputs_of(shapes)
    ours, theirs = (value_and_gradients(f, inputs) for f in (function, by_torch))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "vector_add"])
def test_a_second_derivative_is_an_error_and_not_a_wrong_number(name):
    function, shapes, _ = FUNCTIONS[name]
    inputs = inputs_of(shapes)
    gradients = torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), inputs)


def penalty_of(products, a, b):
    """The product, and a term of its gradient: dC is a constant."""
    c = products(a, b)
    (da,) = torch.autograd.grad(c.sum(), a, create_graph=True)
    return c.sum() + da.square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_gradient_that_another_depends_on_through_one_operand_alone_is_an_error(dtype):
    a = torch.randn(8, 16, device=DEVICE).to(dtype).requires_grad_()
    b = torch.randn(16, 4, device=DEVICE).requires_grad_()
    with pytest.raises(RuntimeError, match="autograd"):
        penalty_of(gemm, a, b).backward()


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "vector_add"])
def test_fake_tensors_have_the_shapes_types_and_strides_of_real_ones(name):
    function, shapes, _ = FUNCTIONS[name]
    inputs = inputs_of(shapes)
    real = value_and_gradients(function, inputs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = value_and_gradients(function, [mode.from_tensor(x) for x in inputs])
    assert [kind(x) for x in fake] == [kind(x) for x in real]


def kind(tensor):
    return tensor.shape, tensor.dtype, tensor.stride()


@pytest.mark.parametrize("name", ["gemm", "gemms", "swiglu", "rms_norm", "rotary", "attention"])
def test_autograd_itself_can_be_compiled(name):
    function, shapes, _ = FUNCTIONS[name]
    torch.compiler.reset()
    inputs = inputs_of(shapes)
    expected = value_and_gradients(function, inputs)[1:]
    result = function(*inputs).square().sum()
    with compiled_autograd._enable(torch.compile(backend="aot_eager")):
        result.backward()
    torch.testing.assert_close([x.grad for x in inputs], list(expected))


def check_compiled(name, backend):
    function, shapes, _ = FUNCTIONS[name]
    torch.compiler.reset()

    def around(*inputs):
        return function(*(2 * x for x in inputs)) + 1

    inputs = inputs_of(shapes)
    compiled = torch.compile(around, backend=backend, fullgraph=True)
    torch.testing.assert_close(
        value_and_gradients(compiled, inputs), value_and_gradients(around, inputs)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_compile_takes_them_without_a_break_in_its_graph(name):
    check_compiled(name, "aot_eager")


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_programs_with_them_compute_the_same(name):
    check_compiled(name, "inductor")


def test_a_compiled_product_serves_any_shape():
    torch.compiler.reset()
    compiled = torch.compile(gemm, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        a, b = torch.ones(rows, 4, device=DEVICE), torch.ones(4, 6, device=DEVICE)
        torch.testing.assert_close(compiled(a, b), a @ b)


PER_LAYER = {"attention", "gemm", "gemms", "rms_norm", "rotary", "swiglu"}


def steps_of(gradient):
    """Return the names of all steps of a backward pass."""
    before = [steps_of(step) for step, _ in gradient.next_functions if step is not None]
    return {gradient.name()}.union(*before)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_each_layer_calls_bypasses_the_dispatcher_and_nothing_else_does(name):
    function, shapes, _ = FUNCTIONS[name]
    steps = steps_of(function(*inputs_of(shapes)).grad_fn)
    is_operator = any(step.startswith("GeneratedBackwardFor_gpupack_") for step in steps)
    assert is_operator == (name not in PER_LAYER)


def test_kernels_need_neither_msgspec_nor_click_nor_the_workloads():
    program = f"""
import sys
for name in ("click", "gpupack_workloads", "msgspec", "pynvml"):
    sys.modules[name] = None
{IMPORT}
"""
    subprocess.run([sys.executable, "-c", program], check=True)
