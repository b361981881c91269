# SPDX-License-Identifier: Apache-2.0
"""Compiles CUDA C++ to machine code by nvcc, or by NVRTC, which needs no toolkit."""

import contextlib
import importlib
import logging
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpupack_workloads.cuda_api import check_status, load
from gpupack_workloads.errors import BadArgument

logger = logging.getLogger(__name__)

COMPILERS = ("nvcc", "nvrtc")
# The GPU that sources are compiled for where there is none.
ABSENT = (9, 0)
NO_NVRTC = (
    "there is no NVRTC: put CUDA's nvcc on PATH, or install the Python packages cuda-bindings"
    " and nvidia-cuda-nvrtc, which torch brings for NVIDIA's GPUs"
)
NO_NVCC = (
    "there is no nvcc: put CUDA's nvcc on PATH, or choose nvrtc, which torch brings for NVIDIA's"
    " GPUs"
)
LIBRARY = "cccl"
# What NVRTC says of a header of that library.
OF_LIBRARY = re.compile(r'cannot open source file "((?:cuda|cub|nv|thrust)/[^"]+)"')


class NoCudaLibrary(BadArgument):
    """A source includes CUDA's C++ library, and that is not among CUDA's headers."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """Requirements of a source besides CUDA's own headers.

    Attributes:
        standard: version of C++.
        folders: where its headers are.
        options: options of both compilers.
        nvcc_options: options of nvcc alone.
        nvrtc_options: options of NVRTC alone.
        nvrtc_headers: texts by the names under which sources include them: NVRTC has no standard
            library, and other headers than a host's compiler.
    """

    standard: str = "c++17"
    folders: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()
    nvcc_options: tuple[str, ...] = ()
    nvrtc_options: tuple[str, ...] = ()
    nvrtc_headers: Mapping[str, str] = field(default_factory=dict)


PLAIN = Build()


class Compiler(Protocol):
    """Interface of a compiler.

    Attributes:
        name: with its version.
    """

    name: str

    def compile(self, path: Path, arch: str, build: Build = PLAIN) -> bytes:
        """Return the code for an architecture, such as sm_90.

        Raises:
            BadArgument: the source does not compile; the text names files and lines.
        """


class Nvcc:
    """NVIDIA's compiler, if the image has it.

    Raises:
        BadArgument: it is not there.
    """

    def __init__(self) -> None:
        found = shutil.which("nvcc")
        if found is None:
            raise BadArgument(NO_NVCC)
        self._nvcc = found
        version_text = _run([found, "--version"]).stdout
        release = re.search(r"release ([\d.]+)", version_text)
        self.name = f"nvcc {release[1] if release else 'of unknown version'}"

    def compile(self, path: Path, arch: str, build: Build = PLAIN) -> bytes:
        """Return the code for an architecture."""
        options = [f"-arch={arch}", *_options(build), *build.nvcc_options]
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "kernel.cubin"
            done = _run([self._nvcc, "-cubin", *options, f"-o={cubin}", str(path)])
            if done.returncode != 0:
                raise BadArgument(_failure(path, arch, self.name, done.stderr or done.stdout))
            return cubin.read_bytes()


class Nvrtc:
    """The same compiler as a library, which needs neither a toolkit nor a host's compiler.

    Raises:
        BadArgument: it is not there.
    """

    def __init__(self) -> None:
        try:
            self._nvrtc = load("nvrtc")
            major, minor = check_status(self._nvrtc.nvrtcVersion())
        except (ImportError, RuntimeError) as error:
            raise BadArgument(f"{NO_NVRTC} ({error})") from error
        self.name = f"NVRTC {major}.{minor}"

    def compile(self, path: Path, arch: str, build: Build = PLAIN) -> bytes:
        """Return the code for an architecture."""
        nvrtc = self._nvrtc
        found = headers()
        folders = [f"-I{folder}" for folder in (path.parent, *found)]
        options = [f"-arch={arch}", *_options(build), *build.nvrtc_options, *folders]
        flags = [option.encode() for option in options]
        texts = [text.encode() for text in build.nvrtc_headers.values()]
        names = [name.encode() for name in build.nvrtc_headers]
        # The name is what messages call the source.
        source = (path.read_bytes(), str(path).encode())
        program = check_status(nvrtc.nvrtcCreateProgram(*source, len(names), texts, names))
        try:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
            if int(status) != 0:
                log = bytes(check_status(nvrtc.nvrtcGetProgramLogSize(program)))
                check_status(nvrtc.nvrtcGetProgramLog(program, log))
                text = log.decode(errors="replace").strip("\0\n")
                failure = _failure(path, arch, self.name, text or status.name)
                lacking = OF_LIBRARY.search(text)
                if lacking and not _library_in(found):
                    raise NoCudaLibrary(_without_library(failure, lacking[1]))
                raise BadArgument(failure)
            cubin = bytes(check_status(nvrtc.nvrtcGetCUBINSize(program)))
            check_status(nvrtc.nvrtcGetCUBIN(program, cubin))
        finally:
            nvrtc.nvrtcDestroyProgram(program)
        return cubin


def headers() -> list[Path]:
    """Return the folders of CUDA's headers, such as cuda_bf16.h, which nvcc finds by itself.

    CUDA 13 has its C++ library (CCCL) in a folder of that one. The Python package of the headers
    comes without it, so that it may be in the toolkit alone that nvcc is of. None where there are
    no headers, or no nvcc and cuda-pathfinder is too old to find them: few sources need any.
    """
    includes = [folder for folder in (_packaged_headers(), _toolkit_headers()) if folder]
    libraries = [folder / LIBRARY for folder in includes if (folder / LIBRARY).is_dir()]
    return [*includes[:1], *libraries[:1]]


def _packaged_headers() -> Path | None:
    with contextlib.suppress(ImportError, AttributeError):
        pathfinder = importlib.import_module("cuda.pathfinder")
        found = pathfinder.find_nvidia_header_directory("cudart")
        if found and Path(found).is_dir():
            return Path(found)
    return None


def _toolkit_headers() -> Path | None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    # What is on PATH may be a link into the toolkit.
    found = Path(nvcc).resolve().parent.parent / "include"
    return found if (found / "cuda_runtime.h").is_file() else None


def _library_in(folders: list[Path]) -> bool:
    return any((folder / "cuda" / "std").is_dir() for folder in folders)


def _without_library(failure: str, header: str) -> str:
    return (
        f"{failure}\nCUDA's C++ library (CCCL), which has <{header}>, is not among CUDA's headers:"
        " install the Python package nvidia-cuda-cccl, or put on PATH the nvcc of a toolkit that"
        " has it"
    )


def choose_compiler(name: str | None) -> Compiler:
    """Return nvcc or NVRTC: the requested one, else nvcc if it is installed.

    Raises:
        BadArgument: it is not there.
    """
    if name == "nvcc" or (name is None and shutil.which("nvcc")):
        return Nvcc()
    return Nvrtc()


def compiler_if_any(name: str | None, *, needed: bool) -> Compiler | None:
    """Return a compiler; None where there is none, with a warning.

    Args:
        name: nvcc or nvrtc; None takes what there is.
        needed: nothing can be done without one.

    Raises:
        BadArgument: there is none, and one is needed or was requested by its name.
    """
    try:
        return choose_compiler(name)
    except BadArgument as error:
        if needed or name is not None:
            raise
        logger.warning("the kernels are not compiled: %s", error)
        return None


def arch_of(capability: tuple[int, int]) -> str:
    """Return what compilers call an architecture, such as sm_90."""
    return "sm_{}{}".format(*capability)


def require_kernel(cubin: bytes, path: Path, name: str, declaration: str) -> None:
    """Check that code has a kernel, by the kernel's section.

    Raises:
        BadArgument: it has not.
    """
    if f".text.{name}\0".encode() not in cubin:
        raise BadArgument(f'{path} has no kernel extern "C" __global__ {declaration}')


def _options(build: Build) -> list[str]:
    folders = (f"-I{folder}" for folder in build.folders)
    return [f"-std={build.standard}", *build.options, *folders]


def _failure(path: Path, arch: str, compiler: str, log: str) -> str:
    return f"{path} does not compile for {arch} by {compiler}:\n{log.strip()}"


def _run(line: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  a list, no shell
        line, capture_output=True, text=True, errors="replace", check=False
    )
