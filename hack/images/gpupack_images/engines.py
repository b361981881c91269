# SPDX-License-Identifier: Apache-2.0
"""The two programs that can build: Docker where it has BuildKit, else buildah.

Debian's docker.io comes without buildx, and its fallback builder does not support secrets.

buildah keeps its store under .dev/images (settings: storage.conf there) with one plain folder per
layer (no metacopy, no redirected folders), because the dev cluster hard-links those folders into
its nodes: an image is on disk once, without export or import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpupack_images.catalog import Image
from gpupack_images.errors import NoEngine
from gpupack_images.shell import Shell, as_root

PULL_TIMEOUT_SECONDS = 300
PRUNE_TIMEOUT_SECONDS = 300
# A file, because buildah's own options split overlay's mount options at their commas.
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{state}/root"
runroot = "{state}/run"
[storage.options.overlay]
mountopt = "nodev,metacopy=off,redirect_dir=off"
"""
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")
# Arguments of the Dockerfile that the caller's environment may set.
ARGUMENTS = ("LAUNCHER",)


class Engine(Protocol):
    """The operations of Docker or buildah that building needs."""

    def has(self, image: str) -> bool:
        """Tell whether the image is in the local store."""

    def identify(self, image: str) -> str:
        """Return the ID of an image in the local store; it changes with the content."""

    def pull(self, image: str) -> bool:
        """Fetch an image from its registry; return False when that is not possible."""

    def adopt(self, image: str, archive: Path) -> None:
        """Make a one-layer image from a tar archive of a root file system."""

    def build(self, image: Image, secrets: Mapping[str, Path]) -> None:
        """Build one target of the Dockerfile, and reuse every layer that is still valid."""

    def recover(self) -> None:
        """Remove what an interrupted build has left; no other build may be running."""

    def prune(self) -> None:
        """Remove layers that no named image needs."""

    def export(self, image: str, archive: Path) -> None:
        """Write an image, under its name, to an archive that `kind load image-archive` reads."""


@dataclass(frozen=True)
class Docker:
    """Docker with BuildKit."""

    shell: Shell

    def has(self, image: str) -> bool:
        """Tell whether the image is in the daemon's store."""
        return self.shell.succeeds("docker", "image", "inspect", image)

    def identify(self, image: str) -> str:
        """Return the image's ID."""
        return self.shell.read("docker", "image", "inspect", "--format", "{{.Id}}", image)

    def pull(self, image: str) -> bool:
        """Fetch an image from its registry."""
        return self.shell.succeeds("docker", "pull", image, timeout_seconds=PULL_TIMEOUT_SECONDS)

    def adopt(self, image: str, archive: Path) -> None:
        """Make a one-layer image from a tar archive."""
        self.shell.run("docker", "import", str(archive), image)

    def build(self, image: Image, secrets: Mapping[str, Path]) -> None:
        """Build one target; proxies are BuildKit's predefined arguments, which leave no trace."""
        given = [name for name in PROXY_VARIABLES if name in self.shell.environ]
        arguments = [option for name in given for option in ("--build-arg", name)]
        shell = replace(self.shell, environ={**self.shell.environ, "DOCKER_BUILDKIT": "1"})
        # The host's network, as with buildah: a mirror or proxy may listen only on the host.
        network = ("--network", "host")
        options = _options(image, secrets, shell)
        shell.run("docker", "build", *network, *arguments, *options, ".")

    def recover(self) -> None:
        """Do nothing: the daemon cleans up by itself."""

    def prune(self) -> None:
        """Remove untagged images; BuildKit limits its build cache itself."""
        self.shell.run("docker", "image", "prune", "--force")

    def export(self, image: str, archive: Path) -> None:
        """Write an image to an archive."""
        self.shell.run("docker", "save", "--output", str(archive), image)


@dataclass(frozen=True)
class Buildah:
    """buildah with its own store."""

    shell: Shell
    state: Path

    def has(self, image: str) -> bool:
        """Tell whether the image is in this store."""
        return self.shell.succeeds(*self._command("inspect", "--type", "image", image))

    def identify(self, image: str) -> str:
        """Return the image's ID."""
        form = ("--type", "image", "--format", "{{.FromImageID}}")
        return self.shell.read(*self._command("inspect", *form, image))

    def pull(self, image: str) -> bool:
        """Fetch an image from its registry."""
        return self.shell.succeeds(
            *self._command("pull", "--quiet", image), timeout_seconds=PULL_TIMEOUT_SECONDS
        )

    def adopt(self, image: str, archive: Path) -> None:
        """Make a one-layer image from a tar archive, by way of a working container."""
        container = self.shell.read(*self._command("from", "scratch"))
        try:
            self._run("add", "--quiet", container, str(archive), "/")
            self._run("config", "--cmd", "bash", container)
            self._run("commit", "--quiet", container, image)
        finally:
            self._run("rm", container)

    def build(self, image: Image, secrets: Mapping[str, Path]) -> None:
        """Build one target without a question to a registry."""
        isolation = ("--isolation", "chroot", "--pull-never", "--layers", "--force-rm")
        self._run("build", *isolation, *_options(image, secrets, self.shell), ".")

    def recover(self) -> None:
        """Remove working containers and half-written layers: up to 10 GB of torch."""
        self._run("rm", "--all")
        self.shell.run(*as_root("find", str(self.state / "tmp"), "-mindepth", "1", "-delete"))

    def prune(self) -> None:
        """Remove untagged images that no tagged one is based on; one that is in use stays."""
        self.shell.succeeds(*self._command("rmi", "--prune"), timeout_seconds=PRUNE_TIMEOUT_SECONDS)

    def export(self, image: str, archive: Path) -> None:
        """Write an image to an archive, uncompressed: it is read once, on this machine."""
        self._run("push", "--quiet", image, f"docker-archive:{archive}:{image}")

    def _run(self, *arguments: str) -> None:
        self.shell.run(*self._command(*arguments))

    def _command(self, *arguments: str) -> tuple[str, ...]:
        # A commit writes its layer to TMPDIR first: 5 GB that must not fill a small /tmp.
        settings = (
            f"CONTAINERS_STORAGE_CONF={self.state / 'storage.conf'}",
            f"TMPDIR={self.state / 'tmp'}",
        )
        return (*as_root("env", *settings, "buildah"), *arguments)


def choose_engine(wanted: str, *, shell: Shell, state: Path) -> Engine:
    """Return the requested engine; with `auto`, Docker where its daemon answers and has buildx."""
    docker = wanted in ("auto", "docker") and shell.succeeds("docker", "version")
    if docker and shell.succeeds("docker", "buildx", "version"):
        return Docker(shell)
    if wanted in ("auto", "buildah") and shell.succeeds("buildah", "--version"):
        (state / "tmp").mkdir(parents=True, exist_ok=True)
        (state / "storage.conf").write_text(STORAGE.format(state=state))
        return Buildah(shell, state)
    raise NoEngine(
        f"engine {wanted}: {'Docker has no buildx' if docker else 'no Docker daemon answers'} and"
        f" {'buildah was not requested' if wanted == 'docker' else 'buildah is not installed'};"
        " `make` installs buildah on Debian and Ubuntu, or start Docker, with its buildx plugin"
    )


def _options(image: Image, secrets: Mapping[str, Path], shell: Shell) -> list[str]:
    environ = shell.environ
    given = [("--secret", f"id={name},src={path}") for name, path in sorted(secrets.items())]
    given += [("--build-arg", f"{name}={environ[name]}") for name in ARGUMENTS if name in environ]
    flat = [part for pair in given for part in pair]
    return [*flat, "--target", image.target, "--tag", image.name]
