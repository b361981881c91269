# SPDX-License-Identifier: Apache-2.0
import hashlib
import importlib.util
import io
import os
import pathlib
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def krew():
    spec = importlib.util.spec_from_file_location("krew", ROOT / "client/cli/krew.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path, krew):
    """Return a plugin whose command prints its arguments."""
    package = tmp_path / "lib/gpupack_cli"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text("import sys\ndef main(): print(sys.argv)\n")
    launcher = tmp_path / "kubectl-gpupack"
    launcher.write_text(krew.LAUNCHER)
    launcher.chmod(0o755)
    return tmp_path


def test_the_checksum_in_the_manifest_is_that_of_the_archive(krew, folder):
    archive = krew.create_archive(folder)
    built = krew.build_manifest("0.2.0", archive, "https://example.org/a.tar.gz")
    (platform,) = built["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert platform["uri"] == "https://example.org/a.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getmember(platform["bin"]).mode == 0o755


def test_the_archive_is_reproducible(krew, folder):
    first = krew.create_archive(folder)
    os.utime(folder / "kubectl-gpupack", (0, 0))
    assert krew.create_archive(folder) == first


def test_the_launcher_runs_the_library_next_to_it(krew, folder, tmp_path):
    link = tmp_path / "bin" / "kubectl-gpupack"
    link.parent.mkdir()
    link.symlink_to(folder / "kubectl-gpupack")
    done = subprocess.run(
        [link, "jobs", "-n", "a b"], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "['kubectl-gpupack', 'jobs', '-n', 'a b']\n"


def test_the_launcher_reports_a_missing_python(krew, folder):
    tools = folder / "tools"
    tools.mkdir()
    for name in ("dirname", "readlink"):
        (tools / name).symlink_to(pathlib.Path("/usr/bin", name))
    done = subprocess.run(
        ["/bin/sh", folder / "kubectl-gpupack"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.startswith("gpupack: this plugin needs python")) == (
        70,
        True,
    )
