# SPDX-License-Identifier: Apache-2.0
"""Measurements of `make demo-gpu` for gangs with one GPU per worker, on two GPUs or more.

one worker with all GPUs             the speed that the wires have
workers that share a pod             NVLink as well
workers with a pod each              shared memory: one /dev/shm (docs/communication.md)
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpu_jobs import Bench, Broken, gpu_job, measured, viewers, views

from gpupack_devcluster.errors import NotInTime

Json = dict[str, Any]
Timed = Callable[[str, Callable[[], Json]], Json]

MIN_BUS_RATIO: Final = 0.95
MIN_SEPARATE_GB_PER_S: Final = 25.0
MIN_SCALING: Final = 1.9
"""For two GPUs; more GPUs in proportion."""

RESNET: Final = ("--require-gpu", "--steps=10", "--batch-size=256", "--compile=off")
TRANSFORMER: Final = ("--require-gpu",)
BUS_BYTES: Final = 1 << 28
VIEWERS: Final = "shared-viewers"


def job(name: str, workload: str, *args: str, **spec: Any) -> Json:
    """Return a GPUJob with a workload."""
    return gpu_job(name, {**spec, "workload": {"name": workload, "args": list(args)}})


def gang(name: str, workload: str, *args: str, workers: int, separate: bool = False) -> Json:
    """Return a GPUJob of workers with one GPU each."""
    return job(name, workload, *args, workers=workers, gpus=1, podPerWorker=separate)


def sharing_viewers(workers: int) -> Json:
    """Return a job of workers that share a pod and print the GPUs they see."""
    return viewers(workers, VIEWERS, podPerWorker=False)


class Measured:
    """Runs one job after the other and keeps their results."""

    def __init__(self, bench: Bench, gpus: list[Json]) -> None:
        self._bench = bench
        self._gpus = gpus
        self._statuses: dict[str, Json] = {}

    @property
    def has_nvlink(self) -> bool:
        """Whether NVLink connects all GPUs."""
        cliques = {gpu.get("nvlinkClique") for gpu in self._gpus}
        return len(cliques) == 1 and None not in cliques

    def run(self, manifest: Json) -> Json:
        """Run a job to its end; raise Broken if it fails."""
        self._bench.apply(manifest)
        name = manifest["metadata"]["name"]
        (ended,) = self._bench.finished(name)
        self._statuses[name] = ended["status"]
        return dict(measured(ended, self._gpus)["metrics"])

    def status(self, name: str) -> Json:
        """Return the status of a job that ended."""
        return self._statuses.get(name, {})


def bandwidths(run: Measured, count: int) -> Json:
    """Measure the bus bandwidth of an all-reduce in each layout, in GB/s."""
    size = f"--size={BUS_BYTES}"
    options = ("--require-gpu", size)
    found = {
        "one_worker": run.run(job("bus-one-worker", "allreduce", *options, gpus=count)),
        "shared_pod": run.run(gang("bus-shared", "allreduce", *options, workers=count)),
        "separate_pods": run.run(
            gang("bus-separate", "allreduce", *options, workers=count, separate=True)
        ),
    }
    speeds = {name: float(metrics["bus_gb_per_s"]) for name, metrics in found.items()}
    ratio = speeds["shared_pod"] / speeds["one_worker"]
    figures = {**speeds, "shared_to_one_worker": round(ratio, 3)}
    if ratio < MIN_BUS_RATIO:
        raise Broken(f"workers that share a pod reach {ratio:.2f} of one worker: {figures}")
    if speeds["separate_pods"] < MIN_SEPARATE_GB_PER_S:
        raise Broken(f"workers with a pod each reach less than shared memory does: {figures}")
    return {"check": f"all-reduce of 256 MiB over {count} GPUs, GB/s (bus)", "figures": figures}


def communication(run: Measured) -> Json:
    """Return the figures of the gangs' probe; check the condition of a gang without NVLink."""
    figures: Json = {}
    expected = {"bus-shared": "True", "bus-separate": "False"} if run.has_nvlink else {}
    for name, wanted in expected.items():
        status = run.status(name)
        found = {each["type"]: each["status"] for each in status.get("conditions", [])}
        probes = [each.get("communication", {}) for each in status.get("results", [])]
        figures[name] = {"FastCommunication": found.get("FastCommunication"), "probes": probes}
        if found.get("FastCommunication") != wanted:
            raise Broken(f"FastCommunication of {name} is not {wanted}: {figures[name]}")
    return {"check": "what gangs report of their communication", "figures": figures}


