# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import msgspec
import pytest
from crd_schemas import violations

from gpupack_cli.convert.kinds import convert
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import Manifest, read
from gpupack_crds.gpujob import GpuJobSpec

ROOT = Path(__file__).parents[4]
INPUTS = ROOT / "examples" / "migrate"


class Conversion:
    """Results by source, checked against the CRD."""

    def __init__(self, results):
        self.results = results
        self.objects = [each for result in results for each in result.objects]
        for each in self.objects:
            if each["kind"] == "GPUJob":
                assert violations(each) == []
                msgspec.convert(each["spec"], GpuJobSpec)

    @property
    def job(self):
        (job,) = (each for each in self.objects if each["kind"] == "GPUJob")
        return job

    @property
    def spec(self):
        return self.job["spec"]

    @property
    def worker(self):
        containers = self.spec["template"]["spec"]["containers"]
        named = [each for each in containers if each["name"] == "worker"]
        return (named or containers)[0]

    def fields(self, level):
        return [
            each.path.removeprefix(".")
            for result in self.results
            for each in result.report.findings
            if each.level == level
        ]

    @property
    def dropped(self):
        return self.fields("dropped")

    @property
    def notes(self):
        return self.fields("note")


@pytest.fixture
def converted():
    def of(*sources, **settings):
        """Convert files of inputs, by name, or objects."""
        paths = tuple(INPUTS / each for each in sources if isinstance(each, str))
        given = [Manifest(each) for each in sources if not isinstance(each, str)]
        return Conversion(convert([*read(paths), *given], Settings(**settings)))

    return of


@pytest.fixture
def pod():
    def of(limits, *, annotations=None, name="a", **spec):
        container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"restartPolicy": "Never", "containers": [container]} | spec,
        }

    return of
