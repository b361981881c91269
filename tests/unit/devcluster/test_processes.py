# SPDX-License-Identifier: Apache-2.0
"""Finding our processes by their mark, and ending real ones."""

import os
import sys
import time

import pytest

from gpupack_devcluster import processes
from gpupack_devcluster.processes import MARK, UNIT, Process, daemon_environment, spawn


def put(proc, pid, *, environment, command):
    folder = proc / str(pid)
    folder.mkdir()
    block = b"".join(f"{k}={v}\0".encode() for k, v in environment.items())
    (folder / "environ").write_bytes(block)
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in command) + b"\0")


def test_a_daemon_is_found_by_its_mark_and_its_name(tmp_path):
    put(tmp_path, 7, environment={MARK: "/s", UNIT: "n1/kubelet"}, command=["/b/kubelet", "-v"])
    (found,) = processes.scan("/s", proc=tmp_path)
    assert found == Process(pid=7, name="kubelet", unit="n1/kubelet")
    assert found.is_daemon


def test_processes_of_other_clusters_and_of_no_cluster_are_not_ours(tmp_path):
    put(tmp_path, 7, environment={MARK: "/other", UNIT: "etcd"}, command=["etcd"])
    put(tmp_path, 8, environment={"HOME": "/root"}, command=["etcd"])
    (tmp_path / "self").mkdir()
    assert processes.scan("/s", proc=tmp_path) == []


def test_a_zombie_has_no_environment_and_does_not_count(tmp_path):
    put(tmp_path, 7, environment={}, command=[""])
    assert processes.scan("/s", proc=tmp_path) == []


def test_a_process_that_ends_during_the_search_does_not_count(tmp_path):
    (tmp_path / "7").mkdir()
    assert processes.scan("/s", proc=tmp_path) == []


@pytest.mark.parametrize("name", ["nsenter", "sh", "containerd-shim-runc-v2"])
def test_launchers_and_children_inherit_the_mark_but_are_not_the_daemon(name):
    assert not Process(pid=7, name=name, unit="n1/containerd").is_daemon


def test_the_first_process_of_a_node_is_called_pause():
    assert Process(pid=7, name="pause", unit="gpupack-1/init").is_daemon


def test_a_value_with_an_equals_sign_stays_whole():
    assert processes.parse_environment(b"A=b=c\0D=\0junk\0") == {"A": "b=c", "D": ""}


def test_a_daemon_inherits_no_proxy_and_no_python_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTPS_PROXY", "http://p")
    environment = daemon_environment(tmp_path, "etcd", tmp_path / "bin")
    assert set(environment) == {"PATH", "HOME", "TMPDIR", MARK, UNIT}
    assert environment["PATH"].startswith(f"{tmp_path}/bin:")


def start_python(state, code):
    """Start a marked process called `sleeper` and return it once /proc shows it."""
    link = state / "sleeper"
    link.symlink_to(sys.executable)
    environment = {**os.environ, **daemon_environment(state, "sleeper", state)}
    ready = state / "ready"
    program = f"import pathlib, signal, time; {code}; pathlib.Path({str(ready)!r}).touch()"
    command = [str(link), "-c", f"{program}; time.sleep(60)"]
    spawn(command, environment=environment, log=state / "sleeper.log")
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    found = processes.find(state, "sleeper")
    assert found is not None, (state / "sleeper.log").read_text()
    return found


def test_a_killed_process_is_gone_when_kill_returns(tmp_path):
    process = start_python(tmp_path, "pass")
    processes.kill([process])
    assert processes.find(tmp_path, "sleeper") is None
    processes.kill([process])


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path):
    process = start_python(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    start = time.monotonic()
    processes.terminate([process], grace_seconds=0.2)
    assert processes.find(tmp_path, "sleeper") is None
    assert time.monotonic() - start >= 0.2
