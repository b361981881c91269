# SPDX-License-Identifier: Apache-2.0
"""`make demo-gpu`: a real cluster on this GPU host, GPUJobs on its GPUs, and a report.

It runs as root on a bare host: with the results of `make setup`, or, on a host without downloads,
with a bundle (gpu_bundle.py). The report is written even if the demo fails.
"""

import argparse
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import gpu_agreement
import gpu_bundle
import gpu_images
import gpu_report
from gpu_bundle import BUNDLE, DEV, ROOT, SITE
from gpu_fault import check_fault
from gpu_gangs import run_gangs
from gpu_jobs import Bench, Json, run_all, wait_for_gpus
from gpu_limits import run_limits
from gpu_queue import run_queue

from gpupack_devcluster.build import KUBERNETES
from gpupack_devcluster.host_images import HostStore
from gpupack_devcluster.kubectl import Kubectl

NAMESPACE = "gpupack-system"
BIN = DEV / "bin"
LOGS = DEV / "log"
TLS_SECRET = "gpupack-extender-tls"  # noqa: S105 - a name
EXTENDER_NAMES = (
    f"gpupack-extender.{NAMESPACE}.svc",
    f"gpupack-extender.{NAMESPACE}.svc.cluster.local",
    "localhost",
    "127.0.0.1",
)
# On a shared host, multicast groups of NVSwitch can outlive the process that created them.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}

AGENT = b"gpupack_agent\0run"
"""Words of the agent's command line."""

T = TypeVar("T")


@dataclass
class Clock:
    """Measures the seconds of each phase, and prints them."""

    began: float = field(default_factory=time.monotonic)
    phases: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body of the context."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = round(time.monotonic() - start, 2)
            print(f"== {name}: {self.phases[name]:.1f} s", flush=True)

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Time a call."""
        with self.phase(name):
            return work()

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 2)


@dataclass(frozen=True)
class Driver:
    """Command of the dev cluster, run with the Python that has its libraries."""

    python: str
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> None:
        """Run `gpupack-devcluster`."""
        command = [self.python, "-m", "gpupack_devcluster", *arguments]
        subprocess.run(command, cwd=ROOT, env=self.environment, check=True)


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-gangs", action="store_true", help="Measure only gangs.")
    parser.add_argument(
        "--reports", type=Path, default=DEV / "reports", help="Folder for the report."
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if os.geteuid() != 0:
        print("make demo-gpu needs root (namespaces, mounts, cgroups)", file=sys.stderr)
        return 1
    os.environ.update(NO_MULTICAST)
    clock, bench = Clock(), Bench(Kubectl(BIN / "kubectl", DEV / "kubeconfig"))
    outcome: Json = {"results": [], "error": ""}
    try:
        read_ahead()
        start_cluster(clock)
        with clock.phase("agent reports GPUs"):
            outcome["gpus"] = wait_for_gpus(bench, seconds=60)
            outcome["driver"] = bench.driver()
        checks = run_gangs(bench, clock.timed) if arguments.only_gangs else check_all(bench, clock)
        for result in checks:
            outcome["results"].append(
                result
            )  # one by one: earlier results stay if a later check fails
    except Exception as error:  # noqa: BLE001 - whatever it is goes into the report
        outcome["error"] = f"{type(error).__name__}: {error}"
        diagnose()
    report = gpu_report.build(outcome, clock.phases, seconds=clock.total, versions=versions())
    path = gpu_report.write(report, arguments.reports)
    print(f"\n{path.with_suffix('.md').read_text()}\nreport: {path}")
    return 1 if outcome["error"] else 0


def check_all(bench: Bench, clock: Clock) -> Iterator[Json]:
    """Run all checks, one after the other; the GPU fault and the agreement last."""
    agreement = gpu_agreement.watching(bench.all_pods)
    agreement.start()
    yield from run_all(bench, clock.timed)
    yield from run_queue(bench, clock.timed)
    yield from run_gangs(bench, clock.timed)
    yield from run_limits(bench, clock.timed, kill_agent=kill_agent)
    yield clock.timed("a GPU that fails", lambda: check_fault(bench, kill_agent=kill_agent))
    yield agreement.result()


def read_ahead() -> None:
    """Read torch's gigabytes into the page cache while the cluster starts."""
    command = [sys.executable, "-c", "import torch, triton"]
    subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def start_cluster(clock: Clock) -> None:
    """Start the cluster and gpupack; return when gpupack is ready."""
    carried = gpu_bundle.is_carried()
    if carried:
        clock.timed("unpack", gpu_bundle.unpack)
        clock.timed("images from the host", write_images)
    driver = driver_for(carried=carried)
    os.environ["PATH"] = driver.environment["PATH"]
    with clock.phase("cluster up"):
        driver("up", "--nodes", "1")
    with clock.phase("images into the node"):
        driver("load", *gpu_images.NAMES)
    with clock.phase("gpupack ready"):
        install(carried=carried)


