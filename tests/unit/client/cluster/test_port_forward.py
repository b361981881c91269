# SPDX-License-Identifier: Apache-2.0
"""The end of a kubectl; test_endpoint.py and the CLI tests end whole programs."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess

import pytest
from harness import wait_for
from processes import is_alive

from gpupack.cluster.port_forward import NotForwarded, PortForward, run_while_input_open

ENDS_BY_ITSELF = 'echo "$1"; exit 3'
TELLS_ITS_END = "trap 'echo ended; exit 4' TERM; echo $$; while :; do sleep 0.02; done"


def begun(script):
    return subprocess.Popen(
        run_while_input_open("/bin/sh", "-c", script, "sh", "a b"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def catches(pid, number):
    """Return whether a process has a handler of a signal."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_the_shell_exits_with_the_status_of_its_program():
    with begun(ENDS_BY_ITSELF) as shell:
        assert shell.stdout.read() == "a b\n"
        assert shell.wait(30) == 3


@pytest.mark.parametrize("how", ["pipe", "signal"])
def test_the_shell_waits_for_a_program_that_is_terminated(how):
    with begun(TELLS_ITS_END) as shell:
        pid = shell.stdout.readline()
        if how == "pipe":
            shell.stdin.close()
        else:
            wait_for(lambda: catches(shell.pid, signal.SIGTERM), seconds=30, what="its trap")
            os.killpg(shell.pid, signal.SIGTERM)
        assert shell.wait(30) == 4
        assert not is_alive(pid)
        assert shell.stdout.read() == "ended\n"


def forwarding(tmp_path, script):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\n{script}")
    kubectl.chmod(0o755)
    return PortForward(str(kubectl), os.environ, "service/s", 443)


def test_the_port_is_that_of_kubectls_ipv4_line(tmp_path):
    lines = "Forwarding from [::1]:1 -> 8444\nForwarding from 127.0.0.1:40001 -> 8444"
    with contextlib.closing(forwarding(tmp_path, f"echo '{lines}'; exec sleep 60")) as begun:
        assert begun.port.result(30) == 40001
        assert not begun.has_ended


def test_a_kubectl_that_ends_without_a_port_is_an_error_with_its_output(tmp_path):
    begun = forwarding(tmp_path, "echo a; echo b >&2; exit 1")
    with pytest.raises(NotForwarded, match=r"^a\nb$"):
        begun.port.result(30)
    begun.close()
