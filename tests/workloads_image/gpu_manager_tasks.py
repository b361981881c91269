# SPDX-License-Identifier: Apache-2.0
"""Tasks for the tests of the GPU manager: workers import them by this module's name."""

import ctypes
import os
import sys
import time

import torch


def double(context, number):
    return 2 * number


def where(context):
    return os.getpid()


def fail(context, text):
    raise ValueError(text)


def leave(context):
    sys.exit(7)


def die(context, status):
    os._exit(status)


def hang_with_the_gil(context):
    # PyDLL keeps the GIL, as an extension that hangs would.
    ctypes.PyDLL(None).sleep(60)


def rest(context, seconds):
    time.sleep(seconds)
    return os.getpid()


def mark(context, path):
    with path.open("a") as file:
        file.write("x")


def ask(context, *sizes):
    return [context.memory.empty((size,), torch.uint8).numel() for size in sizes]


def addresses(context):
    """Return the address of a task's first tensor."""
    return context.memory.empty((1,), torch.float32).data_ptr()


def tensors(context, size):
    ones = torch.ones(size, device=context.device)
    return {"ones": ones, "rows": [2 * ones.reshape(1, -1), "text"], "number": 3}


class Unreadable:
    def __reduce__(self):
        return (int, ("no number",))


def unreadable(context):
    return Unreadable()


def unpicklable(context):
    return lambda: None


def torch_takes(context, size):
    return torch.empty(size, dtype=torch.uint8, device=context.device).numel()


def own_stream(context):
    return torch.cuda.current_stream() != torch.cuda.default_stream()


def hang_on_gpu(context):
    # Cycles: some minutes at 2 GHz.
    for _ in range(100):
        torch.cuda._sleep(2**32 - 1)


def break_context(context):
    return torch.zeros(1, device=context.device)[torch.tensor([5], device=context.device)]
