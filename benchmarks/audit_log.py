# SPDX-License-Identifier: Apache-2.0
"""Reads which calls accounts make to the development cluster's API server from its audit log.

For this the API server is restarted with two more arguments, and restored afterwards.
"""

import contextlib
import dataclasses
import datetime as dt
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import SYSTEM_NAMESPACE, Kube

from gpupack_devcluster import control_plane, processes
from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.driver import HostComponent
from gpupack_devcluster.settings import HOST

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
REVIEWS = {"tokenreviews", "subjectaccessreviews"}
"""Queries that have the form of writes."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One answered call.

    Attributes:
        at: seconds since the epoch.
        account: the service account's name.
        agent: user agent of the caller.
        what: the resource, with its subresource.
    """

    at: float
    account: str
    agent: str
    verb: str
    what: str

    @property
    def is_write(self) -> bool:
        """Whether the call changes stored objects."""
        return self.verb in WRITES and self.what not in REVIEWS


def account(name: str) -> str:
    """Return the API server's name of one of gpupack's service accounts."""
    return f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"


def calls(log: Path) -> Iterator[Call]:
    """Yield all calls of the log, in no order."""
    with log.open() as lines:
        for line in lines:
            entry: dict[str, Any] = json.loads(line)
            ref = entry.get("objectRef", {})
            yield Call(
                at=dt.datetime.fromisoformat(entry["stageTimestamp"]).timestamp(),
                account=entry["user"]["username"].rpartition(":")[2],
                agent=entry.get("userAgent", ""),
                verb=entry["verb"],
                what="/".join(filter(None, (ref.get("resource"), ref.get("subresource")))),
            )


@contextlib.contextmanager
def audited(cluster: Cluster, log: Path, accounts: Sequence[str]) -> Iterator[None]:
    """Log the calls of these service accounts for as long as the context lasts."""
    users = [account(name) for name in accounts]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    }
    rules = log.with_name("audit-policy.json")
    rules.write_text(json.dumps(policy))
    log.unlink(missing_ok=True)
    extra = [
        f"--audit-policy-file={rules}",
        f"--audit-log-path={log}",
        "--audit-log-maxsize=4096",  # MiB; what is rotated would not be read
    ]
    try:
        _restart_api_server(cluster, extra)
        yield
    finally:
        _restart_api_server(cluster, [])


def _restart_api_server(cluster: Cluster, extra: list[str]) -> None:
    """Restart it with these additional arguments, and wait until the scheduler leads again."""
    settings, component = cluster.settings, HostComponent.API_SERVER
    paths = settings.paths
    cluster.kill(HOST, component)
    processes.spawn(
        [str(paths.bin / component), *control_plane.api_server(settings), *extra],
        environment=processes.daemon_environment(paths.state, component, paths.bin),
        log=paths.unit_log(component),
    )
    system = Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)
    time.sleep(5)  # what was Ready is so still in the store; nothing is awaited before it is judged
    ready = ["deploy/gpupack-scheduler", "--for=condition=Available", "--timeout=120s"]
    system.insist("wait", *ready)
