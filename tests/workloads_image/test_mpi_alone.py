# SPDX-License-Identifier: Apache-2.0
"""Parts of the workload `mpi` in one rank without MPI; with it, test_mpi.py has the whole."""

import time
from dataclasses import replace

import pytest
import torch
from mpi_stand_in import Alone, parts_of_mpi

from gpupack_workloads.devices import Device
from gpupack_workloads.errors import BadArgument, OutOfMemory, WrongResult
from gpupack_workloads.mpi.options import MpiOptions

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the rank is a CPU's")
CPU = Device(torch.device("cpu"), "CPU")
GIB = 2**30


@pytest.fixture
def mpi(monkeypatch):
    with parts_of_mpi(monkeypatch) as parts:
        yield parts


@pytest.fixture
def world(mpi):
    return mpi.world.World(
        comm=Alone(),
        index=0,
        ranks=1,
        local_index=0,
        local_ranks=1,
        workers=1,
        device=CPU,
        memory=mpi.world.Memory.HOST,
    )


@no_gpu
def test_a_rank_that_is_alone_does_every_part_and_reports(mpi):
    result = mpi.session.measure(MpiOptions(size=4096, grid=16, sweeps=5))
    assert (result.verified, result.metrics["ranks"], result.metrics["blocks"]) == (True, 1, "1x1")
    assert result.metrics["halo_error"] <= result.metrics["halo_error_bound"]
    assert result.metrics["mpi_ratio"] > 0


def test_a_sweep_that_is_under_way_is_none_of_the_exchanges_time(mpi, world, monkeypatch):
    under_way = []

    def settle(world):
        while under_way:
            time.sleep(under_way.pop())

    def sweep(old, new):
        under_way.append(0.01)

    def fetch(halo, block):
        # As a message does, which has to know what it sends.
        settle(world)

    monkeypatch.setattr(mpi.world.World, "settle", settle)
    monkeypatch.setattr(mpi.halo, "sweep", sweep)
    monkeypatch.setattr(mpi.halo.Halo, "fetch", fetch)
    found = mpi.halo.swept(world, 16, sweeps=10, seed=0)
    assert found.seconds > 0.1
    assert found.halo_seconds < found.seconds / 10


@pytest.mark.parametrize(("ranks", "grid"), [(15, 16), (7, 8)])
def test_more_blocks_than_the_grid_has_rows_are_refused(mpi, world, ranks, grid):
    assert mpi.halo.blocks_of(grid, ranks - 1) == (ranks - 1, 1)
    message = rf"--grid {grid} has {grid - 2} rows .* {ranks} x 1 blocks of {ranks} ranks"
    with pytest.raises(BadArgument, match=message):
        mpi.halo.blocks_of(grid, ranks)


@no_gpu
def test_too_many_blocks_are_refused_before_any_message(mpi, world, monkeypatch):
    monkeypatch.setattr(mpi.session, "join", lambda require_gpu: replace(world, ranks=15))
    with pytest.raises(BadArgument, match="--grid 16"):
        mpi.session.measure(MpiOptions(grid=16))


@no_gpu
@pytest.mark.parametrize(
    ("free", "local_ranks", "option"),
    [(20 * GIB, 1, "--size"), (30 * GIB, 2, "--size"), (3 * GIB, 1, "--grid")],
)
def test_what_does_not_fit_is_refused_before_any_message(
    mpi, world, monkeypatch, free, local_ranks, option
):
    monkeypatch.setattr(mpi.memory_check, "host_bytes", lambda: free)
    among = replace(world, local_ranks=local_ranks)
    monkeypatch.setattr(mpi.session, "join", lambda require_gpu: among)
    with pytest.raises(OutOfMemory, match=f"of the container per rank.*a smaller {option}"):
        mpi.session.measure(MpiOptions(size=GIB, grid=16 if option == "--size" else 16384))


def test_memory_that_runs_out_during_the_run_is_reported_as_such(mpi, world, monkeypatch):
    def short(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(mpi.session, "join", lambda require_gpu: world)
    monkeypatch.setattr(mpi.halo, "swept", short)
    with pytest.raises(OutOfMemory, match="a grid of 16 rows and columns does not fit"):
        mpi.session.measure(MpiOptions(size=64, grid=16))


@pytest.mark.parametrize("wrong", range(3, 13))
def test_each_sum_in_place_is_checked(mpi, world, wrong):
    calls = iter(range(100))

    def once_wrong(tensor):
        tensor[5] += next(calls) == wrong

    def right(tensor):
        pass

    assert mpi.sums.summed_in_place(world, 64, seed=1, by=right).size_bytes == 64
    with pytest.raises(WrongResult, match="1 of 160 sums over 1 ranks are wrong"):
        mpi.sums.summed_in_place(world, 64, seed=1, by=once_wrong)


def test_nothing_but_the_sum_is_timed_where_it_replaces_its_terms(mpi, world):
    seen = []
    mpi.sums.summed_in_place(world, 64, seed=1, by=lambda tensor: seen.append(tensor.data_ptr()))
    timed = seen[mpi.sums.WARM_UP :]
    assert len(set(timed)) == len(timed) == mpi.sums.ROUNDS
