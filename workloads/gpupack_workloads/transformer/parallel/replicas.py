# SPDX-License-Identifier: Apache-2.0
"""DDP: every rank has the whole network, and gradients are averaged as they come."""

import contextlib

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpupack_workloads.transformer.model import Decoder
from gpupack_workloads.transformer.parallel.learner import Sharing


class Spread(Sharing):
    """A replica of many."""

    def spread(self, module: Decoder) -> nn.Module:
        """Wrap the network: each backward pass ends with the mean gradient of all ranks."""
        device = self.place.device
        wrapped: nn.Module = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )
        return wrapped

    def part(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """Exchange gradients once, with the last part."""
        kept: contextlib.AbstractContextManager[object] = (
            contextlib.nullcontext() if last else self.network.no_sync()
        )
        return kept
