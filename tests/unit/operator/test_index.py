# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from gpupack_kubeclient.objects import Object
from gpupack_operator.index import Index


def item(uid, *, name="x", version="1"):
    meta = {"name": name, "uid": uid, "resourceVersion": version}
    return msgspec.convert({"metadata": meta}, Object)


@pytest.fixture
def heard():
    return []


@pytest.fixture
def index(heard):
    """Objects by name."""
    return Index(
        lambda item: item.metadata.name,
        lambda item, *, gone: heard.append((item.metadata.resource_version, gone)),
    )


def versions(index):
    """The versions of the objects of each key."""
    return {key: [item.metadata.resource_version for item in found] for key, found in index.items()}


def test_several_objects_may_have_one_key(index, heard):
    index.upsert(item("a"))
    index.upsert(item("b", version="2"))
    assert versions(index) == {"x": ["1", "2"]}
    assert heard == [("1", False), ("2", False)]


def test_a_changed_object_replaces_its_old_version_under_any_key(index):
    index.upsert(item("a"))
    index.upsert(item("a", version="2"))
    assert versions(index) == {"x": ["2"]}
    index.upsert(item("a", name="y", version="3"))
    assert versions(index) == {"y": ["3"]}


def test_a_removed_object_is_reported_as_last_known(index, heard):
    index.upsert(item("a"))
    index.remove(item("a", version="9"))
    assert (dict(index), heard[-1]) == ({}, ("1", True))


def test_an_object_is_dropped_by_uid_and_reported(index, heard):
    index.upsert(item("a"))
    index.upsert(item("b", version="2"))
    index.drop("a")
    index.drop("a")
    assert (versions(index), heard[2:]) == ({"x": ["2"]}, [("1", True)])


def test_the_removal_of_an_unknown_object_is_not_reported(index, heard):
    index.remove(item("a"))
    assert heard == []


def test_a_list_removes_missing_objects(index, heard):
    index.upsert(item("a"))
    index.replace([item("b", name="y", version="2")])
    assert versions(index) == {"y": ["2"]}
    assert heard == [("1", False), ("1", True), ("2", False)]


def test_an_older_version_is_ignored(index, heard):
    for number in ("10", "9", "10"):
        index.upsert(item("a", version=number))
    assert (versions(index), heard) == ({"x": ["10"]}, [("10", False)])


def test_a_list_replaces_newer_versions(index):
    index.upsert(item("a", version="10"))
    index.replace([item("a", version="9")])
    assert versions(index) == {"x": ["9"]}


def test_a_list_reports_only_changed_objects(index, heard):
    index.replace([item("a"), item("b")])
    heard.clear()
    index.replace([item("a"), item("b", version="2")])
    assert heard == [("2", False)]
