# SPDX-License-Identifier: Apache-2.0
"""GPUJobs through the REST API."""

import re
import uuid
from typing import Final

from gpupack.cluster.calls import Calls
from gpupack.errors import ConfigInvalid
from gpupack.jobs import sort_queue
from gpupack_restapi.jobs import Changed, Queue, QueueRow, Rerun
from gpupack_restapi.questions import Explanation

PAGE_SIZE: Final = 5000
POD: Final = "pod/"
NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
MAX_NAME: Final = 253
"""Form of a name that may be part of a path."""


class ClusterJobs:
    """The cluster's GPUJobs, which implement Jobs.

    Args:
        calls: calls of the server.
        namespace: default namespace; empty: each call has to name one.
    """

    def __init__(self, calls: Calls, *, namespace: str) -> None:
        self._calls, self._namespace = calls, namespace

    def queue(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueRow]:
        """List what waits; a row that moves between two pages is listed once."""
        where = "" if all_namespaces else self._namespace_for(namespace)
        pages = self._calls.pages("queue", Queue, namespace=where, limit=PAGE_SIZE)
        rows = (row for page in pages for row in page.waiting)
        return sort_queue({(row.kind, row.namespace, row.name): row for row in rows}.values())

    def explain(self, name: str, *, namespace: str = "") -> Explanation:
        """Return why a GPUJob or a standalone pod waits."""
        is_pod = isinstance(name, str) and name.startswith(POD)
        kind, bare = ("pods", name.removeprefix(POD)) if is_pod else ("jobs", name)
        return self._calls.get(f"{kind}/{self._path(bare, namespace)}/explain", Explanation)

    def suspend(self, name: str, *, namespace: str = "") -> Changed:
        """Stop a GPUJob."""
        return self._calls.post(f"jobs/{self._path(name, namespace)}/suspend", Changed, None)

    def resume(self, name: str, *, namespace: str = "") -> Changed:
        """Let a GPUJob wait for GPUs again."""
        return self._calls.post(f"jobs/{self._path(name, namespace)}/resume", Changed, None)

    def rerun(self, name: str, *, namespace: str = "", new_name: str = "") -> Changed:
        """Create a GPUJob; a lost answer creates no second one."""
        path, body = f"jobs/{self._path(name, namespace)}/rerun", Rerun(new_name)
        return self._calls.post(path, Changed, body, key=uuid.uuid4().hex)

    def _path(self, name: str, namespace: str) -> str:
        return f"{self._namespace_for(namespace)}/{_checked('name', name)}"

    def _namespace_for(self, namespace: str) -> str:
        if found := namespace or self._namespace:
            return _checked("namespace", found)
        raise ConfigInvalid("namespace: none is set; give namespace, or set GPUPACK_NAMESPACE")


def _checked(field: str, value: str) -> str:
    if isinstance(value, str) and len(value) > MAX_NAME:
        raise ConfigInvalid(f"{field}: {len(value)} characters; the maximum is {MAX_NAME}")
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    raise ConfigInvalid(
        f"{field}: {value!r} is not a valid name; use lower-case letters, digits, - and ."
    )
