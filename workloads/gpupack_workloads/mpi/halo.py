# SPDX-License-Identifier: Apache-2.0
"""Halo exchange: Jacobi's sweeps for Laplace's equation on a grid that is cut among the ranks.

    u'[i, j] = (u[i-1, j] + u[i+1, j] + u[i, j-1] + u[i, j+1]) / 4

The outermost rows and columns are kept. Each rank has a block and around it a halo of one row or
column of each neighbour, fetched before each sweep. At the end every block is compared with the
same sweeps over the whole grid, done by one process.
"""

import time
from dataclasses import dataclass

import torch
from mpi4py import MPI

from gpupack_workloads.errors import BadArgument, WrongResult
from gpupack_workloads.mpi.memory_check import Need
from gpupack_workloads.mpi.world import World, forget_staging

ROUNDING = torch.finfo(torch.float64).eps
OPERATIONS = 4
"""Roundings in a sweep of one element: three sums and a product."""


@dataclass(frozen=True)
class Swept:
    """Times of the sweeps.

    Attributes:
        grid: rows and columns, with the boundary.
        sweeps: over it.
        blocks: the ranks' rows and columns.
        seconds: seconds of all sweeps.
        halo_seconds: of them, in exchanges of halos.
        error: largest difference from the one process's solution.
        error_bound: what rounding explains.
        change: of the last sweep, the largest of any element: it falls towards the solution.
    """

    grid: int
    sweeps: int
    blocks: tuple[int, int]
    seconds: float
    halo_seconds: float
    error: float
    error_bound: float
    change: float

    @property
    def updates_per_s(self) -> float:
        """Elements that are updated per second."""
        return (self.grid - 2) ** 2 * self.sweeps / self.seconds


@dataclass(frozen=True)
class Block:
    """A rank's part of the grid's inside, as ranges of the grid's rows and columns."""

    rows: range
    columns: range


