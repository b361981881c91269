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


def test_only_two_variables_are_required():
    settings = Settings.from_environ(NEEDED)
    assert settings.lease.holder == "operator-0"
    assert settings.plan.url == "https://gpupack-extender.gpupack-system.svc:8443"
    assert settings.limits.bind_seconds == 60


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_a_missing_variable_is_named(missing):
    environ = {name: value for name, value in NEEDED.items() if name != missing}
    with pytest.raises(SettingsInvalid, match=missing):
        Settings.from_environ(environ)


def test_an_invalid_number_is_named_with_its_value():
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
        ("GPUPACK_EVICT_AFTER_SECONDS", "-1"),
    ],
)
def test_a_number_out_of_range_is_refused(name, value):
    with pytest.raises(SettingsInvalid, match=f"{name}='{value}' is not valid"):
        Settings.from_environ(NEEDED | {name: value})


def test_pull_secrets_and_policy_are_read():
    environ = {"GPUPACK_IMAGE_PULL_POLICY": "Never", "GPUPACK_IMAGE_PULL_SECRETS": "a,b"}
    pulling = Settings.from_environ(NEEDED | environ).pods.pulling
    assert (pulling.policy, pulling.secrets) == ("Never", ("a", "b"))
    assert Settings.from_environ(NEEDED).pods.pulling.secrets == ()


def test_an_unknown_pull_policy_is_refused():
    with pytest.raises(SettingsInvalid, match="GPUPACK_IMAGE_PULL_POLICY='never' is not valid"):
        Settings.from_environ(NEEDED | {"GPUPACK_IMAGE_PULL_POLICY": "never"})


def test_the_time_until_eviction_may_be_zero():
    assert (
        Settings.from_environ(NEEDED | {"GPUPACK_EVICT_AFTER_SECONDS": "0"}).pods.evict_seconds == 0
    )


@pytest.mark.parametrize(("text", "allowed"), [("", False), ("false", False), ("true", True)])
def test_nvlink_multicast_is_off_by_default(text, allowed):
    environ = NEEDED | {"GPUPACK_NVLINK_MULTICAST": text}
    assert Settings.from_environ(environ).pods.multicast is allowed


@pytest.mark.parametrize(("text", "set_"), [("", True), ("false", False), ("true", True)])
def test_socket_defaults_can_be_disabled(text, set_):
    environ = NEEDED | {"GPUPACK_SOCKET_DEFAULTS": text}
    assert Settings.from_environ(environ).pods.socket_defaults is set_


def test_provisioning_is_disabled_by_default():
    assert Settings.from_environ(NEEDED).provisioning is None
    assert Settings.from_environ(NEEDED | {"GPUPACK_PROVISIONING": "true"}).provisioning is not None


@pytest.mark.parametrize("text", ["zone", '["a"]', '{"a": 1}'])
def test_provisioning_parameters_must_be_texts(text):
    environ = {"GPUPACK_PROVISIONING": "true", "GPUPACK_PROVISIONING_PARAMETERS": text}
    with pytest.raises(SettingsInvalid, match="GPUPACK_PROVISIONING_PARAMETERS"):
        Settings.from_environ(NEEDED | environ)


def test_an_invalid_switch_is_named_with_its_value():
    with pytest.raises(SettingsInvalid, match="GPUPACK_NVLINK_MULTICAST='yes' is not valid"):
        Settings.from_environ(NEEDED | {"GPUPACK_NVLINK_MULTICAST": "yes"})


def test_an_unknown_log_level_gives_a_message_of_one_line():
    environ = NEEDED | {"GPUPACK_LOG_LEVEL": "loud"}
    result = CliRunner().invoke(__main__.main, [], env=environ)
    assert result.exit_code == 1
    assert result.output.startswith("GPUPACK_LOG_LEVEL='LOUD' is not valid")
    assert result.output.count("\n") == 1


def test_a_recent_heartbeat_passes_the_probe_whatever_the_wall_clock(tmp_path):
    heartbeat = tmp_path / "beat"
    liveness.write(heartbeat)
    os.utime(heartbeat, (0, time.time() - 3600))
    result = CliRunner().invoke(
        __main__.main, ["probe"], env={"GPUPACK_HEARTBEAT_FILE": str(heartbeat)}
    )
    assert result.exit_code == 0


def test_an_old_heartbeat_fails_the_probe_whatever_the_wall_clock(tmp_path):
    heartbeat = tmp_path / "beat"
    heartbeat.write_text(str(time.monotonic() - 60))
    os.utime(heartbeat, (0, time.time() + 3600))
    with pytest.raises(HeartbeatStale, match="60 s old"):
        liveness.probe(heartbeat)


def test_an_unreadable_heartbeat_fails_the_probe(tmp_path):
    (tmp_path / "beat").write_text("")
    with pytest.raises(HeartbeatStale, match="cannot be read"):
        liveness.probe(tmp_path / "beat")


def test_a_missing_heartbeat_fails_the_probe(tmp_path):
    with pytest.raises(HeartbeatStale, match="has not started"):
        liveness.probe(tmp_path / "beat")


def test_a_probe_imports_no_slow_module():
    """The kubelet restarts an operator whose probe is slow, as on a busy node."""
    script = "import gpupack_operator.__main__, sys; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)},
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert not {"kopf", "kubernetes", "numpy", "aiohttp"} & set(ran.stdout.split())
