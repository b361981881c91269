# SPDX-License-Identifier: Apache-2.0
"""Types of operands: torch's rules for its own operators, under torch.autocast and without it.

Under autocast products and attention take autocast's type, and softmax, norms and losses 32 bits.
Elementwise operators take what they get, and several types become the one that holds all.

The casts are torch's, so that a gradient comes back in the type of what was cast. Operands of 64
bits or of 8 stay as they are. On a CPU, where kernels are interpreted, the rules are a GPU's.
"""

import functools

import torch

CASTED = (torch.float32, torch.float16, torch.bfloat16)
DEVICES = ("cuda", "cpu")

# Of torch's versions some have it in autocast's table, and 2.11 does not.
CASTS_RMS_NORM = bool(
    torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", "AutocastCUDA")  # noqa: SLF001  no other says
)

Operands = tuple[torch.Tensor, ...]


def as_product(*operands: torch.Tensor) -> Operands:
    """Return operands as autocast gives them to a product or to attention."""
    dtype = autocast_type(operands[0])
    return operands if dtype is None else _cast(operands, dtype)


def as_sum(*operands: torch.Tensor) -> Operands:
    """Return operands as autocast gives them to softmax, a norm or a loss: in 32 bits."""
    return operands if autocast_type(operands[0]) is None else _cast(operands, torch.float32)


def promoted(*operands: torch.Tensor) -> Operands:
    """Return operands in the type that holds those of all."""
    dtype = operands[0].dtype
    if all(x.dtype == dtype for x in operands) or not all(x.dtype in CASTED for x in operands):
        return operands
    return _cast(operands, functools.reduce(torch.promote_types, (x.dtype for x in operands)))


def autocast_type(operand: torch.Tensor) -> torch.dtype | None:
    """Return autocast's type on an operand's device; None where autocast is off."""
    device = operand.device.type
    if device not in DEVICES or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _cast(operands: Operands, dtype: torch.dtype) -> Operands:
    return tuple(x.to(dtype) if x.dtype in CASTED else x for x in operands)
