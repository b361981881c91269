# SPDX-License-Identifier: Apache-2.0
"""The engines, against programs that note what they are called with."""

import pytest

from gpupack_images.catalog import Image
from gpupack_images.engines import Buildah, Docker, choose_engine
from gpupack_images.errors import CommandFailed, NoEngine
from gpupack_images.shell import Shell

IMAGE = Image("operator", "docker.io/gpupack/operator:dev")


@pytest.fixture
def host(tmp_path):
    """A host with these programs and no others; `calls` are the command lines they got."""

    class Host:
        folder = tmp_path
        log = tmp_path / "log"

        def install(self, name, body=""):
            program = tmp_path / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{body}\n')
            program.chmod(0o755)

        def shell(self, **environ):
            path = str(tmp_path / "bin")
            return Shell(folder=tmp_path, log=self.log, environ={"PATH": path} | environ)

        def calls(self):
            return (tmp_path / "calls").read_text().splitlines()

    return Host()


def chosen(wanted, host):
    return choose_engine(wanted, shell=host.shell(), state=host.folder / "state")


def test_docker_is_used_where_its_daemon_answers(host):
    host.install("docker")
    host.install("buildah")
    assert isinstance(chosen("auto", host), Docker)


def test_buildah_is_used_where_docker_has_no_buildx(host):
    host.install("docker", 'test "$1" != buildx')
    host.install("buildah")
    assert isinstance(chosen("auto", host), Buildah)


def test_the_error_for_a_requested_docker_without_buildx_names_what_is_missing(host):
    host.install("docker", 'test "$1" != buildx')
    host.install("buildah")
    with pytest.raises(NoEngine, match="Docker has no buildx"):
        chosen("docker", host)


def test_buildah_is_used_where_no_docker_daemon_answers(host):
    host.install("docker", "exit 1")
    host.install("buildah")
    assert isinstance(chosen("auto", host), Buildah)
    assert isinstance(chosen("buildah", host), Buildah)


def test_without_either_the_way_out_is_named(host):
    with pytest.raises(NoEngine, match=r"engine auto: no Docker daemon answers.*start Docker"):
        chosen("auto", host)


def test_layers_are_plain_folders_that_can_be_hard_linked(host):
    host.install("buildah")
    chosen("buildah", host)
    settings = (host.folder / "state/storage.conf").read_text()
    assert 'driver = "overlay"' in settings
    assert "metacopy=off,redirect_dir=off" in settings


def test_docker_gets_the_hosts_proxies_only_as_arguments_that_leave_no_trace(host):
    host.install("docker")
    docker = Docker(host.shell(https_proxy="http://proxy.example:3128"))
    docker.build(IMAGE, {"pip.conf": host.folder / "pip.conf"})
    [call] = host.calls()
    assert "--build-arg https_proxy --secret id=pip.conf,src=" in call
    assert call.endswith("--target operator --tag docker.io/gpupack/operator:dev .")
    assert "proxy.example" not in call


def test_a_build_that_fails_shows_the_end_of_its_output(host):
    host.install("docker", "echo no space left on device; exit 7")
    with pytest.raises(CommandFailed, match=r"(?s)docker ended with status 7.*no space left"):
        Docker(host.shell()).build(IMAGE, {})


def test_leftovers_of_an_interrupted_build_are_removed_before_the_next_one(host):
    host.install("buildah")
    for name in ("env", "find"):
        (host.folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
    left = host.folder / "state/tmp/storage123"
    left.mkdir(parents=True)
    (left / "layer.tar").write_text("half a layer")
    chosen("buildah", host).recover()
    assert host.calls()[-1] == "buildah rm --all"
    assert not left.exists()


@pytest.mark.parametrize("engine", [Docker, Buildah])
def test_the_caller_s_environment_chooses_where_the_launcher_comes_from(host, engine):
    host.install("docker")
    host.install("buildah")
    (host.folder / "bin" / "env").symlink_to("/usr/bin/env")
    (host.folder / "bin" / "sudo").symlink_to("/usr/bin/sudo")
    chosen("buildah", host)
    shell = host.shell(LAUNCHER="launcher-of-the-host")
    built = engine(shell) if engine is Docker else Buildah(shell, host.folder / "state")
    built.build(IMAGE, {})
    assert "--build-arg LAUNCHER=launcher-of-the-host" in host.calls()[-1]
