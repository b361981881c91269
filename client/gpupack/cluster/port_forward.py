# SPDX-License-Identifier: Apache-2.0
"""The REST API through kubectl: a forwarded loopback port, for as long as it is used."""

import atexit
import base64
import collections
import json
import os
import selectors
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Final

from gpupack.cluster import release
from gpupack.cluster.caller import caller_of
from gpupack.cluster.endpoint import Endpoint, Trust
from gpupack.cluster.port_forward_command import (
    CERTIFICATES_PORT,
    HTTPS_PORT,
    forwarded_port,
    lacks_port,
    run_while_input_open,
)
from gpupack.cluster.release import Release
from gpupack.config import SYSTEM_NAMESPACE_FIELD
from gpupack.errors import ServerNotFound

START_SECONDS: Final = 20.0
END_SECONDS: Final = 5.0


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
    forwarding = PortForward(kubectl, environ, port, namespace=found.namespace)
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


class PortForward:
    """A `kubectl port-forward` for as long as it is open; one that has ended restarts on use.

    Args:
        kubectl: path of kubectl.
        environ: variables of the process.
        service_port: port of the service.
        namespace: namespace of the service.

    Raises:
        ServerNotFound: it does not reach the service, or the service has no such port.
    """

    def __init__(
        self,
        kubectl: str,
        environ: Mapping[str, str],
        service_port: int = HTTPS_PORT,
        *,
        namespace: str,
    ) -> None:
        self._kubectl, self._environ = kubectl, dict(environ)
        self._service_port, self._namespace = service_port, namespace
        self._owner_pid = os.getpid()
        self._start_lock = threading.Lock()
        self._running, self._port = self._start()
        atexit.register(self.close)

    def address(self) -> str:
        """Return its address on loopback.

        Raises:
            ServerNotFound: it has ended, and no longer reaches the service.
        """
        with self._start_lock:
            if self._owner_pid == os.getpid() and self._running.poll() is not None:
                _close_pipe(self._running)
                self._running, self._port = self._start()
            return f"https://localhost:{self._port}"

    def close(self) -> None:
        """End it; a forked process leaves it to its parent."""
        if self._owner_pid != os.getpid():
            return
        atexit.unregister(self.close)
        _signal(self._running, signal.SIGTERM)
        try:
            self._running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            _signal(self._running, signal.SIGKILL)
            self._running.wait()
        _close_pipe(self._running)

    def _start(self) -> "tuple[subprocess.Popen[str], int]":
        forward = ("port-forward", "service/gpupack-api", f":{self._service_port}")
        begun = subprocess.Popen(  # noqa: S603 - as above
            run_while_input_open(self._kubectl, f"-n={self._namespace}", *forward),
            env=self._environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is only for the program, which releases GPUs through this connection.
            process_group=0,
        )
        return begun, _port(begun, self._namespace)


def _port(forwarding: "subprocess.Popen[str]", namespace: str) -> int:
    assert forwarding.stdout is not None  # noqa: S101 - it is a pipe
    with selectors.DefaultSelector() as waiting:
        waiting.register(forwarding.stdout, selectors.EVENT_READ)
        ready = waiting.select(START_SECONDS)
    port = forwarded_port(forwarding.stdout.readline()) if ready else None
    if port is not None:
        # kubectl logs each connection, and stops where its output is not read.
        for stream in filter(None, (forwarding.stdout, forwarding.stderr)):
            threading.Thread(target=_discard, args=(stream,), daemon=True).start()
        return port
    _signal(forwarding, signal.SIGKILL)
    _, said = forwarding.communicate()
    if lacks_port(said):
        raise ServerNotFound(
            "the REST API accepts no client certificates, and the kubeconfig's user has no token; "
            "set GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints, or install the chart "
            "with api.clientCertificates.enabled=true"
        )
    raise ServerNotFound(
        f"kubectl does not reach service {namespace}/gpupack-api: "
        f"{said.strip() or f'no answer within {START_SECONDS:g} s'}; install the chart with "
        "api.enabled=true"
    )


def _signal(forwarding: "subprocess.Popen[str]", number: signal.Signals) -> None:
    """Send a signal to the process group of the shell, kubectl and the reader of the pipe."""
    if forwarding.poll() is None:
        os.killpg(forwarding.pid, number)


def _close_pipe(forwarding: "subprocess.Popen[str]") -> None:
    """Close the pipe whose end ends the process."""
    if forwarding.stdin is not None:
        forwarding.stdin.close()


def _discard(stream: IO[str]) -> None:
    """Read a stream to its end, and discard the content."""
    with stream:
        collections.deque(stream, 0)
