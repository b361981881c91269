# SPDX-License-Identifier: Apache-2.0
"""A check for free disk space before any download; it imports only the standard library.

The torch image is 6 GB; while its layer is committed there are three copies of it. A set-up from
nothing then needs the most, 30 GB as measured. The same three copies of TensorFlow's 1.3 GB are the
most that a checkout with torch's image needs.
"""

import shutil
import sys
from pathlib import Path

GB = 1_000_000_000
NEEDED_FROM_NOTHING_GB = 32
NEEDED_LATER_GB = 6


def missing_space(*, free_bytes: int, set_up: bool) -> str | None:
    """Return what is missing, or nothing when there is enough space."""
    needed_gb = NEEDED_LATER_GB if set_up else NEEDED_FROM_NOTHING_GB
    if free_bytes >= needed_gb * GB:
        return None
    return (
        f"{free_bytes / GB:.1f} GB of disk are free and {needed_gb} GB are needed"
        " (container images with CUDA's libraries, Go's build cache)."
        " Free some, or clone the repository onto a larger disk: all state is in its .dev folder."
    )


def main(arguments: list[str]) -> int:
    """Check the disk of the given folder; `--set-up` when the big image already exists."""
    folder = Path(arguments[0])
    problem = missing_space(
        free_bytes=shutil.disk_usage(folder).free, set_up="--set-up" in arguments[1:]
    )
    if problem:
        sys.stderr.write(f"not enough space in {folder}: {problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
