# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys

import pytest

from gpupack_agent.agent import Settings
from gpupack_agent.settings import (
    DcgmSettings,
    HostSettings,
    InventorySettings,
    NodeSettings,
    ObservedSettings,
    PreStartSettings,
)
from gpupack_kubeclient.environment import SettingsInvalid


def test_a_pod_name_that_is_empty_is_none():
    assert Settings.from_environ({"NODE_NAME": "n", "POD_NAME": ""}).holder == "n"
    assert Settings.from_environ({"NODE_NAME": "n", "POD_NAME": "p"}).holder == "p"


def test_the_node_name_is_all_that_is_required():
    settings = Settings.from_environ({"NODE_NAME": "n"})
    assert (settings.node.name, settings.holder) == ("n", "n")
    assert settings.inventory.backend == "nvml"
    assert settings.host.device_plugins == pathlib.Path("/var/lib/kubelet/device-plugins")


def test_folders_come_from_the_environment():
    host = HostSettings.from_environ({"GPUPACK_CDI_DIR": "/a", "GPUPACK_KUBELET_ROOT_DIR": "/b"})
    assert (host.cdi, host.kubelet.root_dir) == (pathlib.Path("/a"), "/b")


def test_an_empty_folder_is_the_default_and_not_the_current_one():
    variables = ("KUBELET_ROOT_DIR", "DEVICE_PLUGINS_DIR", "CDI_DIR", "CGROUP_DIR", "PROBE_FILE")
    empty = {f"GPUPACK_{name}": "" for name in variables}
    assert HostSettings.from_environ(empty) == HostSettings()


def test_a_missing_node_name_is_named():
    with pytest.raises(SettingsInvalid, match="NODE_NAME"):
        NodeSettings.from_environ({})


def test_an_unknown_backend_is_named_with_the_known_ones():
    with pytest.raises(
        SettingsInvalid, match="'rocm' is not valid; set it to one of simulated, nvml"
    ):
        InventorySettings.from_environ({"GPUPACK_INVENTORY": "rocm"})


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_heartbeat_without_a_duration_is_refused(value):
    with pytest.raises(SettingsInvalid, match="HEARTBEAT"):
        NodeSettings.from_environ({"NODE_NAME": "n", "GPUPACK_HEARTBEAT_DURATION_SECONDS": value})


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_scans_without_a_pause_between_them_are_refused(value):
    with pytest.raises(SettingsInvalid, match=f"GPUPACK_SCAN_SECONDS='{value}' is not valid"):
        InventorySettings.from_environ({"GPUPACK_SCAN_SECONDS": value})


@pytest.mark.parametrize("value", ["0", "inf", "30"])
def test_a_wait_that_no_start_can_survive_is_refused(value):
    with pytest.raises(SettingsInvalid, match="more than 0, at most 29"):
        PreStartSettings.from_environ({"GPUPACK_PRESTART_WAIT_SECONDS": value})


def test_a_wrong_log_level_is_one_line_on_the_command_line():
    command = [sys.executable, "-m", "gpupack_agent", "run"]
    environ = {"GPUPACK_LOG_LEVEL": "loud", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    allowed = "one of DEBUG, INFO, WARNING, ERROR, CRITICAL"
    assert done.stderr == f"Error: GPUPACK_LOG_LEVEL='LOUD' is not valid; set it to {allowed}\n"
    assert done.returncode == 1


def test_resources_of_other_plugins_are_separated_by_commas_and_none_is_needed():
    observed = {"GPUPACK_OBSERVED_RESOURCES": "nvidia.com/gpu, example.org/gpu,nvidia.com/gpu"}
    assert ObservedSettings.from_environ(observed).resources == (
        "nvidia.com/gpu",
        "example.org/gpu",
    )
    assert ObservedSettings.from_environ({"GPUPACK_OBSERVED_RESOURCES": ""}).resources == ()


@pytest.mark.parametrize("wrong", ["gpu", "nvidia.com/gpu,", "gpupack.dev/gpu"])
def test_a_name_that_no_other_plugin_can_have_is_named(wrong):
    with pytest.raises(SettingsInvalid, match="set it to names of extended resources"):
        ObservedSettings.from_environ({"GPUPACK_OBSERVED_RESOURCES": wrong})


def test_dcgm_exporter_is_not_queried_by_default():
    assert DcgmSettings.from_environ({}).exporter == ""


def test_dcgm_exporter_is_found_in_the_namespaces_that_are_named():
    environ = {"GPUPACK_DCGM_EXPORTER": "auto", "GPUPACK_DCGM_NAMESPACES": "gpu-operator, dcgm,"}
    assert DcgmSettings.from_environ(environ).namespaces == ("gpu-operator", "dcgm")


def test_dcgm_exporter_auto_requires_namespaces():
    with pytest.raises(SettingsInvalid, match="GPUPACK_DCGM_NAMESPACES is not set"):
        DcgmSettings.from_environ({"GPUPACK_DCGM_EXPORTER": "auto"})


@pytest.mark.parametrize("url", ["yes", "file:///etc/passwd", "http://", "unix:///x", "http://[x"])
def test_dcgm_exporter_is_a_url_or_auto(url):
    with pytest.raises(SettingsInvalid, match="GPUPACK_DCGM_EXPORTER"):
        DcgmSettings.from_environ({"GPUPACK_DCGM_EXPORTER": url})
