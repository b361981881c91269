# SPDX-License-Identifier: Apache-2.0
"""Images of `make demo-gpu` on a host without downloads, made of the host's files and ours.

Three layers lie below them: the host's /usr (without CUDA's development kit, documentation and
NVIDIA's driver, which the agent has to inject), the Python that has torch, and the bundle's
libraries. So containers run the host's Python.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpupack_devcluster.build import KUBERNETES
from gpupack_devcluster.host_images import HostImage, HostLayer, Tree

LIBRARIES = (
    "lib/devices",
    "lib/placement",
    "lib/queue",
    "crds",
    "lib/kubeclient",
    "lib/scheduler",
    "lib/httpserver",
)
SERVICES = ("operator", "extender", "agent")
WORKLOADS = "docker.io/gpupack/workloads:dev"
KUBE_SCHEDULER = f"registry.k8s.io/kube-scheduler:{KUBERNETES}"
NAMES = (*(f"docker.io/gpupack/{part}:dev" for part in SERVICES), WORKLOADS, KUBE_SCHEDULER)
NON_ROOT = "65532:65532"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = ("alternatives", "group", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "passwd")
SYSTEM_FOLDERS = {
    "/dev": 0o755,
    "/etc": 0o755,
    "/proc": 0o755,
    "/root": 0o700,
    "/run": 0o755,
    "/sys": 0o755,
    "/tmp": 0o1777,  # noqa: S108 - a folder of the image
    "/var": 0o755,
}
NOT_OF_USR = (
    "local/cuda*",
    "local/nvidia",
    "share/doc",
    "share/locale",
    "share/man",
    "src",
    "**/libcuda.so*",
    "**/libcudadebugger.so*",
    "**/libnvcuvid.so*",
    "**/libnvidia-*",
    "**/nvidia-smi",
)
"""NVIDIA's driver, which is left out everywhere: a container gets it only from the agent."""


@dataclass(frozen=True)
class HostPython:
    """The Python that runs the demo, and the workloads."""

    executable: Path
    prefix: Path
    base_executable: Path
    base_prefix: Path
    numpy: Path


class PythonUnfit(Exception):
    """Error: this Python cannot run the workloads."""


def this_python(version: str) -> HostPython:
    """Return the running Python.

    Args:
        version: Python version of the bundle's libraries, such as 3.12.

    Raises:
        PythonUnfit: the version differs, or torch or Triton is missing.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != version:
        raise PythonUnfit(
            f"{sys.executable} is Python {running}, the bundle is for {version}: set PYTHON, or "
            f"create the bundle with GPU_PYTHON={running}"
        )
    missing = [name for name in ("numpy", "torch", "triton") if not importlib.util.find_spec(name)]
    if missing:
        raise PythonUnfit(
            f"{sys.executable} has no {', '.join(missing)}, and they are too large to be carried: "
            "set PYTHON to a Python that has them"
        )
    return HostPython(
        executable=Path(sys.executable),
        prefix=Path(sys.prefix),
        base_executable=Path(getattr(sys, "_base_executable", sys.executable)).resolve(),
        base_prefix=Path(sys.base_prefix),
        numpy=folder_of("numpy"),
    )


def folder_of(package: str) -> Path:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise PythonUnfit(f"{package} is no ordinary package")
    return Path(spec.origin).parent


def host_images(python: HostPython, *, root: Path, site: Path, binaries: Path) -> list[HostImage]:
    """Return all images of the demo."""
    system = system_layer(python)
    services = (system, services_layer(python, root=root, site=site))
    return [
        *(service(part, services) for part in SERVICES),
        workloads(python, (system, *python_layers(python), workloads_layer(root, site))),
        single_binary(KUBE_SCHEDULER, binaries / "kube", "/usr/local/bin/kube-scheduler"),
        single_binary("localhost/gpupack/pause:dev", binaries / "pause", "/pause"),
    ]


def system_layer(python: HostPython) -> HostLayer:
    """Return the layer with /usr, the links into it, and the usual top-level folders."""
    top = [Path("/") / name for name in TOP]
    etc = [Path("/etc") / name for name in ETC]
    whole = [path for path in (*top, *etc) if path.exists() and not path.is_symlink()]
    trees = [Tree(Path("/usr"), "/usr", NOT_OF_USR), *(Tree(path, str(path)) for path in whole)]
    if not is_below(python.base_prefix, Path("/usr")):
        trees.append(Tree(python.base_prefix, str(python.base_prefix)))
    links = {str(path): str(path.readlink()) for path in top if path.is_symlink()}
    return HostLayer("system", tuple(trees), links=links, folders=SYSTEM_FOLDERS, loader_cache=True)


def python_layers(python: HostPython) -> tuple[HostLayer, ...]:
    """Return the layer of the virtual environment with torch; none for the system's own Python."""
    if is_below(python.prefix, python.base_prefix) or is_below(python.prefix, Path("/usr")):
        return ()
    tree = Tree(python.prefix, str(python.prefix), ("**/__editable__*",))
    return (HostLayer("python", (tree,), links={}, folders={}),)


