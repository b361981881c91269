# SPDX-License-Identifier: Apache-2.0
"""Changes of the host are restored."""

import pytest

from gpupack_devcluster import host


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """A host with one kernel variable and one of two mount points."""
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "panic").write_text("0\n")
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(host, "SYSCTL", tmp_path / "sys")
    monkeypatch.setattr(host, "VARIABLES", ("panic",))
    monkeypatch.setattr(host, "MOUNT_POINTS", (tmp_path / "there", tmp_path / "missing"))
    host.prepare(forward=False, record=tmp_path / "record")
    (tmp_path / "sys" / "panic").write_text("10\n")
    return tmp_path


def test_variables_and_folders_are_restored(changed):
    host.restore(record=changed / "record")
    assert (changed / "sys" / "panic").read_text() == "0"
    assert (changed / "there").is_dir()
    assert not (changed / "missing").exists()
    assert not (changed / "record").exists()


def test_a_second_start_does_not_take_the_changed_values_for_the_old_ones(changed):
    host.prepare(forward=False, record=changed / "record")
    host.restore(record=changed / "record")
    assert (changed / "sys" / "panic").read_text() == "0"
    assert not (changed / "missing").exists()


def test_a_folder_that_is_not_empty_stays(changed):
    (changed / "missing" / "file").touch()
    host.restore(record=changed / "record")
    assert (changed / "missing" / "file").exists()


def test_restoring_twice_is_harmless(changed):
    host.restore(record=changed / "record")
    host.restore(record=changed / "record")
    assert not (changed / "record").exists()
