# SPDX-License-Identifier: Apache-2.0
"""The REST API through kubectl: a forwarded loopback port, for as long as it is used."""

import atexit
import base64
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Mapping

from gpupack.cluster import release
from gpupack.cluster.caller import caller_of
from gpupack.cluster.endpoint import Endpoint, Trust
from gpupack.cluster.port_forward import (
    CERTIFICATES_PORT,
    HTTPS_PORT,
    START_SECONDS,
    NotForwarded,
    PortForward,
)
from gpupack.cluster.release import Release
from gpupack.config import SYSTEM_NAMESPACE_FIELD
from gpupack.errors import ServerNotFound


def through_kubectl(
    environ: Mapping[str, str], trusted: Trust | None, *, namespace: str = ""
) -> Endpoint:
    """Forward a port.

    Args:
        environ: variables with KUBECONFIG and PATH.
        trusted: verifies the certificate; None: the release's Secret is read.
        namespace: namespace of the release; empty: it is searched for.

    Raises:
        ServerNotFound: there is no kubectl, no kubeconfig, no such service, or neither a token nor
            a client certificate that the service accepts.
    """
    kubectl = shutil.which("kubectl", path=environ.get("PATH"))
    if kubectl is None:
        raise ServerNotFound(
            "the address of the cluster's REST API is not known: set GPUPACK_SERVER, or install "
            "kubectl"
        )
    found = _release(kubectl, environ, namespace)
    caller = caller_of(environ)
    trusted = caller.presenting(trusted or _trusted(kubectl, environ, found))
    port = CERTIFICATES_PORT if caller.token is None else HTTPS_PORT
    forwarding = ServiceForward(kubectl, environ, port, namespace=found.namespace)
    return Endpoint(
        address=forwarding.address,
        trusted=trusted,
        token=caller.token,
        namespace=caller.namespace,
        close=forwarding.close,
        forget=caller.forget,
        direct=True,
    )


def _release(kubectl: str, environ: Mapping[str, str], namespace: str) -> Release:
    """Find the release.

    The published ConfigMaps are read even where the namespace is named, for the name of the Secret.
    """
    option = SYSTEM_NAMESPACE_FIELD
    listing = (
        f"-n={release.PUBLIC_NAMESPACE}",
        "get",
        "configmaps",
        "-l",
        release.SELECTOR,
        "-o=json",
    )
    try:
        items = json.loads(_kubectl_output(kubectl, environ, *listing))["items"]
    except (ServerNotFound, ValueError, KeyError) as error:
        if namespace:
            return Release(namespace)
        raise release.unreadable_error(error, option=option) from error
    published = release.parse_releases(each.get("data") or {} for each in items)
    return release.choose_release(published, namespace=namespace, option=option)


def _trusted(kubectl: str, environ: Mapping[str, str], found: Release) -> Trust:
    path = r"jsonpath={.data.ca\.crt}"
    wanted = ("get", "secret", found.api_secret, "-o", path)
    try:
        secret = _kubectl_output(kubectl, environ, f"-n={found.namespace}", *wanted)
    except ServerNotFound as error:
        raise _unknown_certificate(error, found) from error
    if not secret.strip():
        # An empty text would mean the system's own certificates.
        raise _unknown_certificate("the secret has no ca.crt", found)
    try:
        context = ssl.create_default_context(cadata=base64.b64decode(secret).decode())
    except (ValueError, ssl.SSLError) as error:
        raise _unknown_certificate(error, found) from error
    return lambda: context


def _unknown_certificate(why: object, found: Release) -> ServerNotFound:
    return ServerNotFound(
        f"the REST API's certificate cannot be checked ({why}); name a file with the ca.crt of "
        f"secret {found.namespace}/{found.api_secret} in GPUPACK_CA"
    )


def _kubectl_output(kubectl: str, environ: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - a program of the user's own, arguments as a list
        [kubectl, *arguments], env=dict(environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServerNotFound(
            f"kubectl {arguments[0]}: {done.stderr.strip()}; set GPUPACK_SERVER to reach the REST "
            "API without kubectl"
        )
    return done.stdout


class ServiceForward:
    """A port-forward to the REST API's Service that restarts on use if it has ended.

    Args:
        kubectl: path of kubectl.
        environ: variables of the process.
        service_port: port of the service.
        namespace: namespace of the service.

    Raises:
        ServerNotFound: it does not reach the service, or the service has no such port.
    """

    def __init__(
        self, kubectl: str, environ: Mapping[str, str], service_port: int, *, namespace: str
    ) -> None:
        self._arguments = (kubectl, environ, "service/gpupack-api", service_port, f"-n={namespace}")
        self._namespace = namespace
        self._owner_pid = os.getpid()
        self._start_lock = threading.Lock()
        self._running = self._start()
        atexit.register(self.close)

    def address(self) -> str:
        """Return its address on loopback.

        Raises:
            ServerNotFound: it has ended, and no longer reaches the service.
        """
        with self._start_lock:
            if self._owner_pid == os.getpid() and self._running.has_ended:
                self._running.close()
                self._running = self._start()
            return f"https://localhost:{self._running.port.result()}"

    def close(self) -> None:
        """End it; a forked process leaves it to its parent."""
        if self._owner_pid == os.getpid():
            atexit.unregister(self.close)
            self._running.close()

    def _start(self) -> PortForward:
        begun = PortForward(*self._arguments)
        try:
            begun.port.result(START_SECONDS)
        except (NotForwarded, TimeoutError) as error:
            begun.close()
            raise _not_forwarded(error, self._namespace) from error
        return begun


def _not_forwarded(error: Exception, namespace: str) -> ServerNotFound:
    if isinstance(error, NotForwarded) and error.lacks_port:
        return ServerNotFound(
            "the REST API accepts no client certificates, and the kubeconfig's user has no token; "
            "set GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints, or install the chart "
            "with api.clientCertificates.enabled=true"
        )
    return ServerNotFound(
        f"kubectl does not reach service {namespace}/gpupack-api: "
        f"{str(error) or f'no answer within {START_SECONDS:g} s'}; install the chart with "
        "api.enabled=true"
    )
