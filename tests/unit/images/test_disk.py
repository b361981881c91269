# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_images.disk import GB, main, missing_room


@pytest.mark.parametrize(("free", "set_up"), [(32, False), (6, True)])
def test_enough_disk_space_is_no_problem(free, set_up):
    assert missing_room(free_bytes=free * GB, set_up=set_up) is None


def test_too_little_disk_space_is_reported_with_the_need_and_the_remedy():
    problem = missing_room(free_bytes=31 * GB, set_up=False)
    assert problem is not None
    assert problem.startswith("31.0 GB of disk are free and 32 GB are needed")
    assert "larger disk" in problem


def test_the_check_ends_with_an_error_and_names_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gpupack_images.disk.NEEDED_FROM_NOTHING_GB", 10**9)
    assert main([str(tmp_path)]) == 1
    assert f"not enough room in {tmp_path}: " in capsys.readouterr().err
