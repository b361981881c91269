# SPDX-License-Identifier: Apache-2.0
"""These tests run where TensorFlow is: in the image `tensorflow-test`, as a pod of a cluster."""

import importlib.util
import json
import os
import socket
import subprocess
import sys

import pytest

SECONDS = 240
"""A training on a core that others use, too."""

collect_ignore_glob = [] if importlib.util.find_spec("tensorflow") else ["test_*.py"]


class Worker:
    """`gpupack-workloads tensorflow` in a process of its own, with its log in a file."""

    def __init__(self, folder, arguments, environ):
        self.message, self._log = folder / "message", folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpupack_workloads", "tensorflow", *arguments],
                env={**os.environ, "GPUPACK_RESULT_PATH": str(self.message), **environ},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    @property
    def log(self):
        return self._log.read_text()

    def status(self):
        return self.process.wait(SECONDS)

    def result(self):
        assert self.status() == 0, self.log
        return json.loads(self.message.read_text())


@pytest.fixture
def start(tmp_path):
    """Starts a worker with these arguments; TF_CONFIG and the like are keywords."""
    workers = []

    def start(*arguments, **environ):
        folder = tmp_path / str(len(workers))
        folder.mkdir()
        workers.append(Worker(folder, arguments, environ))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture
def gang():
    """TF_CONFIG of two workers of this host; TensorFlow listens at all addresses."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
    return [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        for index in range(2)
    ]
