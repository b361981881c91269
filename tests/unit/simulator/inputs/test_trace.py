# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from gpupack_simulator import InvalidInput
from gpupack_simulator.inputs.mapping import read_mapping
from gpupack_simulator.inputs.trace import read_trace

EXAMPLES = Path(__file__).parents[4] / "examples/simulator"

HELIOS = """\
job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,16,64,2,COMPLETED,2020-04-01 00:10:00,2020-04-01 00:10:05,2020-04-01 01:10:05,3600,5
5,u2,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:00,0,0
"""
PHILLY = """\
jobid,status,submitted_time,start_time,end_time,num_gpus
a,Pass,2017-10-01 10:00:00,2017-10-01 10:05:00,2017-10-01 11:05:00,12
b,Running,2017-10-01 10:01:00,2017-10-01 10:05:00,None,1
"""


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_helios_jobs_have_their_nodes_as_workers_and_start_at_zero(tmp_path):
    mapping = read_mapping(EXAMPLES / "helios.yaml")
    first, second = read_trace(written(tmp_path, "helios.csv", HELIOS), mapping).jobs
    assert (first.id, first.arrival, first.duration, first.request.gpus) == ("5", 0, 1, 1)
    assert (second.id, second.arrival, second.duration) == ("7", 600, 3600)
    assert (second.workers, second.request.gpus, second.request.cpu) == (2, 8, 32_000)


def test_philly_jobs_are_split_into_as_few_workers_as_will_do(tmp_path):
    mapping = read_mapping(EXAMPLES / "philly.yaml")
    with pytest.raises(InvalidInput, match=r"philly.csv:3: end_time: 'None' is not a time"):
        read_trace(written(tmp_path, "philly.csv", PHILLY.replace("Running", "Pass")), mapping)
    (job,) = read_trace(written(tmp_path, "philly.csv", PHILLY), mapping).jobs
    assert (job.workers, job.request.gpus, job.duration) == (2, 6, 3600)


def test_jobs_that_are_left_out_are_counted(tmp_path):
    mapping = read_mapping(EXAMPLES / "philly.yaml")
    trace = read_trace(written(tmp_path, "philly.csv", PHILLY), mapping)
    assert trace.left_out == {"`only` wants other values": 1}


def test_times_of_several_zones_are_those_of_one_clock(tmp_path):
    text = (
        "time: '%Y-%m-%d %H:%M:%S %z'\ncolumns: {id: j, submitted: at, duration: lasts, gpus: g}\n"
    )
    mapping = read_mapping(written(tmp_path, "map.yaml", text))
    rows = "j,at,lasts,g\na,2026-01-01 00:00:00 +0000,1,1\nb,2026-01-01 08:00:05 +0800,1,1\n"
    jobs = read_trace(written(tmp_path, "trace.csv", rows), mapping).jobs
    assert [job.arrival for job in jobs] == [0, 5]


def test_times_may_be_before_1970_as_those_of_a_format_without_a_year_are(tmp_path):
    text = "time: '%H:%M'\ncolumns: {id: j, submitted: at, duration: lasts, gpus: g}\n"
    mapping = read_mapping(written(tmp_path, "map.yaml", text))
    rows = "j,at,lasts,g\nlater,09:30,1,1\nfirst,09:00,1,1\n"
    jobs = read_trace(written(tmp_path, "trace.csv", rows), mapping).jobs
    assert [(job.id, job.arrival) for job in jobs] == [("first", 0), ("later", 1800)]


@pytest.mark.parametrize(
    ("form", "message"), [("%Y%Y", "names a part of the time twice"), ("%Q", "bad directive")]
)
def test_a_format_that_no_time_has_is_reported(tmp_path, form, message):
    text = f"columns: {{id: j, submitted: at, duration: lasts, gpus: g}}\ntime: '{form}'\n"
    with pytest.raises(InvalidInput, match=rf"map.yaml:2: time: '{form}': .*{message}"):
        read_mapping(written(tmp_path, "map.yaml", text))


PLAIN = "columns: {id: job, submitted: at, duration: lasts, gpus: gpus, workers: nodes}\n"
BROKEN = {
    "a,0,5,4,0": "trace.csv:2: nodes: '0': expected `int` >= 1",
    "a,0,5,3,2": "trace.csv:2: gpus: 3 GPUs are not divisible by 2 workers",
    "a,0,5,32,2": "trace.csv:2: gpus: 16 GPUs per worker are more than 8",
    "a,0,0,1,1": "trace.csv:2: lasts: the job lasts 0 s, which is not positive",
    f"a,{'9' * 70}x,5,1,1": f"trace.csv:2: at: '{'9' * 60}…': expected `float`",
    "a,soon,5,1,1": "trace.csv:2: at: 'soon': expected `float`",
    "a,nan,5,1,1": "trace.csv:2: at: nan is no time",
    "a,0,inf,1,1": "trace.csv:2: lasts: the job lasts inf s",
    "a,0,5,1,1\na,1,5,1,1": "trace.csv:3: job: 'a' stands on line 2 too",
    "": "trace.csv: has no jobs",
}


@pytest.mark.parametrize("rows", BROKEN)
def test_a_broken_row_is_reported_by_line_and_their_column(tmp_path, rows):
    mapping = read_mapping(written(tmp_path, "mapping.yaml", PLAIN))
    with pytest.raises(InvalidInput) as caught:
        read_trace(written(tmp_path, "trace.csv", f"job,at,lasts,gpus,nodes\n{rows}\n"), mapping)
    assert BROKEN[rows] in str(caught.value)


def test_a_column_that_the_mapping_names_must_be_there(tmp_path):
    mapping = read_mapping(written(tmp_path, "mapping.yaml", PLAIN))
    with pytest.raises(InvalidInput, match=r"trace.csv:1: lasts: is missing; there are job, at"):
        read_trace(written(tmp_path, "trace.csv", "job,at,gpus,nodes\n"), mapping)


BROKEN_MAPPINGS = {
    "columns: {id: a, submitted: b, duration: c, gpus: c}": "columns: 'c' is given two meanings",
    "columns: {id: a, submitted: b, duration: c, gpus: d}\nonly: {d: ['1']}": (
        "columns: 'd' is given two meanings"
    ),
    "columns: {id: a}": "mapping.yaml:1: columns: Object missing required field `submitted`",
    "columns: {id: a, submitted: b, gpus: c}": "columns: needs duration, or both started and ended",
    "colums: {}": "Object contains unknown field `colums`",
    "[]": "mapping.yaml:1: Expected `object`, got `array`",
}


@pytest.mark.parametrize("text", BROKEN_MAPPINGS)
def test_a_broken_mapping_is_reported(tmp_path, text):
    with pytest.raises(InvalidInput) as caught:
        read_mapping(written(tmp_path, "mapping.yaml", text))
    assert BROKEN_MAPPINGS[text] in str(caught.value)
