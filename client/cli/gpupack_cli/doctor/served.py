# SPDX-License-Identifier: Apache-2.0
"""The certificates that the components serve, and those in their Secrets.

    the pod's volumes  ──► Secret with tls.crt
    a handshake by `kubectl port-forward` ──► the certificate that the pod serves

The handshake sends no data and verifies nothing: its certificate is only compared.
"""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Iterator
from typing import Final

from gpupack.cluster.release import SELECTOR
from gpupack_cli.doctor import views
from gpupack_cli.doctor.cluster_state import Read, ServedCertificate
from gpupack_cli.errors import CliError
from gpupack_cli.port_forward import port_forward
from gpupack_cli.session import Session
from gpupack_kubeclient import errors
from gpupack_kubeclient.client import Api

CERTIFICATE: Final = "tls.crt"
MAX_PODS_OF_PART: Final = 3
"""Maximum pods of a part that are checked: of thousands of agents a few are enough."""
MAX_CONCURRENT: Final = 4
HANDSHAKE_SECONDS: Final = 10.0


async def read_served(session: Session, api: Api, namespace: str) -> Read[ServedCertificate]:
    """Check some pods of each part."""
    try:
        _, pods = await api.page(views.SERVING_PODS, namespace=namespace, labelSelector=SELECTOR)
    except errors.KubeError as error:
        return Read(refused=str(error))
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def ask(pod: views.ServingPod, secret: str, port: int) -> ServedCertificate:
        async with slots:
            return await _read_pod(session, api, pod, secret, port)

    reads = (ask(pod, *found) for pod in _sample_pods(pods) for found in _certificates(pod))
    return Read(tuple(await asyncio.gather(*reads)))


def _sample_pods(pods: list[views.ServingPod]) -> Iterator[views.ServingPod]:
    """Yield running pods, a few of each part."""
    seen = dict[str, int]()
    for pod in pods:
        part = pod.metadata.labels.get("app.kubernetes.io/component", "")
        if pod.status.phase == "Running" and seen.get(part, 0) < MAX_PODS_OF_PART:
            seen[part] = seen.get(part, 0) + 1
            yield pod


def _certificates(pod: views.ServingPod) -> Iterator[tuple[str, int]]:
    """Yield the Secrets with a pod's certificates, each with a port that serves it."""
    ports = {port.name: port.container_port for each in pod.spec.containers for port in each.ports}
    for volume in pod.spec.volumes:
        port = ports.get("metrics" if volume.name == "metrics-tls" else "https", 0)
        if port and any(item.key == CERTIFICATE for item in volume.secret.items):
            yield volume.secret.secret_name, port


async def _read_pod(
    session: Session, api: Api, pod: views.ServingPod, secret: str, port: int
) -> ServedCertificate:
    name, namespace = pod.metadata.name, pod.metadata.namespace
    try:
        found = await api.get(views.SECRETS, secret, namespace=namespace)
        held = _secret_certificate(found)
        async with port_forward(session, f"pod/{name}", namespace, port) as local:
            shown = await _handshake_certificate(local)
    except (errors.KubeError, CliError, ValueError) as error:
        return ServedCertificate(name, secret, error=str(error))
    except OSError as error:
        why = f"no TLS handshake at port {port}: {error}".removesuffix(": ")
        return ServedCertificate(name, secret, error=why)
    return ServedCertificate(name, secret, held, shown)


def _secret_certificate(secret: views.Certificates) -> bytes:
    """Return the server's own certificate of a chain; raises ValueError."""
    try:
        text = base64.b64decode(secret.data.get(CERTIFICATE, ""), validate=True).decode()
        end = "-----END CERTIFICATE-----"
        return ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Secret {secret.metadata.name} has no certificate") from error


async def _handshake_certificate(port: int) -> bytes:
    """Make a handshake and return the server's certificate; raises OSError, TimeoutError."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return bytes(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    finally:
        writer.close()
