# SPDX-License-Identifier: Apache-2.0
"""Whether a checkpoint's files are all there, and as long as its index says."""

from pathlib import Path

from torch.distributed.checkpoint import FileSystemReader

from gpupack_workloads.errors import BadArgument


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
        parts = FileSystemReader(place).read_metadata().storage_data.values()
        for part in parts:
            end = part.offset + part.length
            least[part.relative_path] = max(end, least.get(part.relative_path, 0))
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise damaged(place, f"its index .metadata cannot be read ({error!r})") from error
    return least


def damaged(place: Path, what: str) -> BadArgument:
    """Return an error that says what to do."""
    return BadArgument(
        f"the checkpoint {place} is damaged: {what}. Remove that folder to go on from the"
        f" checkpoint before it; if there is none, remove {place.parent.parent}/latest"
        " too, to start anew"
    )