def services_layer(python: HostPython, *, root: Path, site: Path) -> HostLayer:
    """Return the common layer of operator, extender and agent; each starts its own module."""
    code = [
        Tree(root / folder / package, f"/opt/gpupack/{package}")
        for folder in (*LIBRARIES, *SERVICES)
        for package in (f"gpupack_{Path(folder).name}",)
    ]
    numpy_libs = python.numpy.with_name("numpy.libs")
    numpy = [Tree(path, f"/opt/site/{path.name}") for path in (python.numpy, numpy_libs)]
    trees = [*code, Tree(site, "/opt/site"), *(tree for tree in numpy if tree.source.exists())]
    links = {"/opt/venv/bin/python": str(python.base_executable)}
    return HostLayer("services", tuple(trees), links=links, folders={})


def workloads_layer(root: Path, site: Path) -> HostLayer:
    """Return the layer of our workloads, their kernels and the libraries besides torch."""
    code = [
        Tree(root / folder / package, f"/opt/gpupack/{package}")
        for folder, package in (
            ("workloads/kernels", "gpupack_kernels"),
            ("workloads", "gpupack_workloads"),
        )
    ]
    libraries = [Tree(site / name, f"/opt/site/{name}") for name in ("click", "msgspec")]
    return HostLayer("workloads", (*code, *libraries), links={}, folders={})


def service(part: str, layers: tuple[HostLayer, ...]) -> HostImage:
    """Return the image of one of our services."""
    config = {
        "Env": environment("/opt/venv/bin"),
        "Entrypoint": ["python", "-m", f"gpupack_{part}"],
        "User": "" if part == "agent" else NON_ROOT,
        "WorkingDir": "/",
    }
    return HostImage(f"docker.io/gpupack/{part}:dev", layers, config)


def workloads(python: HostPython, layers: tuple[HostLayer, ...]) -> HostImage:
    """Return the image of the built-in workloads, also for other programs that need torch."""
    config = {
        "Env": [*environment(str(python.executable.parent)), "HOME=/tmp"],
        "Entrypoint": [str(python.executable), "-m", "gpupack_workloads"],
        "User": NON_ROOT,
        "WorkingDir": "/",
    }
    return HostImage(WORKLOADS, layers, config)


def single_binary(name: str, binary: Path, path: str) -> HostImage:
    """Return an image of one static program."""
    layer = HostLayer(Path(path).name, (Tree(binary, path),), links={}, folders={})
    config: dict[str, Any] = {
        "Env": ["PATH=/usr/local/bin"],
        "Entrypoint": [path],
        "User": NON_ROOT,
        "WorkingDir": "/",
    }
    return HostImage(name, (layer,), config)


def environment(python: str) -> list[str]:
    """Return the environment of an image with Python."""
    return [
        f"PATH={python}:{SEARCH_PATH}",
        "PYTHONPATH=/opt/gpupack:/opt/site",
        "PYTHONUNBUFFERED=1",
    ]


def is_below(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or below it."""
    return path == folder or folder in path.parents
