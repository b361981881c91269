# SPDX-License-Identifier: Apache-2.0
import copy
import pathlib

import yaml

ROOT = pathlib.Path(__file__).parents[3]
CHART = ROOT / "charts/gpupack"
SOURCES = sorted((ROOT / "crds").glob("*.yaml"))
KIND = "CustomResourceDefinition"


def test_the_chart_contains_the_generated_crds():
    carried = {file.name: file.read_text() for file in (CHART / "files/crds").iterdir()}
    assert carried == {file.name: file.read_text() for file in SOURCES}


def test_installed_crds_differ_only_in_metadata(render):
    for source in map(yaml.safe_load, (file.read_text() for file in SOURCES)):
        installed = copy.deepcopy(render().objects[KIND, source["metadata"]["name"]])
        assert installed["metadata"]["name"] == source["metadata"]["name"]
        assert installed | {"metadata": 0} == source | {"metadata": 0}


def test_uninstall_keeps_the_crds_and_all_jobs(render):
    name = (KIND, "gpujobs.gpupack.dev")
    annotations = render().objects[name]["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in render("crds.keep=false").objects[name]["metadata"]


def test_crds_are_not_installed_if_crds_install_is_false(render):
    assert [kind for kind, _ in render("crds.install=false").objects if kind == KIND] == []
