# SPDX-License-Identifier: Apache-2.0
"""The driver's events: the XIDs that each GPU has raised.

NVML can only wait for events in a blocking call, so a separate thread does it. The thread notifies
the agent of each event. Events from before the registration are not visible. Whether an XID counts,
and for how long, is decided in `grading.rules`.
"""

import collections
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)

WAIT_MILLISECONDS = 1000
"""The time for which one call blocks; a thread that blocked for ever would never see new GPUs."""


class XidWatcher:
    """The collector of XIDs.

    Args:
        nvml: the module `pynvml`, or an object with its functions.
        notify: called at each event, in the thread that waits.
    """

    def __init__(self, nvml: Any, *, notify: Callable[[], None]) -> None:
        self._nvml = nvml
        self._notify = notify
        self._events: Any = None
        self._watched: set[str] = set()
        self._xids: dict[str, set[int]] = collections.defaultdict(set)
        self._lock = threading.Lock()

    def by_gpu(self) -> dict[str, tuple[int, ...]]:
        """Return the XIDs of each GPU that raised one, by UUID."""
        with self._lock:
            return {uuid: tuple(sorted(xids)) for uuid, xids in self._xids.items()}

    def forget(self) -> None:
        """Forget all XIDs, because the GPUs were repaired."""
        with self._lock:
            self._xids.clear()

    def watch(self, handles: Mapping[str, Any]) -> None:
        """Register GPUs that are new or were absent; the first call starts the thread."""
        if self._events is None and not self._start():
            return
        self._watched &= handles.keys()
        for uuid in handles.keys() - self._watched:
            try:
                self._register(handles[uuid])
            except self._nvml.NVMLError as error:
                log.info("GPU %s supports no events (%s): only scans show its health", uuid, error)
            self._watched.add(uuid)

    def _start(self) -> bool:
        try:
            self._events = self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError as error:
            log.warning(
                "the driver supports no events (%s): only scans show the health of GPUs", error
            )
            return False
        threading.Thread(target=self._run, name="nvml-events", daemon=True).start()
        return True

    def _register(self, handle: Any) -> None:
        wanted = (
            self._nvml.nvmlEventTypeXidCriticalError | self._nvml.nvmlEventTypeGpuRecoveryAction
        )
        supported = self._nvml.nvmlDeviceGetSupportedEventTypes(handle)
        self._nvml.nvmlDeviceRegisterEvents(handle, wanted & supported, self._events)

    def _run(self) -> None:
        while True:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, WAIT_MILLISECONDS)
            except self._nvml.NVMLError as error:
                self._handle_wait_error(error)
            else:
                self._handle_event(event)

    def _handle_wait_error(self, error: Exception) -> None:
        """Handle an error of the wait.

        A time-out is normal. After a GPU is lost every call fails at once.
        """
        if isinstance(error, self._nvml.NVMLError_Timeout):
            return
        log.warning("waiting for the driver's events: %s", error)
        self._notify()
        time.sleep(WAIT_MILLISECONDS / 1000)

    def _handle_event(self, event: Any) -> None:
        if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
            uuid = self._uuid(event.device)
            log.warning("GPU %s raised XID %d", uuid, event.eventData)
            with self._lock:
                self._xids[uuid].add(event.eventData)
        self._notify()

    def _uuid(self, handle: Any) -> str:
        try:
            uuid: str = self._nvml.nvmlDeviceGetUUID(handle)
        except self._nvml.NVMLError:
            return "unknown"
        return uuid
