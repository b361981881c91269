# SPDX-License-Identifier: Apache-2.0
"""Settings of a worker from the operator, and the environment that libraries need."""

import ipaddress
import math
import os
import pwd
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.errors import BadArgument

BACKENDS = ("auto", "nccl", "gloo")
LAST_PORT = 65535

# On a host that is shared, multicast groups of NVSwitch can be left behind by a killed process.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}

# a * b + c in one rounding, as all that was measured. Triton 3.9 warns that 3.10 turns it off.
FUSED_MULTIPLY_ADD = {"TRITON_DEFAULT_FP_FUSION": "1"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options common to all workloads.

    Attributes:
        size: size in the workload's own unit; None: a default for the device.
        seed: seed of all random data.
        require_gpu: fail instead of falling back to the CPU.
    """

    size: int | None = None
    seed: int = 0
    require_gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class Gang:
    """This worker's place among the workers of its job.

    Attributes:
        run: name of this attempt of this job; workers of another attempt cannot join.
        workers: number of workers.
        index: index of this worker, from 0.
        host: stable name of worker 0, the rendezvous; or its IPv4 or IPv6 address.
        port: port of the rendezvous.
        processes: processes of this worker; None means one per GPU.
        backend: auto, nccl or gloo.
        least: minimum number of workers of an elastic gang; None: all are required.
    """

    run: str = "local"
    workers: int = 1
    index: int = 0
    host: str = "127.0.0.1"
    port: int = 29400
    processes: int | None = None
    backend: str = "auto"
    least: int | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid place."""
        if not 0 <= self.index < self.workers:
            raise BadArgument(f"worker index {self.index} is not among {self.workers} workers")
        if self.processes is not None and self.processes < 1:
            raise BadArgument(f"{self.processes} processes per worker: there must be at least 1")
        if self.least is not None and not 1 <= self.least <= self.workers:
            raise BadArgument(
                f"a minimum of {self.least} workers is not between 1 and {self.workers}"
            )
        if self.backend not in BACKENDS:
            raise BadArgument(f"backend {self.backend!r} is none of {', '.join(BACKENDS)}")

    @property
    def endpoint(self) -> str:
        """Host and port; an IPv6 address has brackets: [::1]:29400."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Gang":
        """Read the operator's settings; outside a gang this is the only worker."""
        host, port = _endpoint(environ, "GPUPACK_RENDEZVOUS")
        job = environ.get("GPUPACK_JOB") or "local"
        attempt = environ.get("GPUPACK_ATTEMPT") or "1"
        return cls(
            run=f"{job}-{attempt}",
            workers=_number(environ, "GPUPACK_WORKERS", default=1),
            index=_number(environ, "GPUPACK_WORKER_INDEX", default=0),
            host=host,
            port=port,
            processes=_number(environ, "GPUPACK_PROCESSES_PER_WORKER", default=0) or None,
            backend=environ.get("GPUPACK_BACKEND") or "auto",
            least=_number(environ, "GPUPACK_MIN_WORKERS", default=0) or None,
        )

    @property
    def elastic(self) -> bool:
        """Whether workers may join and leave while the others train."""
        return self.least is not None and self.least < self.workers


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set variables that libraries read at import; variables set by the user stay."""
    for name, value in (NO_MULTICAST | FUSED_MULTIPLY_ADD).items():
        environ.setdefault(name, value)
    environ.setdefault("OMP_NUM_THREADS", str(usable_cpus(Path("/sys/fs/cgroup"))))
    if not has_name(os.getuid()):
        # torch.compile names its cache after the user, which an image need not list.
        environ.setdefault("USER", f"uid-{os.getuid()}")


def has_name(uid: int) -> bool:
    """Return whether the system has a name for the user."""
    try:
        return bool(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return False


def temporary_folder() -> Path:
    """Return the folder for temporary files, which torch's launcher and recordings need.

    Raises:
        BadArgument: there is no writable folder.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise BadArgument(
            "there is no writable temporary folder:"
            " give the worker a writable /tmp, such as an emptyDir"
        ) from error


def usable_cpus(cgroup: Path) -> int:
    """Count the CPUs that the container may use; more threads than that only get throttled."""
    cpus = len(os.sched_getaffinity(0))
    quota, period = _cpu_quota(cgroup)
    return max(1, min(cpus, math.ceil(quota / period))) if quota > 0 else cpus


def _cpu_quota(cgroup: Path) -> tuple[int, int]:
    """Read the limit of cgroup v2, else of v1; a quota of 0 or less means none."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except OSError:
        quota, period = _cpu_quota_v1(cgroup / "cpu")
    return (0 if quota == "max" else int(quota)), int(period)


def _cpu_quota_v1(folder: Path) -> tuple[str, str]:
    try:
        return (
            (folder / "cpu.cfs_quota_us").read_text().strip(),
            (folder / "cpu.cfs_period_us").read_text().strip(),
        )
    except OSError:
        return "0", "1"


def _number(environ: Mapping[str, str], name: str, *, default: int) -> int:
    text = environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError as error:
        raise BadArgument(f"{name} is {text!r}, not a whole number") from error


def _endpoint(environ: Mapping[str, str], name: str) -> tuple[str, int]:
    text = environ.get(name)
    if not text:
        return Gang.host, Gang.port
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise BadArgument(f"{name} is {text!r}, not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        _require_ipv6(host, f"{name} is {text!r}")
    elif ":" in host:
        _require_ipv6(host, f"{name} is {text!r}")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise BadArgument(f"{name} is {text!r}, whose host is not a valid name: {error}") from error
    # Python refuses to read thousands of digits, with an error of its own.
    if len(port) > len(str(LAST_PORT)) or not 0 < int(port) <= LAST_PORT:
        raise BadArgument(f"{name} is {text!r}, whose port is not from 1 to {LAST_PORT}")
    return host, int(port)


def _require_ipv6(host: str, said: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError as error:
        raise BadArgument(
            f"{said}, not HOST:PORT or [ADDRESS]:PORT with an address of IPv6: {error}"
        ) from error
