# SPDX-License-Identifier: Apache-2.0
"""The command line: build, list."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from gpupack_images.base import ensure_base
from gpupack_images.catalog import IMAGES, select
from gpupack_images.engines import choose_engine
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


@main.command()
@click.argument("targets", nargs=-1)
@click.option("--engine", type=click.Choice(["auto", "docker", "buildah"]), default="auto")
@click.option("--root", type=click.Path(path_type=Path), default=Path(), help="The repository.")
def build(targets: tuple[str, ...], engine: str, root: Path) -> None:
    """Build the images of TARGETS, or all of them; what has not changed is reused."""
    try:
        build_images(targets, engine=engine, root=root.resolve())
    except ImagesError as error:
        raise click.ClickException(str(error)) from error


def build_images(targets: tuple[str, ...], *, engine: str, root: Path) -> None:
    """Bring the base, then build each image, printing its seconds."""
    images = select(targets)
    state = root / ".dev" / "images"
    state.mkdir(parents=True, exist_ok=True)
    shell = Shell(folder=root, log=state / "build.log", environ=os.environ)
    shell.log.write_bytes(b"")
    builder = choose_engine(engine, shell=shell, state=state)
    host = read_host(os.environ)
    secrets = write_secrets(host, state / "secrets")
    _timed("base", partial(ensure_base, builder, host=host, shell=shell, state=state))
    for image in images:
        _timed(image.target, partial(builder.build, image, secrets))
    builder.prune()


def _timed(name: str, work: Callable[[], str | None]) -> None:
    start = time.monotonic()
    outcome = work()
    seconds = time.monotonic() - start
    click.echo(f"  image {name:16} {seconds:6.1f} s" + (f"  ({outcome})" if outcome else ""))
