# SPDX-License-Identifier: Apache-2.0
"""Which calls accounts make to the API server of the development cluster, by its audit log.

For that the API server is started anew with two more arguments, and as it was afterwards.
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
"""Questions in the form of writes."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One that was answered.

    Attributes:
        at: seconds since the epoch.
        account: the service account's name.
        agent: how the caller names itself.
        what: the resource, with its subresource.
    """

    at: float
    account: str
    agent: str
    verb: str
    what: str

    @property
    def is_write(self) -> bool:
        """Whether it changes what is stored."""
        return self.verb in WRITES and self.what not in REVIEWS


def account(name: str) -> str:
    """A service account of gpupack's, as the API server has it."""
    return f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"


def calls(log: Path) -> Iterator[Call]:
    """All that the log has, in no order."""
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
    """The API server writes down what these service accounts call."""
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
    """Start it with these arguments besides its own, and wait until the scheduler leads again."""
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
