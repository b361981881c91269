# SPDX-License-Identifier: Apache-2.0
import contextlib

import host_gpus
import pytest
from open_folder import open_folder


@pytest.fixture
def folder():
    """Return the folder of a ledger, which other users can reach."""
    with open_folder() as above:
        yield above / "ledger"


@pytest.fixture
def machine(folder):
    """Return this process's manager of the machine."""
    with host_gpus.manager(folder) as manager:
        yield manager


@pytest.fixture
def holder(folder):
    """Return a function that starts processes that hold GPUs; they are killed at the end."""
    started = []

    def start(**asked):
        started.append(host_gpus.Holder(folder, **asked))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(OSError):
            each.kill()
