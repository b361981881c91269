# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.settings import Gang, prepare, usable_cpus

UNLISTED_USER = 4_000_000_000
"""A user id that no system lists."""

FROM_OPERATOR = {
    "GPUPACK_JOB": "train",
    "GPUPACK_ATTEMPT": "3",
    "GPUPACK_WORKERS": "4",
    "GPUPACK_WORKER_INDEX": "2",
    "GPUPACK_RENDEZVOUS": "train-3-0.train.default.svc:29400",
    "GPUPACK_PROCESSES_PER_WORKER": "8",
    "GPUPACK_BACKEND": "gloo",
}


def test_a_gang_is_read_from_what_the_operator_sets():
    assert Gang.from_environ(FROM_OPERATOR) == Gang(
        run="train-3",
        workers=4,
        index=2,
        host="train-3-0.train.default.svc",
        port=29400,
        processes=8,
        backend="gloo",
    )


@pytest.mark.parametrize("endpoint", ["::1", "[::1", "[::1:29400", "[]:29400", "[a]:29400"])
def test_an_ipv6_address_without_port_or_brackets_is_refused(endpoint):
    with pytest.raises(BadArgument, match=r"RENDEZVOUS is '.*', not HOST:PORT"):
        Gang.from_environ({"GPUPACK_RENDEZVOUS": endpoint})


@pytest.mark.parametrize("endpoint", ["[::1]:29400", "10.0.0.1:29400", "train.svc:29400"])
def test_an_ipv6_address_is_written_in_brackets_before_its_port(endpoint):
    gang = Gang.from_environ({"GPUPACK_RENDEZVOUS": endpoint})
    assert (gang.endpoint, gang.port) == (endpoint, 29400)
    assert "[" not in gang.host


def test_outside_a_gang_a_worker_is_alone():
    assert Gang.from_environ({}) == Gang(run="local-1")


def test_empty_variables_mean_the_defaults():
    assert Gang.from_environ(dict.fromkeys(FROM_OPERATOR, "") | {"GPUPACK_JOB": "a"}).workers == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPUPACK_WORKERS", "many", "GPUPACK_WORKERS is 'many', not a whole number"),
        ("GPUPACK_WORKER_INDEX", "4", "index 4 is not among 4 workers"),
        ("GPUPACK_BACKEND", "mpi", "backend 'mpi' is none of auto, nccl, gloo"),
        ("GPUPACK_RENDEZVOUS", "host:http", "GPUPACK_RENDEZVOUS is 'host:http'"),
        (
            "GPUPACK_RENDEZVOUS",
            "a..b:29400",
            "'a..b:29400', whose host is not a valid name: .*empty",
        ),
        (
            "GPUPACK_RENDEZVOUS",
            f"{'a' * 64}.svc:29400",
            "whose host is not a valid name: .*too long",
        ),
        ("GPUPACK_RENDEZVOUS", "host:0", "'host:0', whose port is not from 1 to 65535"),
        ("GPUPACK_RENDEZVOUS", "host:65536", "whose port is not from 1 to 65535"),
        ("GPUPACK_RENDEZVOUS", f"host:{'1' * 5000}", "whose port is not from 1 to 65535"),
        ("GPUPACK_PROCESSES_PER_WORKER", "-1", "-1 processes per worker: there must be at least 1"),
    ],
)
def test_an_invalid_place_is_refused(name, value, message):
    with pytest.raises(BadArgument, match=message):
        Gang.from_environ(FROM_OPERATOR | {name: value})


def test_multicast_is_off_unless_the_user_says_otherwise():
    environ = {"NCCL_NVLS_ENABLE": "1"}
    prepare(environ)
    assert environ["NCCL_NVLS_ENABLE"] == "1"
    assert environ["NVSHMEM_DISABLE_NVLS"] == environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"


def test_products_and_sums_are_fused_unless_the_user_says_otherwise():
    environ = {}
    prepare(environ)
    assert environ["TRITON_DEFAULT_FP_FUSION"] == "1"
    environ = {"TRITON_DEFAULT_FP_FUSION": "0"}
    prepare(environ)
    assert environ["TRITON_DEFAULT_FP_FUSION"] == "0"


def test_a_user_that_the_image_does_not_list_has_a_name_for_torchs_cache(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: UNLISTED_USER)
    environ = {}
    prepare(environ)
    assert environ["USER"] == f"uid-{UNLISTED_USER}"
    listed = {"USER": "ada"}
    prepare(listed)
    assert listed["USER"] == "ada"


def test_threads_follow_the_containers_limit_of_cgroup_v2(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cpus(tmp_path) == 1


def test_threads_follow_the_containers_limit_of_cgroup_v1(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == 1


@pytest.mark.parametrize("text", ["max 100000\n", "6400000 100000\n"])
def test_without_a_limit_every_cpu_is_used(tmp_path, text):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cpus(tmp_path) == len(os.sched_getaffinity(0))
