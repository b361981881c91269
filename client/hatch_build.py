# SPDX-License-Identifier: Apache-2.0
"""Where the wheel's dependencies on gpupack-core and gpupack-kube lead.

`pip install ./client` in a checkout takes the folders beside it. A wheel that is to go elsewhere
must not name a folder of this machine: GPUPACK_WHEELS=1 builds such ones.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Adds gpupack-core and gpupack-kube to the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Beside those that pyproject.toml lists."""
        ours = [self._ours(name) for name in ("core", "kube")]
        metadata["dependencies"] = [*ours, *self.config["libraries"]]

    def _ours(self, name: str) -> str:
        folder = Path(self.root).parent / name
        beside = folder.is_dir() and not os.environ.get("GPUPACK_WHEELS")
        return f"gpupack-{name} @ {folder.as_uri()}" if beside else f"gpupack-{name}>=0.2.0"
