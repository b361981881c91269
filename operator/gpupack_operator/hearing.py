# SPDX-License-Identifier: Apache-2.0
"""From events to keys in the work queue."""

from collections.abc import Mapping
from typing import Any

from gpupack_crds import names
from gpupack_operator.waitlist import Key, Waitlist
from gpupack_operator.work import WorkQueue
from gpupack_operator.world import World

Body = Mapping[str, Any]
FINISHED = {"Succeeded", "Failed"}


class Ear:
    """Knows which GPUJob an event is about, and whether it may have freed something."""

    def __init__(self, queue: WorkQueue[Key], world: World, waitlist: Waitlist) -> None:
        self._queue = queue
        self._world = world
        self._waitlist = waitlist

    def gpujob(self, body: Body, *, deleted: bool) -> None:
        """A GPUJob changed; the echo of our own write is nothing new."""
        meta = body["metadata"]
        key = Key(meta["namespace"], meta["name"])
        if not self._world.is_echo(key, meta["resourceVersion"]):
            self._queue.add(key)
        if deleted:
            self._waitlist.leave(key)
            self.freed()

    def child(self, body: Body) -> None:
        """A Job or a pod changed."""
        meta = body["metadata"]
        if name := meta.get("labels", {}).get(names.JOB_LABEL):
            self._queue.add(Key(meta["namespace"], name))

    def pod(self, body: Body, *, deleted: bool) -> None:
        """A pod changed; one that ended gives its devices back."""
        self.child(body)
        if deleted or body.get("status", {}).get("phase") in FINISHED:
            self.freed()

    def freed(self) -> None:
        """Something may have been freed: whoever waits asks again, in order."""
        for key in self._waitlist.freed():
            self._queue.add(key)
