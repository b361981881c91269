# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess

import pytest

from gpupack_images.host import (
    HostSettings,
    find_ca_bundle,
    parse_pip_config,
    render_apt_config,
    render_npm_config,
    render_pip_config,
    render_uv_environment,
    select_apt_options,
    select_npm_settings,
    write_secrets,
)

PLAIN = HostSettings(pip={}, npm={}, apt=(), apt_sources={}, ca_bundle=None)


def test_pips_environment_wins_over_its_files():
    listing = ":env:.timeout='180'\nglobal.cert='/etc/ca.crt'\nglobal.timeout='15'\n"
    assert parse_pip_config(listing) == {"cert": "/etc/ca.crt", "timeout": "180"}


def test_a_value_with_an_equals_sign_stays_whole():
    listing = "global.index-url='https://mirror.example/simple?token=a=b'\n"
    assert parse_pip_config(listing) == {"index-url": "https://mirror.example/simple?token=a=b"}


def test_several_values_are_on_one_line():
    host = HostSettings({"trusted-host": "\na.example\nb.example"}, {}, (), {}, None)
    assert "trusted-host = a.example b.example\n" in render_pip_config(host)


def test_uv_downloads_from_where_pip_does():
    pip = {
        "extra-index-url": "https://a.example/simple\nhttps://b.example/simple",
        "index-url": "https://mirror.example/simple?token=a'b",
        "proxy": "http://proxy.example:3128",
        "timeout": "180",
        "trusted-host": "mirror.example",
        "user": "true",
    }
    text = render_uv_environment(pip, "/etc/ca.crt")
    shown = ("UV_INDEX", "UV_DEFAULT_INDEX", "ALL_PROXY", "UV_HTTP_TIMEOUT", "SSL_CERT_FILE")
    script = text + "".join(f'echo "${name}"\n' for name in shown)
    printed = subprocess.check_output(["sh", "-eu"], input=script, text=True)
    assert printed.splitlines() == [
        "https://a.example/simple https://b.example/simple",
        "https://mirror.example/simple?token=a'b",
        "http://proxy.example:3128",
        "180",
        "/etc/ca.crt",
    ]
    assert "UV_INSECURE_HOST=mirror.example\n" in text
    assert "user" not in text


def test_uv_needs_no_variable_where_pip_has_no_setting():
    assert render_uv_environment({}, None) == ""


def test_certificates_are_read_from_where_the_build_has_them(tmp_path):
    bundle = tmp_path / "ca.crt"
    bundle.write_text("certificates")
    host = HostSettings({}, {}, (), {}, bundle)
    assert "cert = /run/secrets/ca.crt\n" in render_pip_config(host)
    assert 'Acquire::https::CAInfo "/run/secrets/ca.crt";\n' in render_apt_config(host)
    assert str(tmp_path) not in render_pip_config(host) + render_apt_config(host)


@pytest.mark.parametrize("setting", ["pip", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_the_certificates_that_the_hosts_clients_trust_are_found(tmp_path, setting):
    bundle = tmp_path / "ca.crt"
    bundle.touch()
    pip = {"cert": str(bundle)} if setting == "pip" else {}
    assert find_ca_bundle(pip, {} if pip else {setting: str(bundle)}) == bundle


def test_npms_registry_comes_with_its_token_and_nothing_of_the_host_s_own_paths():
    npmrc = (
        "registry=https://mirror.example/npm/\n"
        "//mirror.example/npm/:_authToken=${NPM_TOKEN}\n"
        "@team:registry = https://team.example/\n"
        "cache=/home/me/cache\n"
        "; registry=https://old.example/\n"
    )
    assert select_npm_settings(npmrc, {"NPM_TOKEN": "a=b"}) == {
        "registry": "https://mirror.example/npm/",
        "//mirror.example/npm/:_authToken": "a=b",
        "@team:registry": "https://team.example/",
    }


def test_npms_environment_wins_over_its_file():
    environ = {"NPM_CONFIG_REGISTRY": "https://other.example/", "npm_config_cache": "/cache"}
    found = select_npm_settings("registry=https://mirror.example/npm/\n", environ)
    assert found == {"registry": "https://other.example/"}


def test_npm_trusts_what_the_host_does(tmp_path):
    bundle = tmp_path / "ca.crt"
    bundle.write_text("certificates")
    host = HostSettings({}, {"registry": "https://mirror.example/"}, (), {}, bundle)
    wanted = "cafile=/run/secrets/ca.crt\nregistry=https://mirror.example/\n"
    assert render_npm_config(host) == wanted


def test_certificates_that_are_not_there_are_not_named():
    assert find_ca_bundle({"cert": "/nowhere/ca.crt"}, {}) is None


def test_apts_options_without_value_or_with_a_path_of_the_host_stay_behind():
    dump = (
        'Acquire "";\n'
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::CAInfo "/etc/ca.crt";\n'
        'Acquire::http "";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'Acquire::Languages "none";\n'
    )
    assert select_apt_options(dump) == (
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::Check-Valid-Until "false";',
    )


def test_an_image_keeps_its_own_package_sources_unless_the_host_has_fitting_ones():
    assert "Dir::Etc" not in render_apt_config(PLAIN)
    fitting = HostSettings({}, {}, (), {"apt.list": pathlib.Path("/etc/apt/sources.list")}, None)
    assert 'Dir::Etc::sourceparts "/run/secrets";\n' in render_apt_config(fitting)


def test_every_secret_is_written_even_when_the_host_has_nothing_to_say(tmp_path):
    secrets = write_secrets(PLAIN, tmp_path / "secrets")
    assert sorted(secrets) == [
        "apt.conf",
        "apt.list",
        "apt.sources",
        "ca.crt",
        "npmrc",
        "pip.conf",
        "uv.env",
    ]
    assert all(path.is_file() for path in secrets.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
