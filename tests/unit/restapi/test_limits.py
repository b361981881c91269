# SPDX-License-Identifier: Apache-2.0
from gpupack_crds import gpujob, names
from gpupack_restapi import allocations, jobs


def test_an_allocation_has_at_most_the_gpus_of_a_gpujob():
    assert allocations.MAX_GPUS == gpujob.MAX_GPUS


def test_a_rerun_has_at_most_the_characters_of_a_gpujobs_name():
    assert jobs.MAX_JOB_NAME == names.MAX_JOB_NAME
