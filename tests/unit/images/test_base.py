# SPDX-License-Identifier: Apache-2.0
import pathlib

from gpupack_images.base import bootstrap_command, ensure_base
from gpupack_images.catalog import BASE
from gpupack_images.host import HostSettings
from gpupack_images.shell import Shell

ARCHIVE = pathlib.Path("/state/base.tar")
SOURCES = {"apt.sources": pathlib.Path("/etc/apt/sources.list.d/debian.sources")}


class Store:
    """A stand-in for an engine that has, or can pull, the given images."""

    def __init__(self, *, there=(), pullable=()):
        self.there, self.pullable, self.adopted = set(there), set(pullable), []

    def has(self, image):
        return image in self.there

    def pull(self, image):
        return image in self.pullable

    def adopt(self, image, archive):
        self.adopted.append((image, archive.read_text()))


def settings(**changes):
    return HostSettings(
        **({"pip": {}, "npm": {}, "apt": (), "apt_sources": {}, "ca_bundle": None} | changes)
    )


def ensured(store, state, **environ):
    shell = Shell(folder=state, log=state / "log", environ=environ)
    return ensure_base(store, host=settings(), shell=shell, state=state)


def test_a_base_that_is_there_stays(tmp_path):
    assert ensured(Store(there=[BASE]), tmp_path) == "there"


def test_a_registry_that_can_be_reached_is_used(tmp_path):
    assert ensured(Store(pullable=[BASE]), tmp_path) == "pulled"


def test_without_a_registry_the_base_is_made_and_its_archive_does_not_stay(tmp_path):
    tool = tmp_path / "bin/mmdebstrap"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho made > base.tar\n")
    tool.chmod(0o755)
    store = Store()
    assert ensured(store, tmp_path, PATH=f"{tool.parent}:/usr/bin:/bin").startswith("made")
    assert store.adopted == [(BASE, "made\n")]
    assert not (tmp_path / "base.tar").exists()


def test_the_hosts_own_package_sources_do_not_stay_in_the_base():
    command = bootstrap_command(settings(apt_sources=SOURCES), ARCHIVE)
    assert command[-1] == "/etc/apt/sources.list.d/debian.sources"
    hook = next(part for part in command if part.startswith("--customize-hook"))
    assert '"$1"/etc/apt/sources.list.d/*' in hook


def test_without_fitting_sources_the_usual_ones_are_used_and_stay():
    command = bootstrap_command(settings(), ARCHIVE)
    assert command[-2:] == ("bookworm", "/state/base.tar")
    assert not any("sources.list" in part for part in command)
