# SPDX-License-Identifier: Apache-2.0
"""One machine's server as it is run: in a process of its own, in another folder."""

import contextlib
import subprocess
import sys
import time

import httpx
from ports import free_port
from processes import environment

PREFIX = "/api/v1/gpu"
PATIENCE_SECONDS = 240.0
"""For a start, a call or a command: on a machine that is busy with other tests Python alone takes
more than half a minute to start. A server that has died is noticed at once."""


class HostServer:
    """Started, killed and started again by a test; `gpus`: simulated ones."""

    def __init__(self, folder, *, gpus="8xH100", **more):
        self.folder, self.port = folder, free_port()
        self.ledger, self.state = folder / "ledger", folder / "state"
        self.scheme = "https" if "GPUPACK_TLS_CERT" in more else "http"
        self.environ = environment(
            GPUPACK_HOST_FOLDER=str(self.ledger),
            GPUPACK_STATE_FOLDER=str(self.state),
            GPUPACK_SIMULATED_GPUS=gpus,
            GPUPACK_LISTEN_PORT=str(self.port),
            **more,
        )
        self.process = None

    def start(self, until="/health/ready"):
        """Until this path answers well."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpupack_apiserver.host"],
                cwd=self.folder,
                env=self.environ,
                stderr=log,
            )
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self._answers(until):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < ends, self.said()
            time.sleep(0.05)
        return self

    def _answers(self, path):
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.url + path, verify=False).is_success
        return False

    def said(self):
        return (self.folder / "log").read_text()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}{PREFIX}"

    @property
    def token(self):
        return (self.state / "token").read_text().strip()

    def client(self):
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, verify=False
        )

    def call(self, method, path, **given):
        with self.client() as client:
            return client.request(method, path, **given)

    def get(self, path, **given):
        """Without the token."""
        return httpx.get(self.url + path, timeout=PATIENCE_SECONDS, **given)

    def is_healthy(self):
        """Return whether the command succeeds, which waits for an answer for five seconds."""
        return any(self.command("health").returncode == 0 for _ in range(20))

    def command(self, name):
        return subprocess.run(
            [sys.executable, "-m", "gpupack_apiserver.host", name],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
            self.process.wait()
