# SPDX-License-Identifier: Apache-2.0
"""The wheel's dependencies on other packages of this repository.

`pip install ./client` in a checkout takes them from lib/. A wheel for other machines must not name
a folder of this one: GPUPACK_WHEELS=1 builds such a wheel.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """The hook that adds packages of lib/ to the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to those that pyproject.toml lists."""
        ours = [self._ours(name) for name in ("devices", "kubeclient", "placement", "restapi")]
        metadata["dependencies"] = [*ours, *self.config["libraries"]]

    def _ours(self, name: str) -> str:
        folder = Path(self.root).parent / "lib" / name
        in_checkout = folder.is_dir() and not os.environ.get("GPUPACK_WHEELS")
        return f"gpupack-{name} @ {folder.as_uri()}" if in_checkout else f"gpupack-{name}>=0.2.0"
