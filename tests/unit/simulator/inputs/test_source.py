# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_simulator import InvalidParameter
from gpupack_simulator.inputs.source import TraceSource, described, parameters, read_source

LINE = "1 0 0 60 32 -1 -1 32 -1 -1 1 7 3 -1 2 -1 -1 -1\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.SWF"
    path.write_text(f"; MaxProcs: 100\n; UnixStartTime: 5\n{LINE}")
    return path


def test_a_name_that_ends_in_swf_is_read_as_such_with_its_options(log):
    source = TraceSource(path=log, processors_per_gpu=16, gpus_per_worker=1, tenants="group")
    trace = read_source(source)
    (job,) = trace.jobs
    assert (job.request.gpus, job.workers, job.tenant) == (1, 2, "group-3")
    assert described(source, trace) == (
        "log.SWF: 1 read, the log is of 100 processors, which count as 7 GPUs"
    )
    assert parameters(source, trace) == {
        "trace": "log.SWF",
        "processors_per_gpu": 16,
        "gpus_per_worker": 1,
        "tenants": "group",
        "max_procs": 100,
        "unix_start_time_seconds": 5,
    }


def test_without_a_trace_there_is_nothing_to_read():
    assert read_source(TraceSource(path=None)) is None


def test_options_that_would_do_nothing_are_refused(tmp_path, log):
    csv = tmp_path / "jobs.csv"
    refused = {
        TraceSource(path=None, mapping=csv): "--mapping is of a --trace; there is none",
        TraceSource(path=None, tenants="user"): "--tenants is of an SWF --trace; there is none",
        TraceSource(path=log, mapping=csv): "log.SWF is SWF, whose columns need no --mapping",
        TraceSource(path=csv, mapping=csv, processors_per_gpu=2): "SWF --trace; jobs.csv is none",
        TraceSource(path=csv): "--trace needs --mapping",
    }
    for source, message in refused.items():
        with pytest.raises(InvalidParameter, match=message):
            read_source(source)
