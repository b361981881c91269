# SPDX-License-Identifier: Apache-2.0
"""This machine's backend in other processes, as other users of the machine are.

Each is forked from one that has the library loaded: a new interpreter takes half a second to. It
holds what it was asked to, says on a pipe what that is, and lives until its pipe is closed.
"""

import contextlib
import json
import os
import signal
import traceback
import warnings

from gpupack import NotEnoughGpus, SimulatedGpuWarning, TrainingGPUConfig, open_manager
from gpupack.config import GpuConfig, ThisMachineConfig

GPUS = "8xH100"

_ends = set()
"""The write ends of pipes whose closing ends other holders: a child that keeps one keeps its
holder alive."""


def manager(folder, gpus=GPUS, **settings):
    """Return a manager of this machine with simulated GPUs."""
    here = ThisMachineConfig(folder=str(folder), simulated_gpus=gpus)
    config = GpuConfig(this_machine=here, backend="this-machine", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulatedGpuWarning)
        return open_manager(config, environ={})


class Holder:
    """A process of its own that holds GPUs; `held` are their UUIDs, None: it was refused.

    Args:
        folder: of the ledger.
        timeout_seconds: for which it waits for them.
        user: the user that it runs as; None: that of this process.
        wait: wait until it has reported its GPUs.
        asked: of TrainingGPUConfig.
    """

    def __init__(self, folder, *, timeout_seconds=0.0, user=None, wait=True, **asked):
        self._says, says = os.pipe()
        lives, self._lives = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._says)
            for each in (self._lives, *_ends):
                os.close(each)
            _run(_hold, folder, asked, timeout_seconds, user, says, lives)
        os.close(says)
        os.close(lives)
        _ends.add(self._lives)
        self.held, self.refused = None, ""
        if wait:
            self.wait()

    def wait(self):
        """Until it has said what it holds; AssertionError has the traceback of one that failed."""
        with os.fdopen(self._says) as said:
            answer = json.loads(said.readline() or '{"failed": "it died and said nothing"}')
        if "failed" in answer:
            raise AssertionError(answer["failed"])
        self.held, self.refused = answer.get("held"), answer.get("refused", "")
        return self

    @property
    def granted(self):
        """Return what it holds; AssertionError has the reason of one that was refused."""
        if self.held is None:
            raise AssertionError(self.refused)
        return self.held

    def kill(self, how=signal.SIGKILL):
        os.kill(self.pid, how)
        os.waitpid(self.pid, 0)
        self._close()

    def end(self):
        """End the process, which gives back what it holds."""
        self._close()
        os.waitpid(self.pid, 0)

    def _close(self):
        _ends.remove(self._lives)
        os.close(self._lives)


def in_child(work):
    """Return what a forked child answers: text of whatever `work` returns."""
    says, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(lambda: os.write(answer, str(work()).encode()))
    os.close(answer)
    with os.fdopen(says) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def _run(work, *arguments):
    """Run in a child: whatever happens, nothing of pytest runs here."""
    status = 1
    try:
        work(*arguments)
        status = 0
    finally:
        os._exit(status)


def _hold(folder, asked, timeout_seconds, user, says, lives):
    with contextlib.ExitStack() as stack:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            here = stack.enter_context(manager(folder))
            gpus = here.allocate_gpu_resources(
                TrainingGPUConfig(**asked), timeout_seconds=timeout_seconds
            )
            answer = {"held": list(gpus.device_uuids)}
        except NotEnoughGpus as error:
            answer = {"refused": str(error)}
        except Exception:  # noqa: BLE001 - the parent shows it
            answer = {"failed": traceback.format_exc()}
        os.write(says, json.dumps(answer).encode() + b"\n")
        os.close(says)
        with contextlib.suppress(OSError):
            os.read(lives, 1)
