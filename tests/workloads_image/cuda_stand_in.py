# SPDX-License-Identifier: Apache-2.0
"""CUDA's runtime on a CPU, as far as `p2p-cpp` calls it: streams whose work runs in any order.

Each stream has its own queue. What runs next is random within CUDA's guarantees: the order in a
stream, and that a stream waits for an event as it was recorded last before the wait. So a
wait that is missing shows as bytes that are wrong.
"""

import contextlib
import ctypes
import enum
import itertools
import random
import types
from collections import defaultdict, deque

import torch

from gpupack_workloads.p2p_cpp import runtime, sides


class Status(enum.IntEnum):
    cudaSuccess = 0  # noqa: N815  CUDA's names
    cudaErrorMemoryAllocation = 2  # noqa: N815
    cudaErrorPeerAccessAlreadyEnabled = 704  # noqa: N815
    cudaErrorPeerAccessNotEnabled = 705  # noqa: N815


OK = Status.cudaSuccess


class StandIn:
    """Takes the place of cuda.bindings.runtime.

    Args:
        seed: of what runs next.
        reachable: pairs of accessor and owner that can have peer access.
    """

    cudaStreamNonBlocking = 1  # noqa: N815
    cudaEventDefault = 0  # noqa: N815
    cudaEventDisableTiming = 2  # noqa: N815
    cudaHostAllocPortable = 1  # noqa: N815
    cudaMemcpyKind = types.SimpleNamespace(  # noqa: N815
        cudaMemcpyDeviceToHost=2, cudaMemcpyHostToDevice=1
    )
    cudaDeviceP2PAttr = types.SimpleNamespace(cudaDevP2PAttrNativeAtomicSupported=3)  # noqa: N815

    def __init__(self, seed=0, reachable=((0, 1), (1, 0))):
        self.chance = random.Random(seed)
        self.reachable = set(reachable)
        self.enabled = set()
        self.calls = []
        self.device = 0
        self.queues = defaultdict(deque)
        self.asked, self.reached = defaultdict(int), defaultdict(int)
        self.times = {}
        self.now = 0.0
        self.memory = {}
        self.handles = itertools.count(1)

    def put(self, stream, work):
        """Let a stream do something when its turn comes."""
        self.queues[int(stream)].append((work, None))

    def run_until(self, done):
        while not done():
            ready = [
                queue
                for queue in self.queues.values()
                if queue and (queue[0][1] is None or queue[0][1]())
            ]
            assert ready, "every stream waits for another one"
            work, _ = self.chance.choice(ready).popleft()
            self.now += 1.0
            work()

    def cudaSetDevice(self, device):  # noqa: N802
        self.device = device
        return (OK,)

    def cudaGetLastError(self):  # noqa: N802
        return (OK,)

    def cudaDeviceCanAccessPeer(self, accessor, owner):  # noqa: N802
        return OK, int((accessor, owner) in self.reachable)

    def cudaDeviceGetP2PAttribute(self, attribute, accessor, owner):  # noqa: N802
        return OK, int((accessor, owner) in self.reachable)

    def cudaDeviceEnablePeerAccess(self, owner, flags):  # noqa: N802
        pair = (self.device, owner)
        self.calls.append(("enable", *pair))
        if pair in self.enabled:
            return (Status.cudaErrorPeerAccessAlreadyEnabled,)
        self.enabled.add(pair)
        return (OK,)

    def cudaDeviceDisablePeerAccess(self, owner):  # noqa: N802
        pair = (self.device, owner)
        self.calls.append(("disable", *pair))
        if pair not in self.enabled:
            return (Status.cudaErrorPeerAccessNotEnabled,)
        self.enabled.remove(pair)
        return (OK,)

    def cudaStreamCreateWithFlags(self, flags):  # noqa: N802
        return OK, next(self.handles)

    def cudaEventCreateWithFlags(self, flags):  # noqa: N802
        return OK, next(self.handles)

    def cudaStreamDestroy(self, stream):  # noqa: N802
        assert not self.queues.pop(stream, None), "a stream that still works is destroyed"
        return (OK,)

    def cudaEventDestroy(self, event):  # noqa: N802
        return (OK,)

    def cudaEventRecord(self, event, stream):  # noqa: N802
        self.asked[event] += 1
        version = self.asked[event]

        def reach():
            self.reached[event] = version
            self.times[event] = self.now

        self.put(stream, reach)
        return (OK,)

    def cudaStreamWaitEvent(self, stream, event, flags):  # noqa: N802
        version = self.asked[event]
        self.queues[stream].append(
            (lambda: None, lambda: self.reached[event] >= version)  # an event not recorded is none
        )
        return (OK,)

    def cudaStreamSynchronize(self, stream):  # noqa: N802
        self.run_until(lambda: not self.queues[stream])
        return (OK,)

    def cudaEventSynchronize(self, event):  # noqa: N802
        version = self.asked[event]
        self.run_until(lambda: self.reached[event] >= version)
        return (OK,)

    def cudaEventElapsedTime(self, start, end):  # noqa: N802
        return OK, self.times[end] - self.times[start]

    def cudaMalloc(self, size):  # noqa: N802
        memory = (ctypes.c_ubyte * (size + 256))()
        address = -(-ctypes.addressof(memory) // 256) * 256
        self.memory[address] = memory
        return OK, address

    def cudaHostAlloc(self, size, flags):  # noqa: N802
        return self.cudaMalloc(size)

    def cudaFree(self, address):  # noqa: N802
        del self.memory[address]
        return (OK,)

    cudaFreeHost = cudaFree  # noqa: N815

    def cudaMemcpyAsync(self, target, source, count, kind, stream):  # noqa: N802
        self.put(stream, lambda: ctypes.memmove(target, source, count))
        return (OK,)

    def cudaMemcpyPeerAsync(self, to, to_device, of, of_device, count, stream):  # noqa: N802
        return self.cudaMemcpyAsync(to, of, count, None, stream)


class Kernels:
    """Takes the place of `PeerKernels`: copies as memmove does, when its stream comes to it."""

    def __init__(self, cuda):
        self._cuda = cuda

    def copy(self, target, source, count, stream):
        self._cuda.put(stream.handle, lambda: ctypes.memmove(target, source, count))


@contextlib.contextmanager
def nowhere(*_, **__):
    yield


def install(monkeypatch, cuda):
    """Let `p2p_cpp` find a stand-in where it looks for CUDA; torch's tensors are the CPU's."""
    from gpupack_workloads.p2p_cpp import access  # noqa: PLC0415

    for module in (runtime, access):
        monkeypatch.setattr(module, "load", lambda name: cuda)
    monkeypatch.setattr(torch.cuda, "device", nowhere)
    monkeypatch.setattr(torch.cuda, "stream", nowhere)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(
        sides.Memory,
        "tensor",
        lambda memory: torch.frombuffer(
            (ctypes.c_ubyte * memory._size).from_address(memory.address), dtype=torch.uint8
        ),
    )
