# SPDX-License-Identifier: Apache-2.0
"""Where the wheel's dependency on gpupack-core leads.

`pip install ./client` in a checkout takes the folder beside it. A wheel that is to go elsewhere
must not name a folder of this machine: GPUPACK_WHEELS=1 builds such ones.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Adds gpupack-core to the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Beside those that pyproject.toml lists."""
        core = Path(self.root).parent / "core"
        beside = core.is_dir() and not os.environ.get("GPUPACK_WHEELS")
        ours = f"gpupack-core @ {core.as_uri()}" if beside else "gpupack-core>=0.1.0"
        metadata["dependencies"] = [ours, *self.config["libraries"]]
