# SPDX-License-Identifier: Apache-2.0
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


def test_a_folder_that_nothing_can_be_written_to_is_refused():
    with pytest.raises(BadArgument, match="the folder /proc/self cannot be written to"):
        usable_folder(Path("/proc/self"))
