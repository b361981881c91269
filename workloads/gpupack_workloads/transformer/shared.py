# SPDX-License-Identifier: Apache-2.0
"""Whether all ranks see one folder: else a checkpoint's parts would lie in several places."""

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist

from gpupack_workloads.distributed.together import all_or_none
from gpupack_workloads.errors import BadArgument

# A network's file system may show another host's new file late.
PATIENCE_SECONDS = 10.0
PAUSE_SECONDS = 0.1


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
    """Return whether a file shows before patience ends."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True
