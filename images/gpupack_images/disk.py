# SPDX-License-Identifier: Apache-2.0
"""Is there room? Asked before anything is downloaded, so it imports nothing but Python's own.

The torch image is 6 GB; while its layer is committed there are three copies of it: then a set-up
from nothing takes the most, 30 GB as measured. The same three copies of TensorFlow's 1.3 GB are the
most that a checkout with torch's image takes.
"""

import shutil
import sys
from pathlib import Path

GB = 1_000_000_000
NEEDED_FROM_NOTHING_GB = 32
NEEDED_LATER_GB = 6


def missing_room(*, free_bytes: int, set_up: bool) -> str | None:
    """Say what is missing, or nothing when there is room."""
    needed_gb = NEEDED_LATER_GB if set_up else NEEDED_FROM_NOTHING_GB
    if free_bytes >= needed_gb * GB:
        return None
    return (
        f"{free_bytes / GB:.1f} GB of disk are free and {needed_gb} GB are needed"
        " (container images with CUDA's libraries, Go's build cache)."
        " Free some, or clone the repository onto a larger disk: all state lies in its .dev folder."
    )


def main(arguments: list[str]) -> int:
    """Check the disk under the folder given; `--set-up` when the big image is already there."""
    folder = Path(arguments[0])
    problem = missing_room(
        free_bytes=shutil.disk_usage(folder).free, set_up="--set-up" in arguments[1:]
    )
    if problem:
        sys.stderr.write(f"not enough room in {folder}: {problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