def resnet(run: Measured, count: int) -> Json:
    """Measure ResNet-50 by workers that share a pod; the workload compares with one GPU itself."""
    metrics = run.run(gang("resnet50-shared", "resnet50", *RESNET, workers=count))
    keys = ("images_per_s", "one_gpu_images_per_s", "scaling_ratio")
    figures = {key: metrics[key] for key in keys}
    _require_scaling(float(metrics["scaling_ratio"]), count, figures)
    return {"check": f"ResNet-50 by {count} workers that share a pod", "figures": figures}


def transformer(run: Measured, count: int) -> Json:
    """Measure the transformer by DDP and FSDP, against one GPU with as many rows per GPU."""
    alone = run.run(job("transformer-one", "transformer", *TRANSFORMER, gpus=1))
    rows = f"--batch-size={count * int(alone['batch_size'])}"
    figures: Json = {"one_gpu_tokens_per_s": alone["tokens_per_s"]}
    for kind in ("ddp", "fsdp"):
        options = (*TRANSFORMER, rows, f"--parallel={kind}")
        metrics = run.run(gang(f"transformer-{kind}", "transformer", *options, workers=count))
        ratio = float(metrics["tokens_per_s"]) / float(alone["tokens_per_s"])
        figures |= {
            f"{kind}_tokens_per_s": metrics["tokens_per_s"],
            f"{kind}_ratio": round(ratio, 3),
        }
        _require_scaling(ratio, count, figures)
    return {"check": f"transformer by {count} workers that share a pod", "figures": figures}


def isolation(bench: Bench, count: int) -> Json:
    """Check that each container of a shared pod sees its GPU in CUDA, and none of other pods."""
    bench.apply(sharing_viewers(count))
    (ended,) = bench.finished(VIEWERS)
    (here,) = ended["status"]["placement"]
    seen = views(bench, VIEWERS)
    for index, uuid in enumerate(here["gpus"]):
        shown = {tuple(seen[index]["cuda"]), (seen[index]["variable"],)}
        if shown != {(uuid,)} or not set(seen[index]["nvml"]) <= set(here["gpus"]):
            raise Broken(f"worker {index} was given {uuid} and sees {seen[index]}")
    what = f"each of {count} containers of one pod sees exactly its GPU"
    return {"check": what, "figures": {str(index): each["cuda"] for index, each in seen.items()}}


def run_gangs(bench: Bench, timed: Timed) -> Iterator[Json]:
    """Run all measurements; none on a host with one GPU."""
    gpus = bench.gpus()
    count = len(gpus)
    if count < 2:  # noqa: PLR2004 - a gang needs two
        return
    run = Measured(bench, gpus)
    steps: dict[str, Callable[[], Json]] = {
        "isolation in a shared pod": lambda: isolation(bench, count),
        "gangs: bandwidth": lambda: bandwidths(run, count),
        "gangs: communication": lambda: communication(run),
        "gangs: ResNet-50": lambda: resnet(run, count),
        "gangs: transformer": lambda: transformer(run, count),
    }
    broken: list[str] = []
    for name, step in steps.items():
        # The others are measured all the same: a GPU host may be there once.
        try:
            yield timed(name, step)
        except (Broken, NotInTime) as error:
            broken.append(str(error))
            yield {"check": name, "figures": {"broken": str(error)}}
    if broken:
        raise Broken("; ".join(broken))


def _require_scaling(ratio: float, count: int, figures: Json) -> None:
    if ratio < MIN_SCALING * count / 2:
        raise Broken(f"{count} GPUs are only {ratio:.2f} times as fast as one: {figures}")
