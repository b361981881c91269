# SPDX-License-Identifier: Apache-2.0
"""Checks during `make demo-gpu` that all sources agree about the GPUs of each pod.

Five sources are read without gpupack's help: the annotation that the Binding wrote, the
environment of the container's processes, the CDI spec that the runtime read, the kubelet's count
(PodResources), and the driver's list of the processes on each GPU.
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_bundle import ROOT, SITE
from gpu_jobs import Broken

log = logging.getLogger(__name__)

Json = dict[str, Any]

DEVICES = "gpupack.dev/devices"
VARIABLE = b"GPUPACK_DEVICES="
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
SPECS = "run/cdi"
KUBELET_SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
EVERY_SECONDS = 1.0
PROC = Path("/proc")


@dataclass(frozen=True)
class PodDevices:
    """A pod's devices according to each source.

    Attributes:
        annotation: UUIDs of its GPUs, sorted, as in the other sources.
        shares: whether it has a share.
        environment: UUIDs in the environment of each process that has the variable.
        spec: UUIDs in the CDI spec for the pod's UID.
        tickets: number of device tokens that the kubelet counts.
        on: GPUs on which the driver lists one of its processes.
    """

    annotation: tuple[str, ...]
    shares: bool
    environment: frozenset[tuple[str, ...]]
    spec: tuple[str, ...] | None
    tickets: int
    on: frozenset[str]

    @property
    def is_complete(self) -> bool:
        """Whether its container runs, so that all sources have data."""
        return bool(self.environment)

    def differences(self) -> Iterator[str]:
        """Yield a sentence for each source that differs from the annotation."""
        if self.environment != {self.annotation}:
            yield f"its environment says {sorted(self.environment)}"
        if self.spec != self.annotation:
            yield f"its CDI spec says {self.spec}"
        expected = 1 if self.shares else len(self.annotation)
        if self.tickets != expected:
            yield f"the kubelet counts {self.tickets} devices, of {expected}"
        if elsewhere := self.on - set(self.annotation):
            yield f"the driver lists processes of it on {sorted(elsewhere)}"


@dataclass
class Agreement:
    """Compares the sources repeatedly, in its own thread; `result` returns the findings.

    Attributes:
        look: returns name and devices of each running pod by UID.
    """

    look: Callable[[], dict[str, tuple[str, PodDevices]]]
    compared: dict[str, str] = field(default_factory=dict)
    computing: set[str] = field(default_factory=set)
    looks: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="agreement", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            try:
                self.see(self.look())
            except Exception as error:  # noqa: BLE001 - the cluster is killed at in between
                log.info("agreement: %s: %s", type(error).__name__, str(error)[:200])

    def see(self, found: dict[str, tuple[str, PodDevices]]) -> None:
        """Compare once; a pod that starts or ends between two answers agrees the next time."""
        self.looks += 1
        for uid, (name, each) in found.items():
            if not each.is_complete:
                continue
            self.compared[uid] = name
            if each.on:
                self.computing.add(uid)
            if differences := list(each.differences()):
                self.wrong[uid] = [f"{name}, given {', '.join(each.annotation)}:", *differences]
            else:
                self.wrong.pop(uid, None)

    def result(self) -> Json:
        """Return the result; raise Broken if the sources differed about a pod until its end."""
        self._over.set()
        if self._thread:
            self._thread.join()
        if self.wrong or not self.compared:
            raise Broken(f"{len(self.wrong)} of {len(self.compared)} pods: {self.wrong}")
        what = "annotation, environment, CDI spec, PodResources and driver agree about every pod"
        figures = {
            "pods": len(self.compared),
            "seen computing by the driver": len(self.computing),
            "looks": self.looks,
            "names": ", ".join(sorted(self.compared.values())),
        }
        return {"check": what, "figures": figures}


def watching(pods: Callable[[], list[Json]]) -> Agreement:
    """Return the comparison for the pods of this host's one node."""
    # The bundle's libraries come before the host's: the host's gRPC may be too old.
    sys.path[:0] = [str(SITE), str(ROOT / "agent")]
    return Agreement(lambda: _look(pods))


