# SPDX-License-Identifier: Apache-2.0
import contextlib

import host_gpus
import pytest


@pytest.fixture
def folder(tmp_path):
    """Of a ledger; other users may come to it."""
    for each in (tmp_path, *tmp_path.parents):
        with contextlib.suppress(PermissionError):
            each.chmod(each.stat().st_mode | 0o055)
    return tmp_path / "ledger"


@pytest.fixture
def machine(folder):
    """This process's manager of the machine."""
    with host_gpus.manager(folder) as manager:
        yield manager


@pytest.fixture
def holder(folder):
    """Starts processes that hold GPUs; those that live at the end are killed."""
    started = []

    def start(**asked):
        started.append(host_gpus.Holder(folder, **asked))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(OSError):
            each.kill()
