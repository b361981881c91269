# SPDX-License-Identifier: Apache-2.0
"""Steps of one token as CUDA graphs: a few hundred kernels by one launch.

A graph is of one number of rows and of pages; a step takes the smallest that holds it, and fills
up with padding. All are captured at the start, so that no request waits for one, and share one pool
of memory: only one runs at a time.
"""

import numpy as np
import torch

from gpupack_workloads.inference_server.network import Network

MIN_PAGES = 16
WARM_UP = 2


class Graphs:
    """The graphs of a network.

    Args:
        network: which.
        max_batch: rows at most.
    """

    def __init__(self, network: Network, max_batch: int) -> None:
        self._rows = sizes(1, max_batch)
        self._pages = sizes(min(MIN_PAGES, network.max_pages), network.max_pages)
        self._pool = torch.cuda.graph_pool_handle()
        self._captured = {
            # The largest first: its memory holds what the others need.
            (rows, pages): Captured(network, rows, pages, self._pool)
            for rows in reversed(self._rows)
            for pages in reversed(self._pages)
        }

    def size_for(self, rows: int, pages: int) -> tuple[int, int]:
        """Return the smallest graph's rows and pages that hold a step."""
        return (
            next(size for size in self._rows if size >= rows),
            next(size for size in self._pages if size >= pages),
        )

    def tokens(self, numbers: torch.Tensor, temperatures: torch.Tensor, pages: int) -> torch.Tensor:
        """Compute a step of one of the sizes; the result is valid until the next step."""
        return self._captured[len(numbers), pages].replay(numbers, temperatures)


class Captured:
    """One graph, its inputs and its output."""

    def __init__(self, network: Network, rows: int, pages: int, pool: object) -> None:
        self._inputs = network.padding(rows, pages)
        aside = torch.cuda.Stream(network.device)
        aside.wait_stream(torch.cuda.current_stream(network.device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                network.tokens(self._inputs)
        torch.cuda.current_stream(network.device).wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._output = network.tokens(self._inputs)

    def replay(self, numbers: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """Compute with these inputs, on the host or the GPU."""
        self._inputs.numbers.copy_(numbers, non_blocking=True)
        self._inputs.temperatures.copy_(temperatures, non_blocking=True)
        self._graph.replay()
        return self._output


def sizes(least: int, most: int) -> list[int]:
    """Return the least, its doubles, and the most."""
    found = [least]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def pinned(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> torch.Tensor:
    """Return a host copy that a GPU, if there is one, can read while the host continues."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if torch.cuda.is_available() else tensor
