# SPDX-License-Identifier: Apache-2.0
"""A forwarded loopback port for as long as a command needs it, and kubectl's errors with a fix."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator

from gpupack.cluster.port_forward import HTTPS_PORT, START_SECONDS, NotForwarded, PortForward
from gpupack_cli.errors import CliError, RestUnavailable, Unauthenticated
from gpupack_cli.session import Session
from gpupack_cli.text import plain


@contextlib.asynccontextmanager
async def port_forward(
    session: Session, service: str, namespace: str, service_port: int = HTTPS_PORT
) -> AsyncGenerator[int]:
    """Forward a port to one of the Service's, or of another KIND/NAME; yield its number.

    Raises:
        RestUnavailable: there is no kubectl, or it failed.
        Unauthenticated: the Service exists and does not have this port.
    """
    kubectl = shutil.which("kubectl", path=session.environ.get("PATH"))
    if kubectl is None:
        raise RestUnavailable(
            "the REST API is reached through kubectl, which is not on PATH; install it, or give "
            "the API's address by --server"
        )
    context = [f"--context={session.context}"] if session.context else []
    target = service if "/" in service else f"service/{service}"
    forwarding = PortForward(
        kubectl, session.variables, target, service_port, *context, f"--namespace={namespace}"
    )
    try:
        yield await _port(forwarding, service)
    finally:
        await asyncio.to_thread(forwarding.close)


async def _port(forwarding: PortForward, service: str) -> int:
    try:
        async with asyncio.timeout(START_SECONDS):
            return await asyncio.wrap_future(forwarding.port)
    except TimeoutError as error:
        raise RestUnavailable(
            f"kubectl did not forward a port to service/{service} within {START_SECONDS:g} s"
        ) from error
    except NotForwarded as error:
        raise _failure(error, service) from error


def _failure(error: NotForwarded, service: str) -> CliError:
    # Before it gives up, kubectl logs each failed call.
    said = plain(str(error).rpartition("\n")[2])
    if error.lacks_port:
        return Unauthenticated(
            "the REST API accepts no client certificates, and the kubeconfig has no token; set "
            "GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints, or enable client "
            "certificates (chart value api.clientCertificates.enabled=true)"
        )
    if "NotFound" in said or "not found" in said:
        return RestUnavailable(
            f"there is no service/{service}: the REST API is off; enable it (chart value "
            "api.enabled=true), or give its address by --server"
        )
    if "orbidden" in said:
        return RestUnavailable(
            f"the REST API cannot be reached through kubectl ({said}); give its address by "
            "--server or GPUPACK_SERVER"
        )
    return RestUnavailable(
        f"kubectl cannot forward a port to service/{service}: {said or 'it printed no error'}"
    )
