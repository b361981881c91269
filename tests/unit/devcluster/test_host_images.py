# SPDX-License-Identifier: Apache-2.0
"""Images made of the host's own files, read back as buildah's are."""

import json
from pathlib import Path

import pytest

from gpupack_devcluster.errors import StoreInvalid
from gpupack_devcluster.host_images import HostImage, HostLayer, HostStore, Tree
from gpupack_devcluster.images import ImageStore

CONFIG = {"Entrypoint": ["/usr/bin/python"], "User": "65532:65532"}


@pytest.fixture
def host(tmp_path):
    """A host with a Python, a driver and a folder of CUDA."""
    usr = tmp_path / "host" / "usr"
    for name in ("bin/python", "lib/libc.so", "lib/libcuda.so.1", "local/cuda-13/nvcc"):
        (usr / name).parent.mkdir(parents=True, exist_ok=True)
        (usr / name).write_text(name)
    (usr / "bin" / "python3").symlink_to("python")
    return usr


def layer(name, *trees, links=None, folders=None):
    return HostLayer(name, trees, links=links or {}, folders=folders or {})


def system(host):
    tree = Tree(host, "/usr", ("**/libcuda*", "local/cuda*"))
    return layer("system", tree, links={"/bin": "usr/bin"}, folders={"/tmp": 0o1777})


def write(tmp_path, *images):
    root = tmp_path / "store"
    HostStore(root).write(images)
    return ImageStore(root)


def test_an_image_of_the_host_reads_like_one_that_was_built(tmp_path, host):
    code = layer("code", Tree(host / "bin/python", "/opt/tool"))
    store = write(tmp_path, HostImage("docker.io/a:dev", (system(host), code), CONFIG))
    plan = store.plan("docker.io/a:dev")
    assert [bool(each.parent) for each in plan.layers] == [False, True]
    assert json.loads(plan.config)["config"] == CONFIG
    assert json.loads(plan.manifest)["layers"][0]["digest"] == plan.layers[0].chain


def test_files_are_hard_linked_links_stay_links_and_excluded_paths_are_missing(tmp_path, host):
    store = write(tmp_path, HostImage("a", (system(host),), CONFIG))
    folder = Path(store.plan("a").layers[0].folder)
    paths = folder.rglob("*")
    files = {str(path.relative_to(folder)) for path in paths if path.is_file()}
    assert files == {"usr/bin/python", "usr/bin/python3", "usr/lib/libc.so"}
    assert (folder / "usr/bin/python").samefile(host / "bin" / "python")
    assert str((folder / "bin").readlink()) == "usr/bin"
    assert (folder / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_images_share_the_layers_below(tmp_path, host):
    below = system(host)
    images = [
        HostImage(name, (below, layer(name, Tree(host / "bin/python", f"/{name}"))), CONFIG)
        for name in ("a", "b")
    ]
    store = write(tmp_path, *images)
    assert store.plan("a").layers[0] == store.plan("b").layers[0]
    assert store.plan("a").layers[1] != store.plan("b").layers[1]


def test_a_changed_file_makes_another_image(tmp_path, host):
    image = HostImage("a", (system(host),), CONFIG)
    first = write(tmp_path, image).plan("a")
    (host / "lib" / "libc.so").write_text("longer than before")
    assert write(tmp_path, image).plan("a").layers[0].chain != first.layers[0].chain


def test_images_that_were_built_are_never_replaced(tmp_path, host):
    (tmp_path / "store" / "overlay-images").mkdir(parents=True)
    with pytest.raises(StoreInvalid, match="holds images that were built"):
        write(tmp_path, HostImage("a", (system(host),), CONFIG))


def test_one_layer_cannot_be_on_two_different_layers(tmp_path, host):
    low, high, other = (layer(name, Tree(host, f"/{name}")) for name in ("low", "high", "other"))
    with pytest.raises(StoreInvalid, match="layer high is on two"):
        write(
            tmp_path,
            HostImage("a", (low, high), CONFIG),
            HostImage("b", (other, high), CONFIG),
        )
