# SPDX-License-Identifier: Apache-2.0
import copy
import pathlib

import yaml

ROOT = pathlib.Path(__file__).parents[3]
CHART = ROOT / "charts/gpupack"
SOURCES = sorted((ROOT / "crds").glob("*.yaml"))
KIND = "CustomResourceDefinition"


def test_the_chart_carries_the_crds_as_they_are():
    carried = {file.name: file.read_text() for file in (CHART / "files/crds").iterdir()}
    assert carried == {file.name: file.read_text() for file in SOURCES}


def test_the_installed_crds_differ_in_their_metadata_alone(render):
    for source in map(yaml.safe_load, (file.read_text() for file in SOURCES)):
        installed = copy.deepcopy(render().objects[KIND, source["metadata"]["name"]])
        assert installed["metadata"]["name"] == source["metadata"]["name"]
        assert installed | {"metadata": 0} == source | {"metadata": 0}


def test_uninstalling_leaves_the_crds_and_so_every_job(render):
    name = (KIND, "gpujobs.gpupack.dev")
    annotations = render().objects[name]["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in render("crds.keep=false").objects[name]["metadata"]


def test_the_crds_can_be_left_to_another_tool(render):
    assert [kind for kind, _ in render("crds.install=false").objects if kind == KIND] == []
