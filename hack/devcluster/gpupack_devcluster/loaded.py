# SPDX-License-Identifier: Apache-2.0
"""The list of images that every node gets, including nodes that boot later."""

import json
from collections.abc import Iterable
from pathlib import Path


def is_archive(image: str) -> bool:
    """Return whether an argument of `load` is a file; names never end like this."""
    return image.endswith((".tar", ".tar.gz", ".tgz"))


def read(record: Path) -> tuple[str, ...]:
    """Return the images that have been loaded so far, in order."""
    if not record.exists():
        return ()
    return tuple(json.loads(record.read_text()))


def add(record: Path, images: Iterable[str]) -> None:
    """Add images to the list; an archive by its full path."""
    named = [str(Path(image).resolve()) if is_archive(image) else image for image in images]
    write(record, dict.fromkeys([*read(record), *named]))


def write(record: Path, images: Iterable[str]) -> None:
    """Replace the list."""
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(list(images), indent=1))
