# SPDX-License-Identifier: Apache-2.0
"""A driver that stands in for NVIDIA's, in the layout of a host: libraries, programs and nodes."""

import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).parent / "stand_in_nvml.c"
VERSION = "580.95.05"


def compiler():
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("there is no C compiler")
    return found


def install(root, libraries, programs, *, version=VERSION):
    """Put the driver below `root`: libraries and programs into these folders of it."""
    folder = root / libraries
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"libnvidia-ml.so.{version}"
    command = [compiler(), "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    (folder / f"libcuda.so.{version}").write_bytes(library.read_bytes())
    for name in ("libnvidia-ml.so", "libcuda.so"):
        (folder / f"{name}.1").unlink(missing_ok=True)
        (folder / f"{name}.1").symlink_to(f"{name}.{version}")
    (root / programs).mkdir(parents=True, exist_ok=True)
    program = root / programs / "nvidia-smi"
    program.write_text("#!/bin/sh\necho stand-in\n")
    program.chmod(0o755)
