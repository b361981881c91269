# SPDX-License-Identifier: Apache-2.0
"""Reading buildah's store: names, layers, chain identifiers."""

import base64
import hashlib
import json

import pytest

from gpupack_devcluster.errors import ImageMissing, StoreInvalid
from gpupack_devcluster.images import (
    ImageStore,
    big_data_file,
    chain_ids,
    layer_stack,
    stored_name,
)

NAME = "docker.io/gpupack/operator:dev"


def sha(text):
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def store(tmp_path):
    """A store with one image of two layers, as buildah writes it."""
    config = json.dumps({"rootfs": {"diff_ids": [sha("low"), sha("high")]}})
    manifest = json.dumps({"mediaType": "m", "config": {"digest": sha(config)}})
    image = tmp_path / "overlay-images" / "i1"
    image.mkdir(parents=True)
    (image / "manifest").write_text(manifest)
    (image / big_data_file(sha(config))).write_text(config)
    (tmp_path / "overlay-layers").mkdir()
    layers = [
        {"id": "l1", "diff-digest": sha("low")},
        {"id": "l2", "parent": "l1", "diff-digest": sha("high")},
    ]
    records = [{"id": "i1", "names": [NAME], "layer": "l2"}, {"id": "unnamed", "layer": "l1"}]
    (tmp_path / "overlay-layers" / "layers.json").write_text(json.dumps(layers))
    (tmp_path / "overlay-images" / "images.json").write_text(json.dumps(records))
    return ImageStore(tmp_path)


def test_the_lowest_chain_is_the_layer_and_each_next_one_hashes_chain_and_layer():
    low, high = sha("low"), sha("high")
    assert chain_ids([low, high]) == [low, sha(f"{low} {high}")]
    assert chain_ids([]) == []


def test_a_plan_lists_layers_from_the_lowest_up_each_on_its_parent(store, tmp_path):
    low, high = store.plan(NAME).layers
    assert (low.chain, low.parent) == (sha("low"), "")
    assert (high.chain, high.parent) == (sha(f"{sha('low')} {sha('high')}"), sha("low"))
    assert high.folder == str(tmp_path / "overlay" / "l2" / "diff")


def test_a_plan_travels_as_json_with_the_exact_bytes_of_manifest_and_configuration(store):
    plan = store.plan(NAME)
    sent = json.loads(plan.to_json())
    assert base64.b64decode(sent["manifest"]) == plan.manifest
    assert base64.b64decode(sent["config"]) == plan.config
    assert sent["names"] == [NAME]


def test_an_image_is_found_by_its_short_name_and_planned_under_the_name_in_the_store(store):
    assert store.has("gpupack/operator:dev")
    assert store.plan("gpupack/operator:dev").names == (NAME,)


def test_an_image_that_was_never_built_is_named_in_the_error(store):
    assert not store.has("gpupack/agent:dev")
    with pytest.raises(ImageMissing, match="gpupack/agent:dev"):
        store.plan("gpupack/agent:dev")


def test_a_store_that_was_never_written_to_has_no_images(tmp_path):
    assert not ImageStore(tmp_path).has(NAME)


def test_layers_that_are_not_those_of_the_configuration_are_refused():
    layers = {"a": {"id": "a", "diff-digest": sha("other")}}
    with pytest.raises(StoreInvalid, match="the image wants"):
        layer_stack(layers, "a", [sha("low")])


def test_a_layer_without_its_parent_is_refused():
    with pytest.raises(StoreInvalid, match="layer p is not in the store"):
        layer_stack({"a": {"id": "a", "parent": "p"}}, "a", [])


@pytest.mark.parametrize(
    ("key", "file"),
    [("manifest", "manifest"), ("sha256:ab", "=c2hhMjU2OmFi"), ("a-b", "=YS1i")],
)
def test_data_with_special_characters_in_its_name_are_in_a_base64_file(key, file):
    assert big_data_file(key) == file


def test_an_exact_name_wins_over_a_completed_one():
    names = ["localhost/x:1", "x:1"]
    assert stored_name("x:1", names) == "x:1"
    assert stored_name("x:1", names[:1]) == "localhost/x:1"
    assert stored_name("y:1", names) == ""
