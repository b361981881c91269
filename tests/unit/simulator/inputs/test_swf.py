# SPDX-License-Identifier: Apache-2.0
import gzip

import pytest

from gpupack_simulator import InvalidInput, InvalidParameter
from gpupack_simulator.inputs.swf import SwfRules, TenantColumn, read_swf

HEADER = "; Version: 2.2\n; MaxProcs: 128\n; UnixStartTime: 1000000000\n; Note: Ein Café\n;\n"
FIRST = "1 100 5 3600 16 -1 -1 16 7200 -1 1 7 3 -1 2 -1 -1 -1"
ALL = SwfRules()


def line(**other):
    """The first job with other fields, by their number."""
    cells = FIRST.split()
    for name, value in other.items():
        cells[int(name.removeprefix("f")) - 1] = str(value)
    return " ".join(cells)


@pytest.fixture
def read(tmp_path):
    def reading(*lines, rules=ALL):
        path = tmp_path / "log.swf"
        path.write_text(HEADER + "\n".join(lines) + "\n")
        return read_swf(path, rules)

    return reading


def test_jobs_arrive_at_their_submit_times_and_the_first_at_zero(read):
    later, first = read(line(f1=2, f2=400, f4=60.5), FIRST).jobs[::-1]
    assert (first.id, first.arrival, first.duration) == ("1", 0, 3600)
    assert (later.id, later.arrival, later.duration) == ("2", 300, 60.5)


def test_the_header_says_how_large_the_machine_was_and_when_its_log_began(read):
    trace = read(FIRST)
    assert (trace.max_procs, trace.unix_start_time) == (128, 1_000_000_000)


@pytest.mark.parametrize(
    ("processors", "rules", "workers", "gpus"),
    [
        (16, ALL, 2, 8),
        (16, SwfRules(max_gpus_per_worker=4), 4, 4),
        (16, SwfRules(processors_per_gpu=16), 1, 1),
        (17, SwfRules(processors_per_gpu=16), 1, 2),
        (1, SwfRules(processors_per_gpu=16), 1, 1),
    ],
)
def test_processors_become_gpus_rounded_up_and_gpus_as_few_workers_as_will_do(
    read, processors, rules, workers, gpus
):
    (job,) = read(line(f8=processors), rules=rules).jobs
    assert (job.workers, job.request.gpus) == (workers, gpus)


def test_allocated_processors_count_where_none_were_requested(read):
    (job,) = read(line(f5=4, f8=-1)).jobs
    assert job.request.gpus == 4


@pytest.mark.parametrize(
    ("column", "tenant"),
    [
        ("user", "user-7"),
        ("group", "group-3"),
        ("queue", "queue-2"),
        ("partition", ""),
        ("none", ""),
    ],
)
def test_the_tenant_is_that_of_the_chosen_column(read, column, tenant):
    (job,) = read(FIRST, rules=SwfRules(tenants=TenantColumn(column))).jobs
    assert job.tenant == tenant


def test_a_run_time_of_zero_is_less_than_half_a_second(read):
    (job,) = read(line(f4=0)).jobs
    assert job.duration == 0.5


def test_jobs_that_never_ran_and_job_steps_are_skipped_and_counted(read):
    never = [line(f1=2, f4=-1), line(f1=3, f5=-1, f8=-1), line(f1=4, f5=0, f8=0)]
    parts = [line(f1=1, f11=status) for status in (2, 3, 4)]
    trace = read(FIRST, *never, *parts, line(f1=9, f11=5), line(f1=10, f11=0))
    assert [job.id for job in trace.jobs] == ["1", "9", "10"]
    assert trace.left_out == {"never ran, or part of a job": 6}


BROKEN = {
    line(f4="soon"): "log.swf:6: run time: 'soon' is not a number of at most 12 digits",
    line(f4="nan"): "log.swf:6: run time: 'nan' is not a number",
    line(f4="1e9"): "log.swf:6: run time: '1e9' is not a number",
    line(f4="9" * 60): f"log.swf:6: run time: '{'9' * 40}…' is not a number of at most 12 digits",
    line(f5="1.5"): "log.swf:6: allocated processors: '1.5' is not a whole number",
    line(f12="٣"): "log.swf:6: user: '٣' is not a whole number",
    line(f2=-5): "log.swf:6: submit time: -5 is negative; -1 alone says that it is not known",
    line(f2=-1): "log.swf:6: submit time: is not known, so that it never arrives",
    line(f8=2_000_000): "log.swf:6: requested processors: 2,000,000 are more than 1,048,576",
    line(f11=6): "log.swf:6: status: 6 is none of -1 to 5",
    f"{FIRST} 0": "log.swf:6: has 19 numbers; the format has 18",
    f"{FIRST}\n{FIRST}": "log.swf:7: job number: 1 stands on line 6 too",
    f"; MaxProcs: many\n{FIRST}": "log.swf:6: MaxProcs: 'many' is not a whole number, 0 or more",
    " " * 5000 + FIRST: "log.swf:6: is longer than 4096 letters",
    line(f4=-1): "log.swf: has no jobs that ran; 1 lines were left out",
}


@pytest.mark.parametrize("lines", BROKEN)
def test_a_broken_line_is_reported_by_its_number_field_and_value(read, lines):
    with pytest.raises(InvalidInput) as caught:
        read(lines)
    assert BROKEN[lines] in str(caught.value)


def test_every_broken_line_is_reported_up_to_a_thousand(read):
    with pytest.raises(InvalidInput) as caught:
        read(*(["x"] * 1500))
    assert len(caught.value.faults) == 1000


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match=r"no\.swf: cannot be read: No such file or directory"):
        read_swf(tmp_path / "no.swf", ALL)


@pytest.mark.parametrize("rule", ["processors_per_gpu", "max_gpus_per_worker"])
def test_rules_that_make_no_gpus_are_refused(rule):
    with pytest.raises(InvalidParameter, match="use 1 to"):
        SwfRules(**{rule: 0})


def test_a_log_is_read_as_the_archive_publishes_it_compressed_by_gzip(tmp_path):
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(FIRST.encode()))
    (job,) = read_swf(path, ALL).jobs
    assert job.id == "1"


def test_a_damaged_log_is_reported(tmp_path):
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(FIRST.encode())[:-12])
    with pytest.raises(InvalidInput, match=r"log.swf.gz: cannot be read: Compressed file ended"):
        read_swf(path, ALL)


def test_the_requested_time_is_the_walltime(read):
    known, unknown = read(FIRST, line(f1=2, f9=-1)).jobs
    assert (known.walltime, unknown.walltime) == (7200, None)
