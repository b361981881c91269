# SPDX-License-Identifier: Apache-2.0
"""The two programs that can build: Docker where it has BuildKit, else buildah.

Debian's docker.io comes without buildx, and the builder that it falls back to knows no secrets.

buildah keeps its store under .dev/images (settings: storage.conf there) with one plain folder per
layer (no metacopy, no redirected folders), because the dev cluster hard-links those folders into
its nodes: an image stands on disk once, and nothing is exported or imported.
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
    """What building needs of Docker or buildah."""

    def has(self, image: str) -> bool:
        """Tell whether the image is in the local store."""

    def identify(self, image: str) -> str:
        """Return the ID of an image in the local store: another content has another."""

    def pull(self, image: str) -> bool:
        """Fetch an image from its registry; False when that cannot be done."""

    def adopt(self, image: str, archive: Path) -> None:
        """Make a one-layer image from a tar archive of a root file system."""

    def build(self, image: Image, secrets: Mapping[str, Path]) -> None:
        """Build one target of the Dockerfile, reusing every layer that still holds."""

    def recover(self) -> None:
        """Drop what an interrupted build has left; nobody else may be building."""

    def prune(self) -> None:
        """Drop layers that no named image needs."""

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
        # The host's network, as with buildah: a mirror or proxy may listen on the host alone.
        network = ("--network", "host")
        options = _options(image, secrets, shell)
        shell.run("docker", "build", *network, *arguments, *options, ".")

    def recover(self) -> None:
        """Do nothing: the daemon keeps its own house."""

    def prune(self) -> None:
        """Drop untagged images; the build cache is BuildKit's own and bounded by it."""
        self.shell.run("docker", "image", "prune", "--force")

    def export(self, image: str, archive: Path) -> None:
        """Write an image to an archive."""
        self.shell.run("docker", "save", "--output", str(archive), image)


@dataclass(frozen=True)
class Buildah:
    """buildah with a store of our own."""

    shell: Shell
    state: Path

    def has(self, image: str) -> bool:
        """Tell whether the image is in our store."""
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
        """Build one target without ever asking a registry."""
        isolation = ("--isolation", "chroot", "--pull-never", "--layers", "--force-rm")
        self._run("build", *isolation, *_options(image, secrets, self.shell), ".")

    def recover(self) -> None:
        """Drop working containers and half-written layers: up to 10 GB of torch."""
        self._run("rm", "--all")
        self.shell.run(*as_root("find", str(self.state / "tmp"), "-mindepth", "1", "-delete"))

    def prune(self) -> None:
        """Drop untagged images that no tagged one stands on; one that is in use just stays."""
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
    """Return the engine asked for; with `auto`, Docker where its daemon answers and has buildx."""
    docker = wanted in ("auto", "docker") and shell.succeeds("docker", "version")
    if docker and shell.succeeds("docker", "buildx", "version"):
        return Docker(shell)
    if wanted in ("auto", "buildah") and shell.succeeds("buildah", "--version"):
        (state / "tmp").mkdir(parents=True, exist_ok=True)
        (state / "storage.conf").write_text(STORAGE.format(state=state))
        return Buildah(shell, state)
    raise NoEngine(
        f"engine {wanted}: {'Docker has no buildx' if docker else 'no Docker daemon answers'} and"
        f" {'buildah was not asked for' if wanted == 'docker' else 'buildah is not installed'};"
        " `make` installs buildah on Debian and Ubuntu, or start Docker, with its buildx plugin"
    )


def _options(image: Image, secrets: Mapping[str, Path], shell: Shell) -> list[str]:
    environ = shell.environ
    given = [("--secret", f"id={name},src={path}") for name, path in sorted(secrets.items())]
    given += [("--build-arg", f"{name}={environ[name]}") for name in ARGUMENTS if name in environ]
    flat = [part for pair in given for part in pair]
    return [*flat, "--target", image.target, "--tag", image.name]
