# SPDX-License-Identifier: Apache-2.0
"""The search for gpupack's namespace."""

import http.server
import json
import ssl
import threading

import pytest
from self_signed import self_signed

from gpupack import ServerNotFound
from gpupack.cluster.release import Release, choose_release, parse_releases
from gpupack.cluster.release_in_pod import release_in_pod

PUBLISHED = {"namespace": "gpu-tools", "apiCertificate": "mine", "extenderCertificate": "theirs"}
OURS = Release("gpu-tools", api_secret="mine", extender_secret="theirs")
OPTION = "--system-namespace"


def test_a_release_publishes_its_namespace_and_secrets():
    assert parse_releases([PUBLISHED]) == [OURS]
    assert OURS.api_address == "https://gpupack-api.gpu-tools.svc"


def test_data_without_a_namespace_is_ignored():
    wrong = ({}, {"namespace": ""}, {"namespace": "a/b"}, {"namespace": "a" * 64})
    assert parse_releases(wrong) == []


def test_the_only_release_is_chosen():
    assert choose_release([OURS], namespace="", option=OPTION) == OURS


def test_an_unpublished_release_has_the_default_secret_names():
    assert choose_release([OURS], namespace="gpu-tools", option=OPTION) == OURS
    other = choose_release([OURS], namespace="other", option=OPTION)
    assert other == Release("other")
    assert other.api_secret == "gpupack-api-certificate"


def test_a_missing_release_is_reported_with_the_option():
    with pytest.raises(ServerNotFound, match=r"install the chart.*--system-namespace or GPUPACK_S"):
        choose_release([], namespace="", option=OPTION)


def test_at_most_ten_releases_are_named():
    many = [Release(f"n{index:02}") for index in range(30)]
    with pytest.raises(ServerNotFound, match=r"30 namespaces \(n00, .*, n09 and 20 more\)"):
        choose_release(many, namespace="", option=OPTION)


@pytest.fixture
def pod(tmp_path):
    """Serve the API server to a pod; yield its variables, the answers and the calls."""
    answer = {"status": 200, "items": [{"data": PUBLISHED}], "asked": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer["asked"].append((self.path, self.headers["Authorization"]))
            self.send_response(answer["status"])
            self.end_headers()
            self.wfile.write(json.dumps({"items": answer["items"]}).encode())

        def log_message(self, *_):
            pass

    certificate, key = self_signed(tmp_path)
    (tmp_path / "ca.crt").write_bytes(certificate.read_bytes())
    (tmp_path / "token").write_text("of-the-pod")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = {"KUBERNETES_SERVICE_HOST": "localhost"}
    yield host | {"KUBERNETES_SERVICE_PORT": str(server.server_address[1])}, answer, tmp_path
    server.shutdown()
    server.server_close()


def found(pod, namespace=""):
    environ, _, account = pod
    return release_in_pod(environ, account, namespace=namespace, option=OPTION)


def test_a_pod_finds_the_release_with_its_own_token(pod):
    assert found(pod) == OURS
    ((path, authorization),) = pod[1]["asked"]
    assert path.startswith("/api/v1/namespaces/kube-public/configmaps?labelSelector=")
    assert authorization == "Bearer of-the-pod"


def test_a_pod_with_a_configured_namespace_sends_no_request(pod):
    assert found(pod, "mine") == Release("mine")
    assert pod[1]["asked"] == []


def test_the_error_of_a_refused_pod_says_what_to_set(pod):
    pod[1]["status"] = 403
    with pytest.raises(ServerNotFound, match=r"403.*GPUPACK_SYSTEM_NAMESPACE"):
        found(pod)
