# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_apiserver.settings import Settings
from gpupack_kubeclient.environment import SettingsInvalid

TLS = {"GPUPACK_TLS_CERT": "/tls.crt", "GPUPACK_TLS_KEY": "/tls.key"}


def test_service_variables_of_kubernetes_are_not_settings():
    found = Settings.from_environ({**TLS, "GPUPACK_API_PORT": "tcp://10.0.0.1:443"})
    assert found.port == 8444


def test_client_certificates_need_a_configured_port():
    assert Settings.from_environ(TLS).certificates_port == 0
    named = Settings.from_environ({**TLS, "GPUPACK_CLIENT_CERTIFICATES_PORT": "8445"})
    assert named.certificates_port == 8445


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUPACK_CLIENT_CERTIFICATES_PORT", "-1"),
        ("GPUPACK_LISTEN_PORT", "70000"),
        ("GPUPACK_STALE_AFTER_SECONDS", "10"),
        ("GPUPACK_POLICY", "best"),
    ],
)
def test_a_wrong_setting_is_named(variable, value):
    with pytest.raises(SettingsInvalid, match=variable):
        Settings.from_environ({**TLS, variable: value})


def test_the_api_does_not_start_without_a_certificate():
    with pytest.raises(SettingsInvalid, match="GPUPACK_TLS_CERT"):
        Settings.from_environ({})
