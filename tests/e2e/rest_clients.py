# SPDX-License-Identifier: Apache-2.0
"""Clients of the REST API: by a port-forward, with tokens of service accounts."""

import base64
import contextlib
import json
import re
import ssl
import subprocess

import httpx
from harness import kubectl_binary

SECONDS = 30
"""Timeout of an answer; with parallel tests some take longer than the default of httpx."""
PORT = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


@contextlib.contextmanager
def client(system):
    """Yield a client of the API that checks its certificate."""
    with forwarded(system) as (url, ca):
        trusted = ssl.create_default_context(cadata=ca)
        with httpx.Client(base_url=url, verify=trusted, timeout=SECONDS) as calling:
            yield calling


@contextlib.contextmanager
def forwarded(system):
    """Forward a port of this machine to the API; yield the address and the CA (PEM)."""
    ca = trusted(system)
    with port_forward(system, "service/gpupack-api", 443) as port:
        yield f"https://localhost:{port}/api/v1/gpu/", ca


@contextlib.contextmanager
def client_by_certificate(system, certificate="", key="", *, port=8443):
    """Calls the API at the port for client certificates, with this one (paths) or with none."""
    trusting = ssl.create_default_context(cadata=trusted(system))
    if certificate:
        trusting.load_cert_chain(certificate, key)
    with port_forward(system, "service/gpupack-api", port) as forwarded_to:
        url = f"https://localhost:{forwarded_to}/api/v1/gpu/"
        with httpx.Client(base_url=url, verify=trusting, timeout=SECONDS) as calling:
            yield calling


@contextlib.contextmanager
def port_forward(kube, to, port):
    """Forward a port of this machine to one of an object's pods; yields this machine's."""
    where = ("--kubeconfig", str(kube.kubeconfig), "-n", kube.namespace)
    command = [kubectl_binary(), *where, "port-forward", to, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            yield PORT.search(forwarding.stdout.readline())[1]
        finally:
            forwarding.terminate()


def trusted(system):
    """The CA of the API's certificate, PEM."""
    secret = json.loads(system.insist("get", "secret", "gpupack-api-certificate", "-o", "json"))
    return base64.b64decode(secret["data"]["ca.crt"]).decode()


@contextlib.contextmanager
def viewer(kube, *roles):
    """A service account that may list GPUJobs of its namespace; yields its token."""
    kube.insist("create", "serviceaccount", "viewer")
    account = f"--serviceaccount={kube.namespace}:viewer"
    kube.insist("create", "rolebinding", "viewer", "--clusterrole=gpupack-view", account)
    for role in roles:
        kube.insist("create", "rolebinding", role, f"--clusterrole={role}", account)
    yield kube.insist("create", "token", "viewer").strip()
