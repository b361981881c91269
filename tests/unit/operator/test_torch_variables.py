# SPDX-License-Identifier: Apache-2.0
"""Variables from which processes of a worker read their ranks, for each shape of a job."""

import pytest

from gpupack_crds import names
from gpupack_operator.manifests.variables import variables

INDEX = "<index>"
"""Stands for the index of the worker, which the pod's label has."""

OF_A_PROCESS = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
}
OF_A_NODE = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}
TORCHRUN = {
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
}
ALL = OF_A_PROCESS | OF_A_NODE | TORCHRUN
SHARE = {"percent": 30, "memory": "8Gi"}
ONE_EACH = {"gpus": 2, "distributed": {"processesPerWorker": 1}}
BY_MPIRUN = {"distributed": {"backend": "mpi"}}


@pytest.fixture
def environment(build):
    def of(**spec):
        found = variables(build.gpujob(**spec), attempt=2)
        return {each["name"]: each.get("value") or index_of(each) for each in found}

    return of


def index_of(variable):
    assert names.INDEX_LABEL in variable["valueFrom"]["fieldRef"]["fieldPath"]
    return INDEX


def by_rank(environ):
    """Decide as nanoGPT does: RANK says whether there are others."""
    return int(environ["LOCAL_RANK"]) if "RANK" in environ else "alone"


def by_rank_and_world(environ):
    """Decide as the init_distributed_mode of many repositories does."""
    if {"RANK", "WORLD_SIZE"} <= environ.keys():
        return int(environ["LOCAL_RANK"])
    return "alone"


def by_local_rank(environ):
    """Decide as Accelerate and the Trainer of transformers do."""
    return int(environ["LOCAL_RANK"]) if "LOCAL_RANK" in environ else "alone"


@pytest.mark.parametrize("decide", [by_rank, by_rank_and_world, by_local_rank])
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "alone"),
        ({"share": SHARE}, "alone"),
        ({"gpus": 4}, "alone"),
        ({"workers": 2}, 0),
        ({"workers": 2, "share": SHARE}, 0),
        ({"workers": 2, **ONE_EACH}, 0),
        ({"workers": 2, "gpus": 4}, "alone"),
        ({"workers": 4, "minWorkers": 2}, "alone"),
        ({"workers": 2, **BY_MPIRUN}, "alone"),
    ],
)
def test_scripts_of_every_kind_detect_whether_they_are_distributed(
    environment, decide, spec, expected
):
    assert decide(environment(**spec)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"gpus": 1}, TORCHRUN),
        ({"gpus": 4}, TORCHRUN),
        ({"workers": 2}, ALL),
        ({"workers": 2, "share": SHARE}, ALL),
        ({"workers": 2, "gpus": 2, "mig": "1g.18gb"}, OF_A_NODE | TORCHRUN),
        ({"workers": 2, **ONE_EACH}, ALL),
        ({"workers": 2, "gpus": 4}, OF_A_NODE | TORCHRUN),
        ({"gpus": 4, **BY_MPIRUN}, {"MASTER_ADDR", "MASTER_PORT"}),
        ({"workers": 2, "gpus": 4, **BY_MPIRUN}, {"MASTER_ADDR", "MASTER_PORT"}),
    ],
)
def test_a_worker_has_only_the_variables_of_its_shape(environment, spec, expected):
    found = environment(**spec).keys()
    assert found & ALL == expected
    assert not {each for each in found if each.startswith("PET_")} - TORCHRUN


def test_a_worker_of_one_process_has_its_rank_and_the_master_address(environment):
    env = environment(workers=3)
    ranks = {name: env[name] for name in OF_A_PROCESS | {"NODE_RANK"}}
    assert ranks == {
        "RANK": INDEX,
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": INDEX,
        "GROUP_WORLD_SIZE": "3",
        "NODE_RANK": INDEX,
    }
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("train-2-0.train.team.svc", "29400")


def test_torchrun_without_arguments_connects_all_workers(environment):
    env = environment(workers=3, gpus=4)
    assert {name: env[name] for name in TORCHRUN | OF_A_NODE} == {
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": INDEX,
        "PET_MASTER_ADDR": "train-2-0.train.team.svc",
        "PET_MASTER_PORT": "29400",
        "NODE_RANK": INDEX,
        "MASTER_ADDR": "train-2-0.train.team.svc",
        "MASTER_PORT": "29400",
    }


def test_a_single_worker_uses_the_loopback_address_for_torchrun(environment):
    env = environment(gpus=4, distributed={"processesPerWorker": 2})
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("1", "2")
    assert env["PET_MASTER_ADDR"] == "127.0.0.1"


def test_torchrun_of_an_elastic_gang_uses_the_c10d_rendezvous(environment):
    env = environment(workers=4, minWorkers=2)
    assert (env["PET_NNODES"], env["GPUPACK_MIN_WORKERS"], env["GPUPACK_WORKERS"]) == (
        "2:4",
        "2",
        "4",
    )
    assert (env["PET_RDZV_BACKEND"], env["PET_RDZV_ID"]) == ("c10d", "train-2")
    assert env["PET_RDZV_ENDPOINT"] == "train-2-0.train.team.svc:29400"
    assert not (OF_A_PROCESS | OF_A_NODE) & env.keys()


def test_a_gang_of_fixed_width_is_not_elastic_for_torchrun(environment):
    env = environment(workers=4, minWorkers=4)
    assert (env["PET_NNODES"], env["WORLD_SIZE"]) == ("4", "4")
    assert not {"GPUPACK_MIN_WORKERS", "PET_RDZV_BACKEND"} & env.keys()
