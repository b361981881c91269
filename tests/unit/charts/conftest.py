# SPDX-License-Identifier: Apache-2.0
"""Fixtures that render the chart with helm."""

import dataclasses
import functools
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from gpupack_devcluster.build import KUBERNETES

ROOT = pathlib.Path(__file__).parents[3]
CHART = ROOT / "charts/gpupack"
BINARIES = ROOT / ".dev/bin"
REGISTRY = 'image.registry="registry.example"'
"""The only required value without a default."""


def tool(name):
    """Return the path of a tool from the build of the dev cluster."""
    found = shutil.which(name, path=str(BINARIES)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not built: run `make binaries`")
    return found


@dataclasses.dataclass(frozen=True)
class Rendered:
    """Result of rendering the chart with some values."""

    status: int
    text: str
    error: str

    @functools.cached_property
    def objects(self):
        """Return all objects by kind and name."""
        assert self.status == 0, self.error
        return {
            (item["kind"], item["metadata"]["name"]): item
            for item in yaml.safe_load_all(self.text)
            if item
        }

    def container(self, kind, pod, name):
        """Return a container of a Deployment or DaemonSet."""
        containers = self.objects[kind, pod]["spec"]["template"]["spec"]["containers"]
        return next(entry for entry in containers if entry["name"] == name)


@functools.cache
def _render(values, files, namespace, version, apis):
    command = [tool("helm"), "template", "gpupack", str(CHART), f"--namespace={namespace}"]
    command += [f"--kube-version={version}"] if version else []
    command += [f"--api-versions={api}" for api in apis]
    command += [] if files else [f"--set-json={REGISTRY}"]
    command += [f"--set-json={value}" for value in values]
    command += [f"--values={CHART / file}" for file in files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Rendered(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def render():
    """Render the chart with values such as `logLevel="DEBUG"`, over REGISTRY or over a file."""

    def rendered(*values, files=(), namespace="gpupack-system", version=KUBERNETES, apis=()):
        return _render(values, tuple(files), namespace, version, apis)

    return rendered


@pytest.fixture(scope="session")
def helm():
    """Run helm with these arguments."""
    return lambda *arguments: subprocess.run(
        [tool("helm"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def chart_copy(tmp_path):
    """Return a copy of the chart that a test may change."""
    return shutil.copytree(CHART, tmp_path / "gpupack")


@pytest.fixture(scope="session")
def conform(tmp_path_factory):
    """Validate manifests with the schemas of Kubernetes and of gpupack's CRDs."""
    folder = tmp_path_factory.mktemp("schemas")
    script = ROOT / "charts/schemas.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    location = f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [tool("kubeconform"), "-strict", f"-schema-location={location}"]
    return lambda text: subprocess.run(
        command, input=text, capture_output=True, text=True, check=False
    )
