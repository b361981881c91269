# SPDX-License-Identifier: Apache-2.0
"""The command line: build, identify, export, list, uv-environment.

It imports only Python's standard library. So images are built from the first second of a set-up,
while the libraries of everything else are still being downloaded.
"""

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpupack_images.base import ensure_base
from gpupack_images.catalog import IMAGES, Image, select
from gpupack_images.engines import Docker, Engine, choose_engine
from gpupack_images.errors import ImagesError
from gpupack_images.host import read_host, read_uv_environment, write_secrets
from gpupack_images.shell import Shell


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ImagesError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpupack_images", description="Build gpupack's container images."
    )
    commands = parser.add_subparsers(required=True)
    for command, purpose in (
        (list_images, "Print every target and the name of its image."),
        (build, "Build the images of TARGETS, or all of them; what has not changed is reused."),
        (identify, "Print the IDs of the images of TARGETS, or of all."),
        (
            export,
            "Write archives that kind loads, where it cannot ask Docker; print what to load.",
        ),
    ):
        added = commands.add_parser(
            command.__name__.removesuffix("_images"), help=purpose, description=purpose
        )
        added.set_defaults(command=command)
        if command is not list_images:
            added.add_argument("targets", metavar="TARGETS", nargs="*")
            added.add_argument("--root", type=Path, default=Path(), help="The repository.")
            added.add_argument("--engine", choices=["auto", "docker", "buildah"], default="auto")
    purpose = "Print the variables by which uv downloads as this host's pip does."
    commands.add_parser("uv-environment", help=purpose, description=purpose).set_defaults(
        command=print_uv_environment
    )
    return parser


def print_uv_environment(options: argparse.Namespace) -> None:
    """Print assignments that a shell can evaluate."""
    del options
    sys.stdout.write(read_uv_environment(os.environ))


def list_images(options: argparse.Namespace) -> None:
    """Print every target and the name of its image."""
    del options
    for image in IMAGES:
        _say(f"{image.target:16} {image.name}")


def build(options: argparse.Namespace) -> None:
    """Build images; what has not changed is reused."""
    images = select(options.targets)
    workshop = open_workshop(options.engine, options.root)
    with _alone(workshop.state / "lock"):
        workshop.shell.log.write_bytes(b"")
        build_images(images, workshop)


def identify(options: argparse.Namespace) -> None:
    """Print the IDs of images."""
    images = select(options.targets)
    workshop = open_workshop(options.engine, options.root)
    for image in images:
        _say(f"{image.name} {workshop.engine.identify(image.name)}")


def export(options: argparse.Namespace) -> None:
    """Print what kind has to load."""
    images = select(options.targets)
    workshop = open_workshop(options.engine, options.root)
    for image in images:
        _say(exported(image, workshop))


@dataclass(frozen=True)
class Workshop:
    """The folder, shell and engine with which images are built."""

    state: Path
    shell: Shell
    engine: Engine


def open_workshop(engine: str, root: Path) -> Workshop:
    """Prepare the state folder and choose the engine."""
    state = root.resolve() / ".dev" / "images"
    state.mkdir(parents=True, exist_ok=True)
    shell = Shell(folder=root.resolve(), log=state / "build.log", environ=os.environ)
    return Workshop(state, shell, choose_engine(engine, shell=shell, state=state))


def build_images(images: Sequence[Image], workshop: Workshop) -> None:
    """Provide the base, then build each image and print its seconds.

    Images with torch or TensorFlow, whose downloads take longest, are built in parallel with the
    others.
    """
    engine, state = workshop.engine, workshop.state
    engine.recover()
    host = read_host(os.environ)
    secrets = write_secrets(host, state / "secrets")
    _timed("base", partial(ensure_base, engine, host=host, shell=workshop.shell, state=state))

    def one_by_one(line: Sequence[Image]) -> None:
        for image in line:
            _timed(image.target, partial(engine.build, image, secrets))

    large = [image for image in images if image.large]
    small = [image for image in images if not image.large]
    with ThreadPoolExecutor(2) as lines:
        list(lines.map(one_by_one, (large, small)))
    engine.prune()


def exported(image: Image, workshop: Workshop) -> str:
    """Return what `kind load` needs for an image; an archive is written once per content."""
    if isinstance(workshop.engine, Docker):
        return image.name
    folder = workshop.state / "archives"
    folder.mkdir(exist_ok=True)
    identity = workshop.engine.identify(image.name).removeprefix("sha256:")
    archive = folder / f"{image.target}-{identity[:12]}.tar"
    if not archive.exists():
        for old in folder.glob(f"{image.target}-{'?' * 12}.*"):
            old.unlink()
        unfinished = archive.with_suffix(".new")
        workshop.engine.export(image.name, unfinished)
        unfinished.replace(archive)
    return str(archive)


def _timed(name: str, work: Callable[[], str | None]) -> None:
    start = time.monotonic()
    outcome = work()
    seconds = time.monotonic() - start
    _say(f"  image {name:16} {seconds:6.1f} s" + (f"  ({outcome})" if outcome else ""))


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other build is running on this store."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
