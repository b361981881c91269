# SPDX-License-Identifier: Apache-2.0
"""The loss through a softmax is that through its logarithm, however unlikely the right token."""

import pytest
import torch

from gpupack_workloads.transformer.operations import by_cross_entropy, by_softmax


def softmax(logits):
    return torch.softmax(logits, -1)


@pytest.mark.parametrize("scale", [0, 1, 30, 1000], ids=lambda scale: f"logits up to {scale}")
def test_value_and_gradient_are_those_of_cross_entropy(scale):
    generator = torch.Generator().manual_seed(3)
    logits = scale * torch.randn(32, 101, generator=generator)
    targets = torch.randint(0, 101, (32,), generator=generator)
    ours, torchs = (logits.clone().requires_grad_() for _ in range(2))
    found, expected = by_softmax(softmax)(ours, targets), by_cross_entropy(torchs, targets)
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.grad, torchs.grad, rtol=1e-4, atol=1e-7)


def test_a_token_whose_probability_underflows_still_has_a_gradient():
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = by_softmax(softmax)(logits, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(200)
    assert logits.grad.tolist() == [pytest.approx([1, -1])]
