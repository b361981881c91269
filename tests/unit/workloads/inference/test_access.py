# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.inference_server.access import (
    Authenticated,
    require_reachable_by_few,
    token_from,
)

TOKEN = "0123456789abcdef" * 2


def test_a_token_is_read_from_its_file_or_else_from_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    other = {"INFERENCE_TOKEN": TOKEN[::-1]}
    assert token_from(file, other) == TOKEN
    assert token_from(None, other) == TOKEN[::-1]
    assert token_from(None, {}) is None


@pytest.mark.parametrize("text", ["", "short", TOKEN[:-1], "ä" * 40, f"{TOKEN}\n{TOKEN}"])
def test_an_invalid_token_is_refused_and_not_shown(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    for given in ((file, {}), (None, {"INFERENCE_TOKEN": text})):
        with pytest.raises(BadArgument, match="openssl rand") as refused:
            token_from(*given)
        assert not text or text not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadArgument, match="missing cannot be read"):
        token_from(tmp_path / "missing", {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_server_on_loopback_needs_no_token(host):
    require_reachable_by_few(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.168.1.5"])
def test_a_server_without_a_token_listens_on_loopback_only(host):
    with pytest.raises(BadArgument, match="can be reached from other machines"):
        require_reachable_by_few(host, None)
    require_reachable_by_few(host, TOKEN)


@pytest.mark.parametrize("host", ["", "example.org", "127.0.0.1:80", "1.2.3"])
def test_an_invalid_address_is_refused(host):
    with pytest.raises(BadArgument, match="no IP address"):
        require_reachable_by_few(host, TOKEN)


async def status_of(path, headers, token=TOKEN):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": headers}
    await Authenticated(app, token)(scope, None, send)
    return sent[0]["status"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/metrics", "/", "/healthz/"])
async def test_all_but_health_needs_the_token(path):
    right = (b"authorization", f"Bearer {TOKEN}".encode())
    wrong = (b"authorization", b"Bearer " + TOKEN[::-1].encode())
    assert await status_of(path, [right]) == 200
    for headers in ([], [wrong], [right, wrong], [(b"authorization", TOKEN.encode())]):
        assert await status_of(path, headers) == 401
    assert await status_of(path, [], token=None) == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_the_kubelets_probes_need_no_token(path):
    assert await status_of(path, []) == 200
