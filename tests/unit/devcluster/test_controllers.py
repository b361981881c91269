# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_devcluster.build import TARGETS
from gpupack_devcluster.controllers import CONTROLLERS, IMAGE, in_order, overlay
from gpupack_devcluster.errors import UnknownName


def test_a_controller_is_installed_after_those_that_it_needs_and_once():
    assert in_order(["trainer", "jobset", "trainer"]) == ["jobset", "trainer"]


def test_an_unknown_controller_is_refused_with_the_known_names():
    with pytest.raises(UnknownName, match="no controller 'jobsets': jobset, kueue"):
        in_order(["jobsets"])


def test_each_controller_has_a_target_that_builds_its_binary():
    for name in CONTROLLERS:
        assert TARGETS[f"controller-{name}"].binaries == (f"controller-{name}",)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_overlay_replaces_image_and_command_and_nothing_else(name):
    (patch,) = overlay(name, CONTROLLERS[name])["patches"]
    changes = {
        each["path"].rpartition("/")[2]: each["value"] for each in json.loads(patch["patch"])
    }
    assert changes.pop("imagePullPolicy") == "IfNotPresent"
    assert changes == {"image": IMAGE, "command": [f"/controller-{name}"]}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_each_module_requires_the_project_that_it_installs(name):
    target = TARGETS[f"controller-{name}"]
    text = (target.module / "go.mod").read_text()
    assert f"tool {target.packages[0]}\n" in text
    assert f"{CONTROLLERS[name].module} v" in text
