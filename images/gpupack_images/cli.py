# SPDX-License-Identifier: Apache-2.0
"""The command line: build, identify, list."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from gpupack_images.base import ensure_base
from gpupack_images.catalog import IMAGES, Image, select
from gpupack_images.engines import Engine, choose_engine
from gpupack_images.errors import ImagesError
from gpupack_images.host import read_host, write_secrets
from gpupack_images.shell import Shell


@click.group()
def main() -> None:
    """Build gpupack's container images."""


@main.command("list")
def list_images() -> None:
    """Print every target and the name of its image."""
    for image in IMAGES:
        click.echo(f"{image.target:16} {image.name}")


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that the commands share."""
    for option in (
        click.option("--root", type=click.Path(path_type=Path), default=Path(), help="Repository."),
        click.option("--engine", type=click.Choice(["auto", "docker", "buildah"]), default="auto"),
        click.argument("targets", nargs=-1),
    ):
        command = option(command)
    return command


@main.command()
@options
def build(targets: tuple[str, ...], engine: str, root: Path) -> None:
    """Build the images of TARGETS, or all of them; what has not changed is reused."""
    with _one_line_errors():
        workshop = open_workshop(engine, root)
        with _alone(workshop.state / "lock"):
            workshop.shell.log.write_bytes(b"")
            build_images(select(targets), workshop)


@main.command()
@options
def identify(targets: tuple[str, ...], engine: str, root: Path) -> None:
    """Print the IDs of the images of TARGETS, or of all."""
    with _one_line_errors():
        workshop = open_workshop(engine, root)
        for image in select(targets):
            click.echo(f"{image.name} {workshop.engine.identify(image.name)}")


@dataclass(frozen=True)
class Workshop:
    """Where images are built and with what."""

    state: Path
    shell: Shell
    engine: Engine


def open_workshop(engine: str, root: Path) -> Workshop:
    """Prepare the state folder and find the engine."""
    state = root.resolve() / ".dev" / "images"
    state.mkdir(parents=True, exist_ok=True)
    shell = Shell(folder=root.resolve(), log=state / "build.log", environ=os.environ)
    return Workshop(state, shell, choose_engine(engine, shell=shell, state=state))


def build_images(images: Sequence[Image], workshop: Workshop) -> None:
    """Bring the base, then build each image, printing its seconds."""
    engine, state = workshop.engine, workshop.state
    engine.recover()
    host = read_host(os.environ)
    secrets = write_secrets(host, state / "secrets")
    _timed("base", partial(ensure_base, engine, host=host, shell=workshop.shell, state=state))
    for image in images:
        _timed(image.target, partial(engine.build, image, secrets))
    engine.prune()


def _timed(name: str, work: Callable[[], str | None]) -> None:
    start = time.monotonic()
    outcome = work()
    seconds = time.monotonic() - start
    click.echo(f"  image {name:16} {seconds:6.1f} s" + (f"  ({outcome})" if outcome else ""))


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other build is running on this store."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except ImagesError as error:
        raise click.ClickException(str(error)) from error
