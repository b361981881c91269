# SPDX-License-Identifier: Apache-2.0
"""Parsing of manifest files."""

from pathlib import Path
from typing import Any, Final

import click
import yaml

from gpupack_cli.errors import InputInvalid
from gpupack_crds import names

MAX_BYTES: Final = 4 << 20


def objects_of_kind(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of one of gpupack's kinds in a file; skip other kinds.

    Raises:
        InputInvalid: it cannot be read, or is not a manifest.
    """
    found = []
    for document in documents(read_bytes(path), path):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InputInvalid(
                f"{path} is not a manifest: its top level is {type(document).__name__}"
            )
        items = document.get("items") if document.get("kind") == "List" else [document]
        found += [each for each in items or [] if _is(each, kind)]
    for each in found:
        for part in ("metadata", "spec"):
            if not isinstance(each.get(part) or {}, dict):
                raise InputInvalid(f"{part} of a {kind} in {path} is not an object")
    if not found:
        raise InputInvalid(f"{path} has no {kind} of {names.API_VERSION}")
    return found


def _is(item: object, kind: str) -> bool:
    return (
        isinstance(item, dict)
        and item.get("kind") == kind
        and item.get("apiVersion") == names.API_VERSION
    )


def read_bytes(path: Path) -> bytes:
    """Read a file; `-` is stdin.

    Raises:
        InputInvalid: it cannot be read, or is too large.
    """
    try:
        with click.open_file(str(path), "rb") as file:
            content: bytes = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputInvalid(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise InputInvalid(f"{path} is larger than {MAX_BYTES >> 20} MiB, the maximum")
    return content


def documents(content: bytes, path: Path) -> list[Any]:
    """Parse the YAML documents of a file.

    Raises:
        InputInvalid: it is not YAML.
    """
    try:
        return list(yaml.safe_load_all(content))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputInvalid(f"{path} is not YAML: {' '.join(str(error).split())}") from error
