# SPDX-License-Identifier: Apache-2.0
import base64
import contextlib
import datetime as dt
import json
import os
import signal
import ssl
import subprocess
import sys
import time

import pytest
from client_ca import ClientCa
from harness import wait_for
from processes import environment, is_alive
from self_signed import self_signed

from gpupack import ConfigInvalid, ServerNotFound
from gpupack.cluster import endpoint
from gpupack.cluster.caller import caller_of
from gpupack.cluster.endpoint import require_private, trusted_by
from gpupack.cluster.opening import open_cluster
from gpupack.cluster.through_kubectl import ServiceForward, through_kubectl
from gpupack.config import ClusterConfig

CA = ClientCa()

KUBECTL = """#!{python}
import json, os, sys, time
known = {{"get": '{secret}'}}
word = next(each for each in sys.argv[1:] if not each.startswith("-"))
if "configmaps" in sys.argv:
    if os.environ.get("UNLISTED"):
        sys.exit("configmaps is forbidden")
    spaces = os.environ.get("RELEASES", "gpu-tools").split()
    print(json.dumps({{"items": [{{"data": {{"namespace": each}}}} for each in spaces]}}))
    sys.exit()
if word == "port-forward":
    if sys.argv[-1] == os.environ.get("NOT_THERE"):
        sys.exit("error: Service gpupack-api does not have a service port 8443")
    with open(os.environ["STARTED"], "w") as started:
        started.write(str(os.getpid()))
    with open(os.path.dirname(os.environ["STARTED"]) + "/arguments", "w") as arguments:
        arguments.write(" ".join(sys.argv))
    print("Forwarding from 127.0.0.1:4711 -> 8443", flush=True)
    time.sleep(60)
if not known[word]:
    sys.exit("forbidden")
print(known[word])
"""


def kubeconfig(user):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://localhost:1"}}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.fixture
def called(tmp_path):
    """Return the caller of a kubeconfig with this user."""

    def call(user, **environ):
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig(user)))
        named = {"KUBECONFIG": str(path), "HOME": str(tmp_path)}
        caller, trusted = caller_of(named | environ), ssl.create_default_context()
        caller.presenting(lambda: trusted)
        return caller

    return call


