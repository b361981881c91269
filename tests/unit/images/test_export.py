# SPDX-License-Identifier: Apache-2.0
"""What kind is given to load."""

import pytest

from gpupack_images.catalog import Image
from gpupack_images.cli import Workshop, exported
from gpupack_images.engines import Docker
from gpupack_images.shell import Shell

IMAGE = Image("operator", "docker.io/gpupack/operator:dev")
OLD, NEW = "a" * 64, "b" * 64


class Engine:
    """Holds one image."""

    def __init__(self, identity):
        self.identity = identity
        self.exports = 0

    def identify(self, _image):
        return self.identity

    def export(self, image, archive):
        self.exports += 1
        archive.write_text(f"{image} {self.identity}")


@pytest.fixture
def workshop(tmp_path):
    shell = Shell(folder=tmp_path, log=tmp_path / "log", environ={})
    return lambda engine: Workshop(tmp_path, shell, engine)


def test_docker_has_it_already(workshop):
    docker = Docker(Shell(folder=None, log=None, environ={}))
    assert exported(IMAGE, workshop(docker)) == IMAGE.name


def test_an_archive_is_written_once_for_each_content_and_replaces_the_older_one(workshop, tmp_path):
    engine = Engine(OLD)
    old = exported(IMAGE, workshop(engine))
    assert exported(IMAGE, workshop(engine)) == old
    assert engine.exports == 1
    engine.identity = NEW
    new = exported(IMAGE, workshop(engine))
    assert [str(path) for path in (tmp_path / "archives").iterdir()] == [new]
    assert NEW in (tmp_path / "archives" / f"operator-{NEW[:12]}.tar").read_text()