def cut(length: int, parts: int, index: int) -> range:
    """Return the part `index` of 1 … length-2, which parts share as evenly as can be."""
    inside = length - 2
    return range(1 + inside * index // parts, 1 + inside * (index + 1) // parts)


def blocks_of(size: int, ranks: int) -> tuple[int, int]:
    """Return into how many blocks the grid's rows and columns are cut.

    Raises:
        BadArgument: there are more than rows or columns inside.
    """
    rows, columns = MPI.Compute_dims(ranks, 2)
    if max(rows, columns) > size - 2:
        raise BadArgument(
            f"--grid {size} has {size - 2} rows and columns inside its boundary, too few for the"
            f" {rows} x {columns} blocks of {ranks} ranks: set a larger --grid, or use fewer ranks"
        )
    return rows, columns


def need_of(size: int, ranks: int) -> Need:
    """Return what `swept` takes.

    While one process sweeps: the grid, two copies of it and two copies of a block; when a block is
    compared, two more of that and one less of the grid. The host's is what the grid is made in.
    """
    rows, columns = blocks_of(size, ranks)
    block = (-(-size // rows) + 2) * (-(-size // columns) + 2)
    grid = size * size
    return Need(device=8 * max(3 * grid + 2 * block, 2 * grid + 4 * block), host=8 * grid)


def start_grid(size: int, *, seed: int, device: torch.device) -> torch.Tensor:
    """Return the grid before the first sweep: a boundary of sines and noise, zeros inside."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    noise = torch.rand(4, size, dtype=torch.float64, generator=generator)
    waves = torch.sin(torch.linspace(0, torch.pi, size, dtype=torch.float64)) + noise / 10
    grid = torch.zeros(size, size, dtype=torch.float64)
    grid[0], grid[-1], grid[:, 0], grid[:, -1] = waves
    return grid.to(device)


def sweep(grid: torch.Tensor, new: torch.Tensor) -> None:
    """Update everything except the outermost rows and columns."""
    inside = new[1:-1, 1:-1]
    torch.add(grid[:-2, 1:-1], grid[2:, 1:-1], out=inside)
    inside += grid[1:-1, :-2]
    inside += grid[1:-1, 2:]
    inside *= 0.25


def swept(world: World, size: int, *, sweeps: int, seed: int) -> Swept:
    """Sweep over the grid with all ranks, then with one, and compare.

    Raises:
        WrongResult: a block differs from the one process's by more than rounding explains.
    """
    whole = start_grid(size, seed=seed, device=world.device.torch)
    dims = blocks_of(size, world.ranks)
    cart = world.comm.Create_cart(dims, periods=[False, False], reorder=False)
    row, column = cart.Get_coords(world.index)
    block = Block(cut(size, dims[0], row), cut(size, dims[1], column))
    here = (
        slice(block.rows.start - 1, block.rows.stop + 1),
        slice(block.columns.start - 1, block.columns.stop + 1),
    )
    old, new = whole[here].clone(), whole[here].clone()
    halo = Halo(world, cart, old)
    world.comm.Barrier()
    halo_seconds, start = 0.0, time.perf_counter()
    for _ in range(sweeps):
        # A sweep that is under way is none of the exchange's time.
        world.settle()
        began = time.perf_counter()
        halo.fetch(old)
        halo_seconds += time.perf_counter() - began
        sweep(old, new)
        old, new = new, old
    world.settle()
    seconds = world.slowest(time.perf_counter() - start)
    change = float((old - new)[1:-1, 1:-1].abs().max()) if sweeps else 0.0
    expected = alone(whole, sweeps)[here]
    error = float((old - expected)[1:-1, 1:-1].abs().max())
    bound = OPERATIONS * sweeps * ROUNDING * float(whole.abs().max())
    cart.Free()
    forget_staging()
    if not error <= bound:
        raise WrongResult(
            f"after {sweeps} sweeps rank {world.index}'s block differs by {error:.2e} from one"
            f" process's, and rounding explains {bound:.2e}"
        )
    return Swept(
        grid=size,
        sweeps=sweeps,
        blocks=dims,
        seconds=seconds,
        halo_seconds=world.slowest(halo_seconds),
        error=float(world.comm.allreduce(error, MPI.MAX)),
        error_bound=bound,
        change=float(world.comm.allreduce(change, MPI.MAX)),
    )


def alone(grid: torch.Tensor, sweeps: int) -> torch.Tensor:
    """Return the grid after so many sweeps by this process."""
    old, new = grid.clone(), grid.clone()
    for _ in range(sweeps):
        sweep(old, new)
        old, new = new, old
    return old


class Halo:
    """Fetches the rows and columns of the neighbours' blocks next to ours.

    Args:
        world: the ranks.
        cart: the same ranks as a grid.
        block: ours, with its halo.
    """

    def __init__(self, world: World, cart: MPI.Cartcomm, block: torch.Tensor) -> None:
        self._world = world
        self._above, self._below = cart.Shift(0, 1)
        self._left, self._right = cart.Shift(1, 1)
        rows, columns = block.shape
        self._row_out = torch.empty(columns, dtype=block.dtype, device=block.device)
        self._row_in = torch.empty_like(self._row_out)
        self._column_out = torch.empty(rows, dtype=block.dtype, device=block.device)
        self._column_in = torch.empty_like(self._column_out)

    def fetch(self, block: torch.Tensor) -> None:
        """Fill the halo from the neighbours; at the grid's boundary it stays as it is."""
        rows, columns = (self._row_out, self._row_in), (self._column_out, self._column_in)
        self._one_way(rows, block[1], block[-1], to=self._above, of=self._below)
        self._one_way(rows, block[-2], block[0], to=self._below, of=self._above)
        self._one_way(columns, block[:, 1], block[:, -1], to=self._left, of=self._right)
        self._one_way(columns, block[:, -2], block[:, 0], to=self._right, of=self._left)

    def _one_way(
        self,
        messages: tuple[torch.Tensor, torch.Tensor],
        edge: torch.Tensor,
        halo: torch.Tensor,
        *,
        to: int,
        of: int,
    ) -> None:
        out, into = messages
        out.copy_(edge)
        self._world.exchange(out, into, dest=to, source=of)
        if of != MPI.PROC_NULL:
            halo.copy_(into)
