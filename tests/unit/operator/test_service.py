# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from gpupack_operator import service


class Broken:
    async def acquire(self):
        raise RuntimeError("a bug")


class Slow:
    async def acquire(self):
        await asyncio.Event().wait()


async def test_who_could_not_stand_for_election_does_not_lead():
    with pytest.raises(RuntimeError, match="a bug"):
        await service._elected(Broken(), asyncio.Event())


async def test_who_is_told_to_stop_before_the_election_does_not_lead():
    stop = asyncio.Event()
    stop.set()
    assert not await service._elected(Slow(), stop)
