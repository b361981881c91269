# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from gpupack_kubeclient.environment import SettingsInvalid
from gpupack_operator import __main__, liveness
from gpupack_operator.errors import HeartbeatStale
from gpupack_operator.settings import Settings

NEEDED = {"POD_NAME": "operator-0", "GPUPACK_WORKLOAD_IMAGE": "gpupack/workloads:1"}


def test_what_must_be_set_is_little():
    settings = Settings.from_environ(NEEDED)
    assert settings.lease.holder == "operator-0"
    assert settings.plan.url == "https://gpupack-extender.gpupack-system.svc:8443"
    assert settings.limits.bind_seconds == 60


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_a_missing_variable_is_named(missing):
    environ = {name: value for name, value in NEEDED.items() if name != missing}
    with pytest.raises(SettingsInvalid, match=missing):
        Settings.from_environ(environ)


def test_a_number_that_is_none_is_named_with_its_value():
    with pytest.raises(SettingsInvalid, match="GPUPACK_BIND_TIMEOUT_SECONDS='soon'"):
        Settings.from_environ(NEEDED | {"GPUPACK_BIND_TIMEOUT_SECONDS": "soon"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUPACK_RECONCILERS", "0"),
        ("GPUPACK_LEASE_SECONDS", "0"),
        ("GPUPACK_BIND_TIMEOUT_SECONDS", "-1"),
        ("GPUPACK_BIND_WORKERS_PER_SECOND", "0"),
        ("GPUPACK_START_TIMEOUT_SECONDS", "0"),
        ("GPUPACK_IMAGE_TIMEOUT_SECONDS", "0"),
        ("GPUPACK_EVICT_SECONDS", "-1"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(name, value):
    with pytest.raises(SettingsInvalid, match=f"{name}='{value}' is not valid"):
        Settings.from_environ(NEEDED | {name: value})


def test_pull_secrets_and_policy_are_those_of_the_chart():
    environ = {"GPUPACK_IMAGE_PULL_POLICY": "Never", "GPUPACK_IMAGE_PULL_SECRETS": "a,b"}
    pulling = Settings.from_environ(NEEDED | environ).pods.pulling
    assert (pulling.policy, pulling.secrets) == ("Never", ("a", "b"))
    assert Settings.from_environ(NEEDED).pods.pulling.secrets == ()


def test_a_pull_policy_that_kubernetes_does_not_have_is_refused():
    with pytest.raises(SettingsInvalid, match="GPUPACK_IMAGE_PULL_POLICY='never' is not valid"):
        Settings.from_environ(NEEDED | {"GPUPACK_IMAGE_PULL_POLICY": "never"})


def test_a_node_that_does_not_answer_may_lose_its_workers_at_once():
    assert Settings.from_environ(NEEDED | {"GPUPACK_EVICT_SECONDS": "0"}).pods.evict_seconds == 0


@pytest.mark.parametrize(("text", "allowed"), [("", False), ("false", False), ("true", True)])
def test_nvlink_multicast_is_the_administrators_to_allow(text, allowed):
    environ = NEEDED | {"GPUPACK_NVLINK_MULTICAST": text}
    assert Settings.from_environ(environ).pods.multicast is allowed


@pytest.mark.parametrize(("text", "set_"), [("", True), ("false", False), ("true", True)])
def test_an_administrator_can_turn_off_the_defaults_of_nccls_sockets(text, set_):
    environ = NEEDED | {"GPUPACK_SOCKET_DEFAULTS": text}
    assert Settings.from_environ(environ).pods.socket_defaults is set_


def test_nobody_is_asked_for_nodes_unless_the_administrator_says_so():
    assert Settings.from_environ(NEEDED).provisioning is None
    assert Settings.from_environ(NEEDED | {"GPUPACK_PROVISIONING": "true"}).provisioning is not None


@pytest.mark.parametrize("text", ["zone", '["a"]', '{"a": 1}'])
def test_parameters_of_a_provisioning_class_that_are_no_texts_are_refused(text):
    environ = {"GPUPACK_PROVISIONING": "true", "GPUPACK_PROVISIONING_PARAMETERS": text}
    with pytest.raises(SettingsInvalid, match="GPUPACK_PROVISIONING_PARAMETERS"):
        Settings.from_environ(NEEDED | environ)


def test_a_switch_that_is_neither_on_nor_off_is_named_with_its_value():
    with pytest.raises(SettingsInvalid, match="GPUPACK_NVLINK_MULTICAST='yes' is not valid"):
        Settings.from_environ(NEEDED | {"GPUPACK_NVLINK_MULTICAST": "yes"})


def test_a_log_level_that_does_not_exist_is_one_line():
    environ = NEEDED | {"GPUPACK_LOG_LEVEL": "loud"}
    result = CliRunner().invoke(__main__.main, [], env=environ)
    assert result.exit_code == 1
    assert result.output.startswith("GPUPACK_LOG_LEVEL='LOUD' is not valid")
    assert result.output.count("\n") == 1


def test_a_fresh_heartbeat_is_well_whatever_the_wall_clock_says(tmp_path):
    heartbeat = tmp_path / "beat"
    liveness.write(heartbeat)
    os.utime(heartbeat, (0, time.time() - 3600))
    result = CliRunner().invoke(
        __main__.main, ["probe"], env={"GPUPACK_HEARTBEAT_FILE": str(heartbeat)}
    )
    assert result.exit_code == 0


def test_an_old_heartbeat_is_not_whatever_the_wall_clock_says(tmp_path):
    heartbeat = tmp_path / "beat"
    heartbeat.write_text(str(time.monotonic() - 60))
    os.utime(heartbeat, (0, time.time() + 3600))
    with pytest.raises(HeartbeatStale, match="60 s old"):
        liveness.probe(heartbeat)


def test_a_heartbeat_that_cannot_be_read_is_not_either(tmp_path):
    (tmp_path / "beat").write_text("")
    with pytest.raises(HeartbeatStale, match="cannot be read"):
        liveness.probe(tmp_path / "beat")


def test_no_heartbeat_is_not_either(tmp_path):
    with pytest.raises(HeartbeatStale, match="has not started"):
        liveness.probe(tmp_path / "beat")


def test_a_probe_imports_nothing_that_takes_long():
    """The kubelet kills an operator whose probe is slow, just when the node has most to do."""
    script = "import gpupack_operator.__main__, sys; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)},
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert not {"kopf", "kubernetes", "numpy", "aiohttp"} & set(ran.stdout.split())