def _look(pods: Callable[[], list[Json]]) -> dict[str, tuple[str, PodDevices]]:
    found = {each["metadata"]["uid"]: each for each in pods() if _is_running(each)}
    if not found:
        return {}
    node = next(_roots_of("kubelet"))
    processes, computing = _processes(), _computing()
    specs = _specs(node / SPECS)
    devices = {}
    for uid, pod in found.items():
        meta = pod["metadata"]
        mine = processes.get(uid, {})
        given = json.loads(meta["annotations"][DEVICES])
        tickets = _tickets(node / KUBELET_SOCKET, meta["namespace"], meta["name"])
        if tickets is None:
            continue
        devices[uid] = (
            meta["name"],
            PodDevices(
                annotation=tuple(sorted(each["uuid"] for each in given)),
                shares=any(each["percent"] < 100 for each in given),  # noqa: PLR2004 - percent
                environment=frozenset(value for value in mine.values() if value),
                spec=specs.get(uid),
                tickets=tickets,
                on=frozenset(gpu for gpu, pids in computing.items() if pids & mine.keys()),
            ),
        )
    return devices


def _is_running(pod: Json) -> bool:
    running = pod.get("status", {}).get("phase") == "Running"
    return running and DEVICES in pod["metadata"].get("annotations", {})


def _roots_of(program: str) -> Iterator[Path]:
    """Yield the path of the root of a running program's mount namespace."""
    for folder in PROC.iterdir():
        with suppress(OSError):
            if folder.name.isdigit():
                first = (folder / "cmdline").read_bytes().split(b"\0")[0]
                if os.path.basename(first.decode()) == program:  # noqa: PTH119 - no file of ours
                    yield folder / "root"
    raise Broken(f"{program} does not run")


def _processes() -> dict[str, dict[int, tuple[str, ...] | None]]:
    """Return each pod's processes, with the GPUs in their environment."""
    found: dict[str, dict[int, tuple[str, ...] | None]] = {}
    for folder in PROC.iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and (pod := POD.search((folder / "cgroup").read_text())):
                uid = pod.group(1).replace("_", "-")
                variables = (folder / "environ").read_bytes().split(b"\0")
                variable = next((each for each in variables if each.startswith(VARIABLE)), None)
                uuids = variable.removeprefix(VARIABLE).decode().split(",") if variable else None
                gpus = tuple(sorted(uuids)) if uuids else None
                found.setdefault(uid, {})[int(folder.name)] = gpus
    return found


def _computing() -> dict[str, frozenset[int]]:
    """Return the processes of this host that the driver lists on each GPU."""
    import pynvml  # noqa: PLC0415 - comes with the bundle

    pynvml.nvmlInit()
    found = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        listed = [*pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        with suppress(pynvml.NVMLError):
            listed += pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
        found[str(pynvml.nvmlDeviceGetUUID(handle))] = frozenset(each.pid for each in listed)
    return found


def _specs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the GPUs of each CDI spec by the UID of its pod."""
    found = {}
    for path in folder.glob("gpupack.dev-*.json"):
        with suppress(OSError):
            document = json.loads(path.read_text())
            uid = json.loads(document["annotations"]["gpupack.dev/record"])["uid"]
            (device,) = document["devices"]
            variables = device["containerEdits"]["env"]
            variable = next(each for each in variables if each.startswith(VARIABLE.decode()))
            found[uid] = tuple(sorted(variable.removeprefix(VARIABLE.decode()).split(",")))
    return found


def _tickets(socket: Path, namespace: str, name: str) -> int | None:
    """Return the kubelet's count; None if it does not know the pod or does not answer."""
    import grpc  # noqa: PLC0415 - comes with the bundle

    from gpupack_agent.api import podresources_pb2 as api  # noqa: PLC0415 - with its path
    from gpupack_agent.api import podresources_pb2_grpc as service  # noqa: PLC0415

    with grpc.insecure_channel(f"unix:{socket}") as channel:
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        try:
            answer = service.PodResourcesListerStub(channel).Get(request, timeout=5)
        except grpc.RpcError:
            return None
    return sum(
        len(devices.device_ids)
        for container in answer.pod_resources.containers
        for devices in container.devices
        if devices.resource_name.startswith("gpupack.dev/")
    )
