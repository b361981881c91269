# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from gpupack_workloads.matmul.threads import cpu_threads

CPUS = len(os.sched_getaffinity(0))


def test_numpy_has_as_many_threads_as_are_set_but_one_per_cpu_at_most(tmp_path):
    assert cpu_threads({"OMP_NUM_THREADS": "1"}, tmp_path) == 1
    assert cpu_threads({"OMP_NUM_THREADS": "100000"}, tmp_path) == CPUS


def test_openblass_own_variable_comes_first(tmp_path):
    assert cpu_threads({"OMP_NUM_THREADS": "9", "OPENBLAS_NUM_THREADS": "1"}, tmp_path) == 1


@pytest.mark.parametrize("text", ["", "0", "many"])
def test_without_valid_variables_the_containers_limit_counts(tmp_path, text):
    (tmp_path / "cpu.max").write_text("50000 100000")
    assert cpu_threads({"OMP_NUM_THREADS": text}, tmp_path) == 1
