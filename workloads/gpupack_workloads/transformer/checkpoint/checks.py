# SPDX-License-Identifier: Apache-2.0
"""Checks that all ranks see one folder, and that a checkpoint is complete.

If each worker had its own folder, a checkpoint's parts would be in several places.
"""

import contextlib
import io
import pickle
import time
import uuid
from collections.abc import Iterator
from enum import Enum, EnumType
from pathlib import Path, PosixPath
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import filesystem, metadata

from gpupack_workloads.distributed.shared_failure import all_or_none
from gpupack_workloads.errors import BadArgument

# A network's file system may show another host's new file late.
TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS = 0.1
INDEX = ".metadata"
INDEX_MODULES = {module.__name__: module for module in (filesystem, metadata)}
INDEX_GLOBALS = {("torch", "Size"), ("torch.serialization", "_get_layout")}


def require_shared(folder: Path) -> None:
    """Refuse a folder that is not the same for all ranks.

    Raises:
        BadArgument: a rank does not see what rank 0 has written.
    """
    with sign_of_rank_0(folder) as sign, all_or_none():
        if not seen_in_time(sign):
            raise BadArgument(
                f"{folder} is not the folder of that name on worker 0; mount one volume for all"
                " workers (ReadWriteMany) and name it by --checkpoint"
            )


@contextlib.contextmanager
def sign_of_rank_0(folder: Path) -> Iterator[Path]:
    """Have rank 0 leave a file for as long as the context lasts; all ranks learn its name."""
    names = [f".shared.{uuid.uuid4()}"]
    dist.broadcast_object_list(names)
    sign = folder / names[0]
    first = dist.get_rank() == 0
    with all_or_none():
        if first:
            leave(sign)
    try:
        yield sign
    finally:
        if first:
            with contextlib.suppress(OSError):
                sign.unlink()


def leave(sign: Path) -> None:
    """Write the file."""
    try:
        sign.touch()
    except OSError as error:
        raise BadArgument(f"{sign} cannot be written: {error.strerror}") from error


def seen_in_time(path: Path) -> bool:
    """Return whether a file appears before the timeout."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def require_intact(place: Path) -> None:
    """Refuse a checkpoint of which something is missing.

    Raises:
        BadArgument: its index cannot be read, or a file is missing or too short.
    """
    for name, least in lengths(place).items():
        try:
            found = (place / name).stat().st_size
        except OSError as error:
            raise damaged(place, f"{name}: {error.strerror}") from error
        if found < least:
            raise damaged(place, f"{name} has {found} bytes of {least}")


def lengths(place: Path) -> dict[str, int]:
    """Return how many bytes each file must have at least."""
    least: dict[str, int] = {}
    try:
        for part in read_index(place / INDEX).storage_data.values():
            end = part.offset + part.length
            least[part.relative_path] = max(end, least.get(part.relative_path, 0))
    except Exception as error:  # a damaged pickle may raise anything
        raise damaged(place, f"its index .metadata cannot be read ({error!r})") from error
    return least


class IndexUnpickler(pickle._Unpickler):  # noqa: SLF001  in Python: see below
    """Unpickles only the types of torch's index of a checkpoint.

    A pickle may run any program, and a damaged one ask for any amount of memory: the unpickler in C
    makes room for as many numbers as the highest that an entry of its table of objects has.
    """

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return a class of a checkpoint's index, a path's, or a type of numbers."""
        if module_name.startswith("pathlib") and global_name == "PosixPath":
            return PosixPath
        if module_name in INDEX_MODULES:
            found = getattr(INDEX_MODULES[module_name], global_name, None)
            if isinstance(found, type) and found.__module__ == module_name:
                return found
        if module_name == "torch" and isinstance(
            found := getattr(torch, global_name, None), torch.dtype
        ):
            return found
        if (module_name, global_name) in INDEX_GLOBALS:
            return super().find_class(module_name, global_name)
        if (module_name, global_name) == ("builtins", "getattr"):
            return member_of
        raise pickle.UnpicklingError(f"it holds {module_name}.{global_name}")


def member_of(kind: type[Enum], name: str) -> Enum:
    """Return what Python 3.11 makes of a member of an enumeration by getattr: nothing else."""
    return EnumType.__getitem__(kind, name)


def read_index(path: Path) -> metadata.Metadata:
    """Return a checkpoint's index.

    Raises:
        Exception: any error of a damaged pickle.
    """
    content = path.read_bytes()
    unpickler = IndexUnpickler(io.BytesIO(content))
    index = unpickler.load()
    # torch reads it once more, by the unpickler in C.
    entries: dict[int, Any] = vars(unpickler)["memo"]
    if not isinstance(index, metadata.Metadata) or max(entries, default=0) > len(content):
        raise pickle.UnpicklingError("it is no index")
    return index


def damaged(place: Path, what: str) -> BadArgument:
    """Return an error that says what to do."""
    return BadArgument(
        f"the checkpoint {place} is damaged: {what}. Remove that folder to go on from the"
        f" checkpoint before it; if there is none, remove {place.parent.parent}/latest"
        " too, to start from the beginning"
    )
