# SPDX-License-Identifier: Apache-2.0
"""An object is read and written again where another writer was in between."""

import pytest

from gpupack_kubeclient.conflicts import MAX_TRIES, retried
from gpupack_kubeclient.errors import Conflict, NotFound


class Object:
    """Refuses the first writes of it."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    async def write(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "written"


def conflict():
    return Conflict("another wrote it", status=409, reason="Conflict", said="another wrote it")


async def test_a_write_is_tried_again_after_a_conflict():
    found = Object(conflict(), conflict())
    assert await retried(found.write) == "written"
    assert found.calls == 3


async def test_the_last_conflict_is_raised_after_the_maximum_of_tries():
    found = Object(*(conflict() for _ in range(MAX_TRIES)))
    with pytest.raises(Conflict, match="another wrote it"):
        await retried(found.write)
    assert found.calls == MAX_TRIES


async def test_any_other_error_ends_it_at_once():
    found = Object(NotFound("gone", status=404, reason="NotFound", said="gone"))
    with pytest.raises(NotFound):
        await retried(found.write)
    assert found.calls == 1
