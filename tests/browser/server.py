# SPDX-License-Identifier: Apache-2.0
"""gpupack-api in a process of its own, which can be killed, and the cluster that it watches."""

import json
import pathlib
import subprocess
import sys

import httpx

HERE = pathlib.Path(__file__).parent
START_SECONDS = 60


class Server:
    """The process; `page` is its address."""

    def __init__(self, *arguments):
        self._arguments = arguments
        self.start()

    def start(self, port=0):
        command = [sys.executable, "-B", HERE / "serve.py", "--port", str(port), *self._arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, "the server did not start; what it said stands above"
        addresses = json.loads(line)
        self.page, self._control = addresses["page"], addresses["control"]

    def kill(self):
        """As a crash does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def start_again(self):
        """At the same address, with the cluster as it was in the beginning."""
        self.start(int(self.page.rpartition(":")[2]))

    def change(self, what, **of):
        """Change the cluster; see serve.py's Control."""
        httpx.post(f"{self._control}/{what}", params=of).raise_for_status()