@pytest.fixture
def kubectl(tmp_path):
    """Return a function that writes a kubectl and a kubeconfig, and returns the environment."""

    def write(user=None, secret=""):
        program = tmp_path / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, secret=secret))
        program.chmod(0o755)
        (tmp_path / "config").write_text(json.dumps(kubeconfig(user or {"token": "t"})))
        environ = {"PATH": str(tmp_path), "STARTED": str(tmp_path / "started")}
        return environ | {"KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)}

    return write


def test_a_token_is_never_sent_unencrypted_to_another_machine():
    with pytest.raises(ConfigInvalid, match="'http://far'; write an https:// address"):
        require_private("http://far")
    assert require_private("http://localhost:8080/") == "http://localhost:8080"
    assert require_private("https://far/") == "https://far"


def test_a_missing_token_is_reported_with_a_fix():
    with pytest.raises(ServerNotFound, match="no token for https://far; set GPUPACK_TOKEN"):
        open_cluster(ClusterConfig(server="https://far"), {})


def test_an_invalid_ca_file_is_named(tmp_path):
    (tmp_path / "ca.crt").write_text("nothing")
    for file in (tmp_path / "ca.crt", tmp_path / "missing"):
        with pytest.raises(ConfigInvalid, match=f"cluster.ca: '{file}'"):
            trusted_by(str(file))


def test_a_pod_reads_its_service_accounts_token_for_each_call(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("first")
    token = endpoint.own_token({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert token() == "first"
    (tmp_path / "token").write_text("second")
    assert token() == "second"


def issuing(code):
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    return {"exec": spec | {"command": sys.executable, "args": ["-c", code]}}


def written(**status):
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return json.dumps(kind | {"status": status})


def test_a_kubeconfigs_token_may_be_inline_in_a_file_or_from_a_program(called, tmp_path):
    (tmp_path / "token").write_text("of-file")
    assert called({"token": "plain"}).token() == "plain"
    assert called({"tokenFile": "token"}).token() == "of-file"
    program = issuing(f"print({written(token='of-program')!r})")
    assert called(program).token() == "of-program"


@pytest.mark.parametrize("seconds_left", [-5, 3600, None])
def test_a_credential_program_runs_again_when_its_token_expires(called, tmp_path, seconds_left):
    left = dt.timedelta(seconds=seconds_left or 0)
    ends = (dt.datetime.now(dt.UTC) + left).isoformat() if seconds_left is not None else None
    credential = written(token="NUMBER", expirationTimestamp=ends)
    code = (
        "import pathlib; file = pathlib.Path({!r}); "
        "n = int(file.read_text()) + 1 if file.exists() else 1; file.write_text(str(n)); "
        "print({!r}.replace('NUMBER', f't{{n}}'))"
    ).format(str(tmp_path / "asked"), credential)
    caller = called(issuing(code))
    has_ended = seconds_left is not None and seconds_left < 0
    assert caller.token() == ("t2" if has_ended else "t1")
    before = caller.token()
    assert caller.forget()
    assert caller.token() != before


def test_a_kubeconfig_with_impersonation_is_refused(called):
    with pytest.raises(ServerNotFound, match=r"impersonates 'ann' \(as\).*GPUPACK_TOKEN"):
        called({"token": "of-an-administrator", "as": "ann"})
    assert called({"token": "x", "as": "ann"}, GPUPACK_TOKEN="of-ann").token() == "of-ann"


def test_an_invalid_address_is_named():
    for address in ("https://[::1", "https://h:abc"):
        with pytest.raises(ConfigInvalid, match="is not an address"):
            require_private(address)


def test_a_kubeconfig_without_credentials_is_reported_with_a_fix(called):
    with pytest.raises(ServerNotFound, match=r"neither a token .*kubectl create token"):
        called({"username": "ann", "password": "secret"})


@pytest.fixture
def of_alice(tmp_path):
    """Return a kubeconfig's user with only a certificate, in kubectl's form."""
    paths = CA.written(tmp_path / "alice", "alice")
    fields = ("client-certificate-data", "client-key-data")
    return {
        name: base64.b64encode(path.read_bytes()).decode()
        for name, path in zip(fields, paths, strict=True)
    }


def shown_to_a_server(context, folder):
    """Return the subject of the certificate that a client with this context presents."""
    asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=CA.pem)
    asking.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    asking.verify_mode = ssl.CERT_OPTIONAL
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(back, there, server_hostname="localhost")
    server = asking.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return (server.getpeercert() or {}).get("subject")


def test_a_kubeconfig_with_only_a_certificate_uses_the_certificates_port(
    kubectl, tmp_path, of_alice
):
    environ = kubectl(of_alice)
    certificate, _ = self_signed(tmp_path)
    endpoint = through_kubectl(environ, trusted_by(str(certificate)))
    endpoint.close()
    assert endpoint.token is None
    assert (tmp_path / "arguments").read_text().split()[-1] == ":8443"
    assert shown_to_a_server(endpoint.trusted(), tmp_path) == ((("commonName", "alice"),),)


@pytest.mark.parametrize("by", ["the environment", "the kubeconfig"])
def test_a_token_has_precedence_over_a_certificate(kubectl, tmp_path, of_alice, by):
    user = of_alice | ({"token": "t"} if by == "the kubeconfig" else {})
    environ = kubectl(user)
    environ |= {"GPUPACK_TOKEN": "t"} if by == "the environment" else {}
    certificate, _ = self_signed(tmp_path)
    endpoint = through_kubectl(environ, trusted_by(str(certificate)))
    endpoint.close()
    assert endpoint.token() == "t"
    assert (tmp_path / "arguments").read_text().split()[-1] == ":443"
    assert shown_to_a_server(endpoint.trusted(), tmp_path) is None


def test_a_server_without_a_certificates_port_is_reported_with_a_fix(kubectl, tmp_path, of_alice):
    environ = kubectl(of_alice) | {"NOT_THERE": ":8443"}
    certificate, _ = self_signed(tmp_path)
    with pytest.raises(ServerNotFound, match=r"clientCertificates\.enabled=true"):
        through_kubectl(environ, trusted_by(str(certificate)))


def test_an_invalid_client_certificate_is_named(called, of_alice):
    for wrong in ("…", base64.b64encode(b"nothing").decode()):
        with pytest.raises(ServerNotFound, match=r"certificate cannot be used|is no base64"):
            called(of_alice | {"client-certificate-data": wrong})


def test_a_credential_program_without_a_token_is_named(called):
    with pytest.raises(ServerNotFound, match="ended with status 3; run it yourself"):
        called(issuing("import sys; sys.exit(3)"))


def test_without_kubectl_and_address_the_server_is_not_found():
    with pytest.raises(ServerNotFound, match="set GPUPACK_SERVER, or install kubectl"):
        open_cluster(ClusterConfig(), {"PATH": "/nowhere"})


def test_kubectl_forwards_a_port_for_as_long_as_the_backend_is_open(kubectl, tmp_path):
    environ = kubectl()
    certificate, _ = self_signed(tmp_path)
    backend = open_cluster(ClusterConfig(ca=str(certificate)), environ)
    pid = int((tmp_path / "started").read_text())
    backend.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_ended_port_forward_restarts_in_its_own_process_group(kubectl, tmp_path):
    environ = kubectl()
    forwarding = ServiceForward(str(tmp_path / "kubectl"), environ, 443, namespace="gpu-tools")

    def forwarded_by():
        assert forwarding.address().startswith("https://localhost:")
        return int((tmp_path / "started").read_text())

    try:
        first = forwarded_by()
        assert os.getpgid(first) != os.getpgrp()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: forwarded_by() != first, seconds=30, what="another kubectl")
    finally:
        forwarding.close()


HOLDS = """
import os, sys, time
from gpupack.cluster.through_kubectl import ServiceForward

forwarding = ServiceForward(sys.argv[1], os.environ, 443, namespace="gpu-tools")
print("forwarded", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_a_port_forward_ends_with_its_program(kubectl, tmp_path, ended_by):
    environ = environment(**kubectl())
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "kubectl")]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "forwarded\n"
        program.send_signal(ended_by)
    until = time.monotonic() + 30
    while is_alive(int((tmp_path / "started").read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_secret_without_a_certificate_is_not_replaced_by_the_systems_cas(kubectl):
    environ = kubectl(secret=" ")
    with pytest.raises(ServerNotFound, match=r"has no ca.crt"):
        open_cluster(ClusterConfig(), environ)


def test_an_unreadable_certificate_is_an_error(kubectl):
    environ = kubectl()
    with pytest.raises(ServerNotFound, match=r"certificate cannot be checked .*GPUPACK_CA"):
        open_cluster(ClusterConfig(), environ)


def forwarded_namespace(environ, tmp_path, **config):
    certificate, _ = self_signed(tmp_path)
    open_cluster(ClusterConfig(ca=str(certificate), **config), environ).close()
    return (tmp_path / "arguments").read_text().split()[1]


def test_a_release_is_found_in_any_namespace(kubectl, tmp_path):
    assert forwarded_namespace(kubectl(), tmp_path) == "-n=gpu-tools"


def test_a_caller_that_cannot_list_releases_has_to_name_the_namespace(kubectl, tmp_path):
    environ = kubectl() | {"UNLISTED": "1"}
    named = r"is forbidden.*cluster.system_namespace or GPUPACK_SYSTEM_NAMESPACE"
    with pytest.raises(ServerNotFound, match=named):
        open_cluster(ClusterConfig(), environ)
    assert forwarded_namespace(environ, tmp_path, system_namespace="mine") == "-n=mine"


def test_two_releases_are_an_error(kubectl, tmp_path):
    environ = kubectl() | {"RELEASES": "b a"}
    with pytest.raises(ServerNotFound, match=r"in 2 namespaces \(a, b\)"):
        open_cluster(ClusterConfig(), environ)
    assert forwarded_namespace(environ, tmp_path, system_namespace="b") == "-n=b"
