# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_images.disk import GB, main, missing_space


@pytest.mark.parametrize(("free", "set_up"), [(32, False), (6, True)])
def test_enough_room_is_no_problem(free, set_up):
    assert missing_space(free_bytes=free * GB, set_up=set_up) is None


def test_too_little_room_says_how_much_is_needed_and_what_to_do():
    problem = missing_space(free_bytes=31 * GB, set_up=False)
    assert problem is not None
    assert problem.startswith("31.0 GB of disk are free and 32 GB are needed")
    assert "larger disk" in problem


def test_the_check_ends_with_an_error_and_names_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gpupack_images.disk.NEEDED_FROM_NOTHING_GB", 10**9)
    assert main([str(tmp_path)]) == 1
    assert f"not enough space in {tmp_path}: " in capsys.readouterr().err
