# SPDX-License-Identifier: Apache-2.0
"""In which namespace gpupack is."""

import http.server
import json
import ssl
import threading

import pytest
from self_signed import self_signed

from gpupack import ServerNotFound
from gpupack.cluster.release import Release, chosen, releases
from gpupack.cluster.release_in_pod import release_in_pod

PUBLISHED = {"namespace": "gpu-tools", "apiCertificate": "mine", "extenderCertificate": "theirs"}
OURS = Release("gpu-tools", api_secret="mine", extender_secret="theirs")
OPTION = "--system-namespace"


def test_a_release_says_where_it_is_and_which_secrets_it_is_trusted_by():
    assert releases([PUBLISHED]) == [OURS]
    assert OURS.api_address == "https://gpupack-api.gpu-tools.svc"


def test_what_names_no_namespace_is_no_release():
    wrong = ({}, {"namespace": ""}, {"namespace": "a/b"}, {"namespace": "a" * 64})
    assert releases(wrong) == []


def test_the_only_release_is_the_one_that_is_meant():
    assert chosen([OURS], namespace="", option=OPTION) == OURS


def test_one_that_is_named_and_not_published_has_secrets_of_the_usual_names():
    assert chosen([OURS], namespace="gpu-tools", option=OPTION) == OURS
    other = chosen([OURS], namespace="other", option=OPTION)
    assert other == Release("other")
    assert other.api_secret == "gpupack-api-certificate"


def test_without_a_release_it_is_said_how_one_is_named():
    with pytest.raises(ServerNotFound, match=r"install the chart.*--system-namespace or GPUPACK_S"):
        chosen([], namespace="", option=OPTION)


def test_of_many_releases_ten_are_named():
    many = [Release(f"n{index:02}") for index in range(30)]
    with pytest.raises(ServerNotFound, match=r"30 namespaces \(n00, .*, n09 and 20 more\)"):
        chosen(many, namespace="", option=OPTION)


@pytest.fixture
def pod(tmp_path):
    """Serves the API server to a pod; yields its variables, and what is answered and asked."""
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


def test_a_pod_finds_the_release_by_its_own_token(pod):
    assert found(pod) == OURS
    ((path, authorization),) = pod[1]["asked"]
    assert path.startswith("/api/v1/namespaces/kube-public/configmaps?labelSelector=")
    assert authorization == "Bearer of-the-pod"


def test_a_pod_that_names_the_namespace_asks_nothing(pod):
    assert found(pod, "mine") == Release("mine")
    assert pod[1]["asked"] == []


def test_a_pod_that_is_refused_is_told_what_to_set(pod):
    pod[1]["status"] = 403
    with pytest.raises(ServerNotFound, match=r"403.*GPUPACK_SYSTEM_NAMESPACE"):
        found(pod)
