# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from gpupack_agent.agent import Settings
from gpupack_agent.errors import SettingsInvalid
from gpupack_agent.settings import HostSettings, InventorySettings, NodeSettings


def test_the_node_name_is_all_that_is_required():
    settings = Settings.from_environ({"NODE_NAME": "n"})
    assert (settings.node.name, settings.holder) == ("n", "n")
    assert settings.inventory.backend == "nvml"
    assert settings.host.device_plugins == pathlib.Path("/var/lib/kubelet/device-plugins")


def test_folders_come_from_the_environment():
    host = HostSettings.from_environ({"GPUPACK_CDI_DIR": "/a", "GPUPACK_KUBELET_DIR": "/b"})
    assert (host.cdi, host.pod_resources_socket) == (
        pathlib.Path("/a"),
        pathlib.Path("/b/pod-resources/kubelet.sock"),
    )


def test_a_missing_node_name_is_named():
    with pytest.raises(SettingsInvalid, match="NODE_NAME"):
        NodeSettings.from_environ({})


def test_an_unknown_backend_is_named_with_the_known_ones():
    with pytest.raises(SettingsInvalid, match="'rocm': must be one of simulated, nvml"):
        InventorySettings.from_environ({"GPUPACK_INVENTORY": "rocm"})


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_heartbeat_of_no_length_is_refused(value):
    with pytest.raises(SettingsInvalid, match="HEARTBEAT"):
        NodeSettings.from_environ({"NODE_NAME": "n", "GPUPACK_HEARTBEAT_DURATION_SECONDS": value})
