# SPDX-License-Identifier: Apache-2.0
"""GPUs that are held for a caller, and the requests for them."""

import datetime as dt
from typing import Annotated, Final

import msgspec

from gpupack_restapi.patterns import IMAGE, MODEL, NAME_OR_EMPTY, VARIABLE_NAME

MAX_GPUS: Final = 4096
"""Maximum GPUs of an allocation, as of a GPUJob in its CRD."""

MAX_SECONDS: Final = 7 * 24 * 3600


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of a training.

    Attributes:
        gpu_count: GPUs of all its workers together.
        gpu_type: model in the form that users write; empty: any.
        memory_gb: memory of each GPU, in GB of 10^9 bytes.
        distributed_training: it may run as several workers, on several nodes.
        mixed_precision: it computes with bfloat16 or float16, which any GPU that gpupack knows
            supports.
    """

    gpu_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_GPUS)] = 1
    gpu_type: Annotated[str, msgspec.Meta(max_length=64, pattern=MODEL)] = ""
    memory_gb: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 0.0
    distributed_training: bool = False
    mixed_precision: bool = False


class Validation(msgspec.Struct, frozen=True):
    """Whether a request can be satisfied; true where it can.

    Attributes:
        valid: it can be, once running work has ended.
        fits_now: it fits at this moment.
        workers: number of workers into which it was divided.
        gpus_per_worker: GPUs of each worker, on one node.
        nodes: nodes of the workers now, one for each.
        message: why it does not fit.
    """

    valid: bool
    fits_now: bool
    workers: int
    gpus_per_worker: int
    nodes: tuple[str, ...]
    message: str = ""

    def __bool__(self) -> bool:
        return self.valid


class Allocate(Training, frozen=True, forbid_unknown_fields=True):
    """The request of an allocation: what, where and for how long.

    Attributes:
        namespace: namespace whose quota it counts against; empty: the service account's own.
        seconds: time after which it ends by itself.
    """

    namespace: Annotated[str, msgspec.Meta(max_length=63, pattern=NAME_OR_EMPTY)] = ""
    seconds: Annotated[int, msgspec.Meta(ge=60, le=MAX_SECONDS)] = 3600


class WorkerConfig(msgspec.Struct, frozen=True):
    """The GPUs of one worker; `device_ids` are indices on their node."""

    node_name: str
    device_ids: tuple[int, ...]
    device_uuids: tuple[str, ...]


class GpuConfig(msgspec.Struct, frozen=True):
    """The allocated GPUs; `environment` is for a process on the node of the first worker."""

    gpu_count: int
    workers: tuple[WorkerConfig, ...]
    environment: dict[str, str]


class Allocation(msgspec.Struct, frozen=True):
    """GPUs that are held, or waited for.

    Attributes:
        success: whether they are held now.
        allocation_id: NAMESPACE/NAME, below `allocations/`.
        node_name: node of the first worker; empty: there is none yet.
        phase: phase of its GPUJob.
        message: why it waits, or why it ended.
        expires: when it ends by itself, once it has started.
    """

    success: bool
    allocation_id: str
    node_name: str
    gpu_config: GpuConfig
    phase: str
    message: str = ""
    expires: dt.datetime | None = None


Word = Annotated[str, msgspec.Meta(max_length=4096)]
VariableName = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=VARIABLE_NAME)]
"""Name of a variable in the API server's form: a pod that it refuses would end the allocation."""


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program of each worker.

    Attributes:
        image: container image of the program.
        command: the program with its arguments.
        environment: further variables.
        non_root: whether the pods declare that their user is not root, as namespaces at level
            `restricted` require.
    """

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=IMAGE)]
    command: Annotated[list[Word], msgspec.Meta(min_length=1, max_length=64)]
    environment: Annotated[dict[VariableName, Word], msgspec.Meta(max_length=100)] = {}
    non_root: bool = False
