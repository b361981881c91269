# SPDX-License-Identifier: Apache-2.0
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.folders import usable_folder


def test_a_folder_is_made_with_its_parents_and_left_empty(tmp_path):
    made = usable_folder(tmp_path / "a" / "b")
    assert (made, list(made.iterdir())) == (tmp_path / "a" / "b", [])


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadArgument, match="cannot be made"):
        usable_folder(tmp_path / "file")


def test_a_read_only_folder_is_refused():
    with pytest.raises(BadArgument, match="the folder /proc/self cannot be written to"):
        usable_folder(Path("/proc/self"))


@contextmanager
def no_room():
    """Files can be created and not written, as on a full volume.

    No fixture: pytest would write its own output, to a file perhaps, before the fixture ends.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_without_free_space_is_refused_and_left_empty(tmp_path):
    with no_room(), pytest.raises(BadArgument, match="cannot be written to"):
        usable_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_name_that_is_not_utf8_is_refused_before_it_is_created(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(BadArgument, match=r"caf\\xe9' is not UTF-8"):
        usable_folder(path)
    assert not path.exists()