def write_images() -> None:
    """Write the images of this host's files."""
    facts = json.loads((BUNDLE / "facts.json").read_text())
    python = gpu_images.this_python(facts["python"])
    images = gpu_images.host_images(python, root=ROOT, site=SITE, binaries=BIN)
    HostStore(DEV / "images" / "root").write(images)


def driver_for(*, carried: bool) -> Driver:
    """Choose the Python and the paths."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    if not carried:
        return Driver(str(DEV / "venv/bin/python"), environment)
    return Driver(
        sys.executable, {**environment, "PYTHONPATH": f"{ROOT / 'hack/devcluster'}:{SITE}"}
    )


def install(*, carried: bool) -> None:
    """Install the chart, and wait until the scheduler decides.

    It does not wait for the agents' readiness, which a kubelet that has just started checks up to
    half a minute late. What counts is that they report GPUs.
    """
    if carried:
        install_manifests()
    else:
        values = str(ROOT / "charts/gpupack/values-gpu.yaml")
        helm = [str(BIN / "helm"), "upgrade", "--install", "gpupack", str(ROOT / "charts/gpupack")]
        options = ["-n", NAMESPACE, "--create-namespace", "-f", values]
        run(*helm, *options, environment={"KUBECONFIG": str(DEV / "kubeconfig")})
    for workload in ("deployment/gpupack-scheduler", "deployment/gpupack-operator"):
        kubectl("rollout", "status", "-n", NAMESPACE, "--timeout=60s", workload)


def install_manifests() -> None:
    """Apply the bundle's manifests as Helm would."""
    folder = DEV / "cluster" / "extender-tls"
    issue_certificate(folder)
    created = kubectl("create", "namespace", NAMESPACE, "--dry-run=client", "-o", "yaml")
    kubectl("apply", "-f", "-", text_input=created)
    files = {"ca.crt": "ca.crt", "tls.crt": "extender.crt", "tls.key": "extender.key"}
    given = [f"--from-file={key}={folder / file}" for key, file in files.items()]
    kind = ["secret", "generic", TLS_SECRET, "--type=kubernetes.io/tls"]
    secret = kubectl("create", "-n", NAMESPACE, *kind, *given, "--dry-run=client", "-o", "yaml")
    kubectl("apply", "-f", "-", text_input=secret)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(BUNDLE / "manifests.yaml"))


def issue_certificate(folder: Path) -> None:
    """Write a certificate for the plan API, with its own authority."""
    sys.path.append(str(SITE))
    from gpupack_devcluster.certificates import Authority, Identity  # noqa: PLC0415 - unpacked now

    authority = Authority(folder, "")
    authority.prepare()
    authority.issue(Identity("extender", "gpupack-extender", hosts=EXTENDER_NAMES))


def versions() -> Json:
    """Return the versions on which the figures depend, besides the GPU."""
    kernel = platform.uname()
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    facts: Json = {
        "system": system,
        "kernel": kernel.release,
        "machine": kernel.machine,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kubernetes": KUBERNETES,
    }
    return {**facts, "gpupack": commit()}


def commit() -> str:
    """Return the commit of this checkout; "" if it is not known."""
    if gpu_bundle.is_carried():
        return str(json.loads((BUNDLE / "facts.json").read_text())["commit"])
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def kill_agent() -> None:
    """Kill the agent with SIGKILL."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and AGENT in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


def diagnose() -> None:
    """Write the cluster's state and logs for the analysis of a failure."""
    folder = LOGS / "demo-gpu"
    folder.mkdir(parents=True, exist_ok=True)
    questions = {
        "objects.yaml": ["get", "nodes,gpunodes,gpujobs,jobs,pods", "-A", "-o", "yaml"],
        "events.txt": ["get", "events", "-A", "--sort-by=.lastTimestamp"],
        "pods.txt": ["describe", "pods", "-A"],
    }
    for part in ("operator", "scheduler", "agent", "mps"):
        label = f"app.kubernetes.io/component={part}"
        questions[f"{part}.log"] = [
            *("logs", "-n", NAMESPACE, "-l", label, "--all-containers", "--tail=-1", "--prefix"),
        ]
    for name, question in questions.items():
        command = [str(BIN / "kubectl"), "--kubeconfig", str(DEV / "kubeconfig"), *question]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=20)
            (folder / name).write_bytes(done.stdout + done.stderr)
        except (OSError, subprocess.TimeoutExpired) as error:
            (folder / name).write_text(str(error))


def kubectl(*arguments: str, text_input: str | None = None) -> str:
    """Run kubectl."""
    config = ["--kubeconfig", str(DEV / "kubeconfig")]
    return run(str(BIN / "kubectl"), *config, *arguments, text_input=text_input)


def run(
    *command: str, text_input: str | None = None, environment: dict[str, str] | None = None
) -> str:
    """Run a program; if it fails, raise with the end of its output."""
    done = subprocess.run(
        command,
        input=text_input,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:160]} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
