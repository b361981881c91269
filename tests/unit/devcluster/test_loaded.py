# SPDX-License-Identifier: Apache-2.0
"""The list of loaded images."""

import pytest

from gpupack_devcluster import loaded


def test_loaded_images_are_listed_once_and_in_order(tmp_path):
    record = tmp_path / "cluster" / "images.json"
    loaded.add(record, ["b:1", "a:1"])
    loaded.add(record, ["a:1", "c:1"])
    assert loaded.read(record) == ("b:1", "a:1", "c:1")


def test_an_archive_is_listed_by_its_full_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded.add(tmp_path / "images.json", ["x.tar"])
    assert loaded.read(tmp_path / "images.json") == (str(tmp_path / "x.tar"),)


@pytest.mark.parametrize("image", ["docker.io/a/b:tar", "localhost/x:dev", "a@sha256:00"])
def test_a_name_is_not_an_archive(image):
    assert not loaded.is_archive(image)
