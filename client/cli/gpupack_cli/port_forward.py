# SPDX-License-Identifier: Apache-2.0
"""A kubectl process that forwards a free loopback port to a Service."""

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from typing import Final

from gpupack.cluster.port_forward_command import (
    HTTPS_PORT,
    forwarded_port,
    lacks_port,
    run_while_input_open,
)
from gpupack_cli.errors import CliError, RestUnavailable, Unauthenticated
from gpupack_cli.session import Session
from gpupack_cli.text import plain

START_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
MAX_ERROR_BYTES: Final = 1 << 16


@contextlib.asynccontextmanager
async def port_forward(
    session: Session, service: str, namespace: str, service_port: int = HTTPS_PORT
) -> AsyncGenerator[int]:
    """Forward a port to one of the Service's, or of another KIND/NAME; yield its number.

    Raises:
        RestUnavailable: there is no kubectl, or it failed.
        Unauthenticated: the Service exists and does not have this port.
    """
    target = service if "/" in service else f"service/{service}"
    kubectl = shutil.which("kubectl", path=session.environ.get("PATH"))
    if kubectl is None:
        raise RestUnavailable(
            "the REST API is reached through kubectl, which is not on PATH; install it, or give "
            "the API's address by --server"
        )
    process = await asyncio.create_subprocess_exec(
        *run_while_input_open(
            kubectl,
            *(f"--context={session.context}" for _ in [0] if session.context),
            f"--namespace={namespace}",
            "port-forward",
            target,
            f":{service_port}",
        ),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=session.variables,
        # The whole group is ended, only by this process.
        process_group=0,
    )
    try:
        yield await _port(process, service)
    finally:
        await _end(process)


async def _port(process: Process, service: str) -> int:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise RestUnavailable(
            f"kubectl did not forward a port to service/{service} within {START_SECONDS:g} s"
        ) from error
    port = forwarded_port(line.decode(errors="replace"))
    if port is not None:
        return port
    raise await _failure(process, service)


async def _failure(process: Process, service: str) -> CliError:
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    lines = (await process.stderr.read(MAX_ERROR_BYTES)).decode(errors="replace").splitlines()
    # Before it gives up, kubectl logs each failed call.
    said = plain(next((line for line in reversed(lines) if line.strip()), ""))
    if lacks_port(said):
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


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
