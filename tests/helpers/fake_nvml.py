# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the fake carries pynvml's names
"""NVML without a driver."""

import contextlib
import ctypes
import queue
import types

import pynvml


class FakeNvml:
    """Handles are the GPUs' dictionaries; a GPU that lacks a key does not tell that fact."""

    class NVMLError(Exception):
        pass

    class NVMLError_Timeout(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    class NVMLError_InvalidArgument(NVMLError):  # noqa: N801 - pynvml's own name
        pass

    def __init__(self, *gpus):
        self.gpus = gpus
        self.events = queue.Queue()
        self.asked_peers = 0

    def __getattr__(self, name):
        """Return pynvml's constants, and an unsupported call for every other function."""
        found = getattr(pynvml, name)
        return self._refuse if callable(found) and name.startswith("nvml") else found

    def _refuse(self, *_):
        raise self.NVMLError_NotSupported("Not Supported")

    def tell(self, gpu, fact):
        if fact not in gpu:
            raise self.NVMLError_NotSupported(f"{fact} is not set")
        return gpu[fact]

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlSystemGetDriverVersion(self):
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13010

    def nvmlDeviceGetHandleByIndex(self, index):
        self.tell(self.gpus[index], "uuid")
        return self.gpus[index]

    def nvmlDeviceGetSamples(self, gpu, kind, since):
        return 1, self.tell(gpu, "samples")

    def nvmlDeviceGetUUID(self, gpu):
        return self.tell(gpu, "uuid")

    def nvmlDeviceGetName(self, gpu):
        return self.tell(gpu, "name")

    def nvmlDeviceGetMinorNumber(self, gpu):
        return self.tell(gpu, "minor")

    def nvmlDeviceGetMemoryInfo(self, gpu, version=1):
        total = self.tell(gpu, "mib") * 2**20
        return types.SimpleNamespace(total=total, used=0, reserved=0)

    def nvmlDeviceGetMigMode(self, gpu):
        return [self.tell(gpu, "mig"), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return len(gpu["slices"]) + 1

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        if index >= len(gpu["slices"]):
            raise self.NVMLError_NotFound
        return gpu["slices"][index]

    def nvmlDeviceGetGpuInstanceId(self, mig_slice):
        return self.tell(mig_slice, "gi")

    def nvmlDeviceGetComputeInstanceId(self, mig_slice):
        return self.tell(mig_slice, "ci")

    def nvmlDeviceGetGpuInstanceById(self, gpu, number):
        return next(each for each in gpu["slices"] if each["gi"] == number)

    def nvmlGpuInstanceGetInfo(self, instance):
        start, size = instance["at"]
        placement = types.SimpleNamespace(start=start, size=size)
        return types.SimpleNamespace(profileId=instance["profile"], placement=placement)

    def nvmlDeviceGetAttributes(self, mig_slice):
        whole, part = mig_slice["compute"]
        return types.SimpleNamespace(
            gpuInstanceSliceCount=whole,
            computeInstanceSliceCount=part,
            memorySizeMB=mig_slice["mib"],
        )

    def nvmlDeviceGetGpuInstanceProfileInfo(self, gpu, kind, version=2):
        number, name = self.tell(self.tell(gpu, "profiles"), kind)
        most = gpu.get("most", {}).get(number, 8)
        return types.SimpleNamespace(id=number, name=f"MIG {name}".encode(), instanceCount=most)

    c_nvmlGpuInstance_t = ctypes.py_object  # noqa: N815 - pynvml's own name
    c_nvmlComputeInstance_t = ctypes.py_object  # noqa: N815 - pynvml's own name

    def nvmlDeviceGetHandleByUUID(self, uuid):
        found = [each for each in self.gpus if each.get("uuid") == uuid]
        if not found:
            raise self.NVMLError_NotFound
        return found[0]

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, gpu, number, found, count):
        size, starts = self.tell(self.tell(gpu, "places"), number)
        for index, start in enumerate(starts):
            found[index] = (start, size)
        count._obj.value = len(starts)

    def nvmlDeviceGetGpuInstances(self, gpu, number, found, count):
        listed = [each for each in gpu["slices"] if each["profile"] == number]
        for index, each in enumerate(listed):
            found[index] = each
        count._obj.value = len(listed)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, instance, kind, engine):
        sizes = range(1, instance["compute"][0] + 1)
        if kind not in range(len(sizes)):
            raise self.NVMLError_NotSupported
        return types.SimpleNamespace(id=kind, sliceCount=sizes[kind])

    def nvmlGpuInstanceGetComputeInstances(self, instance, number, found, count):
        """Its only one is of the size of which it is."""
        there = instance["compute"][1] - 1 == number
        if there:
            found[0] = instance
        count._obj.value = int(there)

    def nvmlComputeInstanceDestroy(self, instance):
        instance["compute"] = (instance["compute"][0], 0)

    def nvmlGpuInstanceDestroy(self, instance):
        if instance.get("held") or instance["compute"][1]:
            raise self.NVMLError("In use by another client")
        for each in self.gpus:
            if instance in each.get("slices", ()):
                each["slices"].remove(instance)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, gpu, number, at):
        start, size = at._obj.start, at._obj.size
        name = next(name for known, name in gpu["profiles"].values() if known == number)
        made = mig_slice(
            f"MIG-{number}-{start}",
            gi=len(gpu["slices"]) + 1,
            at=(start, size),
            profile=number,
            compute=(int(name[0]), 0),
        )
        gpu["slices"].append(made)
        return made

    def nvmlGpuInstanceCreateComputeInstance(self, instance, number):
        instance["compute"] = (instance["compute"][0], number + 1)

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        action = types.SimpleNamespace(uiVal=self.tell(gpu, "action"))
        known = {230: types.SimpleNamespace(nvmlReturn=0, valueType=1, value=action)}
        if "links" in gpu:
            count = types.SimpleNamespace(uiVal=len(gpu["links"]))
            known[91] = types.SimpleNamespace(nvmlReturn=0, valueType=1, value=count)
        return [known.get(field, types.SimpleNamespace(nvmlReturn=3)) for field in fields]

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        return self.tell(gpu, "links")[link]

    def nvmlDeviceGetPciInfo(self, gpu):
        return types.SimpleNamespace(busId=self.tell(gpu, "bus"))

    def nvmlDeviceGetP2PStatus(self, first, second, index):
        self.asked_peers += 1
        ctypes.c_uint(index)  # NVML's own call takes a number alone
        if index == 0:
            return 0 if second["uuid"] in self.tell(first, "peers") else 3
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        return 0 if self.tell(first, "island") == self.tell(second, "island") else 5

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        gpu["asked_energy"] = gpu.get("asked_energy", 0) + 1
        return self.tell(gpu, "millijoules")

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        pids = self.tell(gpu, "pids")
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=1) for pid in pids]

    def nvmlDeviceGetCpuAffinity(self, gpu, words):
        return self.tell(gpu, "cpus")[:words]

    def nvmlEventSetCreate(self):
        return self.events

    def nvmlDeviceGetSupportedEventTypes(self, gpu):
        return self.tell(gpu, "events")

    def nvmlDeviceRegisterEvents(self, gpu, mask, events):
        gpu["mask"] = mask

    def nvmlEventSetWait_v2(self, events, milliseconds):
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=milliseconds / 1000)
        raise self.NVMLError_Timeout


def gpu(index, **facts):
    plain = {"uuid": f"GPU-{index}", "name": "NVIDIA H200", "minor": index, "mib": 143771}
    return plain | facts


def mig_slice(uuid, *, gi=1, ci=0, at=(0, 1), profile=19, compute=(1, 1), mib=16384):
    """`compute`: slices of multiprocessors of the GPU instance, and of the compute instance."""
    return {
        "uuid": uuid,
        "name": "NVIDIA H200 MIG",
        "mib": mib,
        "gi": gi,
        "ci": ci,
        "at": at,
        "profile": profile,
        "compute": compute,
    }
