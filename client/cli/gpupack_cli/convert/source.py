# SPDX-License-Identifier: Apache-2.0
"""Files, folders and stdin as manifests and scripts."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from gpupack_cli.errors import InputInvalid
from gpupack_cli.manifest_files import documents, read_bytes
from gpupack_kubeclient.objects import Json

MAX_FILES: Final = 1000
MAX_DOCUMENTS: Final = 1000
"""Maximum documents of one call, items of Lists included."""
MAX_VALUES: Final = 100_000
"""Maximum values of one file after its aliases are expanded: YAML can name a value many times."""

SUFFIXES: Final = (".yaml", ".yml", ".json", ".sh", ".sbatch", ".slurm")
"""Names of the files of a folder that are read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """An object of Kubernetes.

    Attributes:
        json: the object, without nulls, which mean absent fields.
    """

    json: Json

    @property
    def api_version(self) -> str:
        """The API group and version."""
        return str(self.json.get("apiVersion", ""))

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.json.get("kind", ""))

    @property
    def name(self) -> str:
        """The source's name in messages."""
        metadata = self.json.get("metadata")
        named = metadata.get("name") if isinstance(metadata, dict) else None
        return f"{self.kind}/{named or '(no name)'}"


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script with `#SBATCH` lines.

    Attributes:
        name: the source's name in messages.
        text: the script.
    """

    name: str
    text: str


def read(paths: tuple[Path, ...]) -> list[Manifest | Script]:
    """Read the sources of files and folders; `-` is stdin.

    Raises:
        InputInvalid: a file cannot be read, is no manifest, or exceeds a limit.
    """
    found = list[Manifest | Script]()
    for path in _files(paths):
        found += _sources(path)
        if len(found) > MAX_DOCUMENTS:
            raise InputInvalid(
                f"{path}: more than {MAX_DOCUMENTS} documents in all; convert fewer files at once"
            )
    return found


def _files(paths: tuple[Path, ...]) -> list[Path]:
    files = list[Path]()
    for path in paths:
        if str(path) != "-" and path.is_dir():
            inside = sorted(
                each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file()
            )
            if not inside:
                raise InputInvalid(f"{path} has no file that ends in {', '.join(SUFFIXES)}")
            files += inside
        else:
            files.append(path)
    if len(files) > MAX_FILES:
        raise InputInvalid(f"{len(files)} files are too many; convert at most {MAX_FILES} at once")
    return files


def _sources(path: Path) -> Iterator[Manifest | Script]:
    content = read_bytes(path)
    if content.startswith((b"#!", b"#SBATCH")) or b"\n#SBATCH" in content:
        yield Script("stdin" if str(path) == "-" else path.name, _text(content, path))
        return
    remaining = MAX_VALUES
    for document in documents(content, path):
        if document is None:
            continue
        remaining -= _count_values(document, remaining, path)
        try:
            plain = msgspec.to_builtins(document, str_keys=True)
        except TypeError as error:
            raise InputInvalid(f"{path} is not a manifest: {error}") from error
        yield from _manifests(plain, path)


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputInvalid(f"{path} is not a script in UTF-8: {error.reason}") from error


def _count_values(document: Any, maximum: int, path: Path) -> int:
    """Return the number of values; raises InputInvalid above the maximum, such as for a cycle."""
    pending, count = [document], 0
    while pending:
        count += 1
        if count > maximum:
            raise InputInvalid(
                f"{path} has more than {MAX_VALUES} values, aliases expanded; split the file"
            )
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return count


def _manifests(document: Any, path: Path) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise InputInvalid(f"{path} is not a manifest: its top level is {type(document).__name__}")
    if document.get("kind") == "List":
        items = document.get("items")
        for each in items if isinstance(items, list) else []:
            yield from _manifests(each, path)
        return
    if not isinstance(document.get("kind"), str) or not isinstance(document.get("apiVersion"), str):
        raise InputInvalid(f"{path} is not a manifest: a document has no apiVersion or no kind")
    yield Manifest(_without_nulls(document))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
