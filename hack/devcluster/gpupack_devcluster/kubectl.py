# SPDX-License-Identifier: Apache-2.0
"""kubectl as a library, for the few questions of the driver itself."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpupack_devcluster.commands import run, succeeds
from gpupack_devcluster.errors import NotInTime


class Kubectl:
    """A client of the API server with the administrator's permissions."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._command: list[str | Path] = [binary, "--kubeconfig", kubeconfig]

    def __call__(self, *arguments: str, text_input: str | None = None) -> str:
        """Run kubectl; return its output."""
        return run([*self._command, *arguments], text_input=text_input)

    def api_is_ready(self) -> bool:
        """Return whether the API server answers and has finished starting."""
        return succeeds([*self._command, "--request-timeout=3s", "get", "--raw", "/readyz"])

    def nodes(self) -> list[dict[str, Any]]:
        """Return all Node objects."""
        items: list[dict[str, Any]] = json.loads(self("get", "nodes", "-o", "json"))["items"]
        return items

    def ready_nodes(self, *, since: float = 0.0) -> set[str]:
        """Return nodes that are Ready by a heartbeat since a time (seconds since 1970).

        After a restart with etcd's data kept, nodes still appear Ready from before.
        """
        return {n["metadata"]["name"] for n in self.nodes() if is_ready(n, since=since)}

    def wait_ready(
        self, names: Sequence[str], *, seconds: float, since: float = 0.0, hint: str
    ) -> None:
        """Wait until all these nodes are Ready; report which are not, and where their logs are."""

        def late() -> set[str]:
            return set(names) - self.ready_nodes(since=since)

        try:
            wait_until(lambda: not late(), what="Ready", seconds=seconds)
        except NotInTime as error:
            nodes = ", ".join(sorted(late()))
            raise NotInTime(f"not Ready after {seconds:.0f} s: {nodes} ({hint})") from error


def is_ready(node: dict[str, Any], *, since: float) -> bool:
    """Return whether one Node object is Ready; heartbeats have whole seconds."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            heartbeat = condition.get("lastHeartbeatTime")
            return bool(heartbeat) and datetime.fromisoformat(heartbeat).timestamp() >= int(since)
    return False


def wait_until(
    condition: Callable[[], bool], *, what: str, seconds: float, pause_seconds: float = 0.1
) -> None:
    """Check a condition repeatedly, for a limited time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not after {seconds:.0f} s")
        time.sleep(pause_seconds)
