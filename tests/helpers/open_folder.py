# SPDX-License-Identifier: Apache-2.0
"""A temporary folder that other users of the machine reach.

`tmp_path` is none: each session of pytest closes the folder of all sessions to other users when it
begins, and other tests start such sessions.
"""

import contextlib
import tempfile
from pathlib import Path


@contextlib.contextmanager
def open_folder():
    """Make it, and remove it with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="gpupack-test-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder
