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

from gpupack.cluster.tether import HTTPS, forwarded_port, lacks_port, tethered
from gpupack_cli.errors import CliError, NotKnown, ServiceAway
from gpupack_cli.session import Session
from gpupack_cli.text import plain

START_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
LONGEST_SAID: Final = 1 << 16


@contextlib.asynccontextmanager
async def port_forward(
    session: Session, service: str, namespace: str, service_port: int = HTTPS
) -> AsyncGenerator[int]:
    """Forward a port to one of the Service's, or of another KIND/NAME; yield its number.

    Raises:
        ServiceAway: there is no kubectl, or it failed.
        NotKnown: the Service exists and does not have this port.
    """
    target = service if "/" in service else f"service/{service}"
    kubectl = shutil.which("kubectl", path=session.environ.get("PATH"))
    if kubectl is None:
        raise ServiceAway(
            "the REST API is reached by kubectl, which is not on PATH; install it, or name the "
            "API's address by --server"
        )
    process = await asyncio.create_subprocess_exec(
        *tethered(
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
        raise ServiceAway(
            f"kubectl did not forward a port to service/{service} within {START_SECONDS:g} s"
        ) from error
    port = forwarded_port(line.decode(errors="replace"))
    if port is not None:
        return port
    raise await _why(process, service)


async def _why(process: Process, service: str) -> CliError:
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    lines = (await process.stderr.read(LONGEST_SAID)).decode(errors="replace").splitlines()
    # Before it gives up, kubectl logs each failed call.
    said = plain(next((line for line in reversed(lines) if line.strip()), ""))
    if lacks_port(said):
        return NotKnown(
            "the REST API takes no client certificates, and the kubeconfig has no token; set "
            "GPUPACK_TOKEN to what `kubectl create token ACCOUNT` prints, or have them turned on "
            "(chart value api.clientCertificates.enabled=true)"
        )
    if "NotFound" in said or "not found" in said:
        return ServiceAway(
            f"there is no service/{service}: the REST API is off; turn it on (chart value "
            "api.enabled=true), or name its address by --server"
        )
    if "orbidden" in said:
        return ServiceAway(
            f"the REST API cannot be reached through kubectl ({said}); name its address by "
            "--server, or have it named in GPUPACK_SERVER"
        )
    return ServiceAway(
        f"kubectl cannot forward a port to service/{service}: {said or 'it said nothing'}"
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
