# SPDX-License-Identifier: Apache-2.0
"""Tables of jobs as they are published: units, separators, blanks, fractions, compression."""

import bz2
import gzip
import lzma

import pytest

from gpupack_simulator import InvalidInput
from gpupack_simulator.inputs.mapping import read_mapping
from gpupack_simulator.inputs.trace import read_trace

COLUMNS = "columns: {id: id, submitted: t, duration: d, gpus: g}\n"


@pytest.fixture
def read(tmp_path):
    def reading(rows, mapping=COLUMNS, name="jobs.csv"):
        (tmp_path / "mapping.yaml").write_text(mapping)
        path = tmp_path / name
        path.write_bytes(rows if isinstance(rows, bytes) else rows.encode())
        return read_trace(path, read_mapping(tmp_path / "mapping.yaml"))

    return reading


@pytest.fixture
def refused(read):
    def reading(*args, **kwargs):
        with pytest.raises(InvalidInput) as caught:
            read(*args, **kwargs)
        return str(caught.value)

    return reading


def test_without_a_column_of_ids_a_job_is_called_by_the_number_of_its_row(read):
    trace = read("t,d,g\n5,10,1\n0,10,1\n", "columns: {submitted: t, duration: d, gpus: g}\n")
    assert [(job.id, job.arrival) for job in trace.jobs] == [("2", 0), ("1", 5)]


def test_rows_without_an_end_are_skipped_and_counted_if_the_mapping_says_so(read, refused):
    columns = "columns: {id: i, submitted: t, started: s, ended: e, gpus: g}\n"
    rows = "i,t,s,e,g\na,0,1,5,1\nb,0,1,,1\nc,0,None,9,1\n"
    assert "jobs.csv:3: e: '': expected `float`; `leaveOut: [blank]` skips" in refused(
        rows, columns
    )
    trace = read(rows, f"{columns}leaveOut: [blank]\n")
    assert [job.id for job in trace.jobs] == ["a"]
    assert trace.left_out == {"a value is missing": 2}


def test_a_blank_time_says_how_to_leave_its_row_out(refused):
    message = refused("id,t,d,g\na,,1,1\n", f"time: iso\n{COLUMNS}")
    assert "jobs.csv:2: t: '' is not a time as in ISO 8601; `leaveOut: [blank]` skips" in message


def test_gpus_that_the_workers_cannot_share_evenly_are_left_out_and_counted(read, refused):
    columns = "columns: {id: id, submitted: t, duration: d, gpus: g, workers: w}\n"
    rows = "id,t,d,g,w\na,0,10,12,5\nb,1,10,8,1\n"
    assert "12 GPUs are not divisible by 5 workers; `leaveOut: [uneven]`" in refused(rows, columns)
    trace = read(rows, f"{columns}leaveOut: [uneven]\n")
    assert ([job.id for job in trace.jobs], sum(trace.left_out.values())) == (["b"], 1)


def test_jobs_without_duration_or_gpus_are_skipped_if_the_mapping_says_so(read):
    rows = "id,t,d,g\na,0,0,1\nb,0,5,0\nc,0,5,1\n"
    trace = read(rows, f"{COLUMNS}leaveOut: [instant, noGpus]\n")
    assert [job.id for job in trace.jobs] == ["c"]
    assert trace.left_out == {"no duration": 1, "no GPUs": 1}


def test_the_error_names_the_reasons_if_all_rows_are_skipped(refused):
    message = refused("id,t,d,g\na,0,5,0\n", f"{COLUMNS}leaveOut: [noGpus]\n")
    assert message == "jobs.csv: has no jobs; 1 row left out (1: no GPUs)"


def test_a_fraction_of_a_gpu_is_a_share(read):
    first, second = read("id,t,d,g\na,0,10,0.25\nb,1,10,1.0\n").jobs
    assert (first.request.share.milli, second.request.gpus) == (250, 1)


def test_the_share_of_a_worker_is_its_part_of_the_gpus(read):
    mapping = "columns: {id: id, submitted: t, duration: d, gpus: g, workers: w}\n"
    (job,) = read("id,t,d,g,w\na,0,10,2,4\n", mapping).jobs
    assert (job.workers, job.request.share.milli) == (4, 500)


def test_more_than_one_gpu_and_a_half_is_no_share(refused):
    assert "1.5 GPUs are not divisible by 1 workers" in refused("id,t,d,g\na,0,10,1.5\n")


def test_models_and_memory_of_gpus_are_read(read):
    mapping = COLUMNS.replace("}", ", gpuModel: m, gpuMemory: mem}")
    named, open_ = read("id,t,d,g,m,mem\na,0,1,1,A100|H100,40\nb,0,1,1,,\n", mapping).jobs
    assert (named.request.models, named.request.min_memory) == (("A100", "H100"), 40 * 1024)
    assert (open_.request.models, open_.request.min_memory) == ((), 0)


@pytest.mark.parametrize(
    ("unit", "arrival", "duration"),
    [("ms", 60, 60), ("us", 0.06, 0.06), ("min", 3_600_000, 3_600_000), ("h", 216e6, 216e6)],
)
def test_times_are_of_the_unit_of_the_mapping(read, unit, arrival, duration):
    trace = read("id,t,d,g\na,0,60000,1\nb,60000,60000,1\n", f"time: {unit}\n{COLUMNS}")
    assert trace.jobs[1].arrival == pytest.approx(arrival)
    assert trace.jobs[1].duration == pytest.approx(duration)


def test_durations_may_be_of_another_unit_than_times(read):
    (job,) = read("id,t,d,g\na,1700000000000,3,1\n", f"time: ms\ndurations: h\n{COLUMNS}").jobs
    assert job.duration == 3 * 3600


def test_milliseconds_are_not_taken_for_seconds(refused):
    message = refused("id,t,d,g\na,1700000000000,60000,1\n")
    assert "1700000000000 s are 53,871 years; say `time: ms` if that is its unit" in message


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [("01:30:00", 5400), ("2-01:00:00", 176_400), ("02:03", 123), ("00:00:01.5", 1.5)],
)
def test_durations_as_a_clock_shows_them_are_read(read, cell, seconds):
    (job,) = read(f"id,t,d,g\na,0,{cell},1\n", f"durations: clock\n{COLUMNS}").jobs
    assert job.duration == seconds


def test_an_invalid_duration_is_reported(refused):
    message = refused("id,t,d,g\na,0,soon,1\n", f"durations: clock\n{COLUMNS}")
    assert "jobs.csv:2: d: 'soon' is not a duration such as 01:30:00" in message


def test_iso_times_are_read_with_and_without_fractions_and_zones(read):
    rows = "id,t,d,g\na,2020-01-01T00:00:00.123Z,1,1\nb,2020-01-01 08:00:10+08:00,1,1\n"
    assert read(rows, f"time: iso\n{COLUMNS}").jobs[1].arrival == pytest.approx(9.877)


def test_the_error_suggests_iso_if_a_format_does_not_match(refused):
    form = 'time: "%Y-%m-%dT%H:%M:%S.%f%z"\n'
    message = refused("id,t,d,g\na,2020-01-01T00:00:10Z,1,1\n", f"{form}{COLUMNS}")
    assert message.endswith("; `time: iso` reads it")


@pytest.mark.parametrize(("written", "mark"), [("tab", "\t"), ('";"', ";"), ("space", " ")])
def test_columns_are_separated_as_the_mapping_says(read, written, mark):
    rows = "id,t,d,g\na,0,10,1\n".replace(",", mark)
    assert read(rows, f"separator: {written}\n{COLUMNS}").jobs[0].duration == 10


def test_a_table_with_tabs_is_called_one(refused):
    message = refused("id\tt\td\tg\na\t0\t10\t1\n", name="x.tsv")
    assert message == (
        "x.tsv:1: its columns are separated by tabs; say `separator: tab` in the mapping"
    )


def test_a_table_with_semicolons_is_called_one(refused):
    assert "separated by ';'; say `separator: \";\"` in the" in refused("id;t;d;g\na;0;1;1\n")


def test_a_file_without_a_header_is_read_by_the_numbers_of_its_columns(read):
    mapping = "header: false\ncolumns: {id: 1, submitted: 2, duration: 3, gpus: 4}\n"
    trace = read("a,0,10,1\nb,5,10,2\n", mapping)
    assert [(job.id, job.arrival, job.request.gpus) for job in trace.jobs] == [
        ("a", 0, 1),
        ("b", 5, 2),
    ]


def test_a_file_without_a_header_is_called_one(refused):
    message = refused("a,0,10,1\nb,5,10,2\n")
    assert message.startswith(
        "jobs.csv:1: has no header: its first line is 'a,0,10,1'; say `header:"
    )


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_tables_are_read(read, pack):
    assert len(read(pack(b"id,t,d,g\na,0,10,1\n"), name="jobs.csv.gz").jobs) == 1


def test_a_damaged_table_is_reported(refused):
    message = refused(gzip.compress(b"id,t,d,g\na,0,10,1\n" * 99)[:-9])
    assert message.startswith("jobs.csv: cannot be read: Compressed file ended")


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PK\x03\x04", "a zip archive"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
        (b"PAR1", "a Parquet file"),
    ],
)
def test_formats_that_are_not_read_are_called_by_their_names(refused, start, what):
    assert refused(start + b"....") == f"jobs.csv: is {what}; unpack it into a text file first"


def test_walltimes_are_read_and_may_be_blank(read):
    mapping = COLUMNS.replace("}", ", walltime: w}")
    first, second = read("id,t,d,g,w\na,0,10,1,60\nb,0,10,1,\n", mapping).jobs
    assert (first.walltime, second.walltime) == (60, None)


WRONG = {
    f"separator: '::'\n{COLUMNS}": "separator: '::' is neither one character nor one of: tab,",
    f"time: fortnights\n{COLUMNS}": "time: 'fortnights': is no unit (ns, us, ms, s, min, h, d)",
    f"durations: iso\n{COLUMNS}": "durations: 'iso' is no form of a duration; use one of: ns, us",
    f"leaveOut: [odd]\n{COLUMNS}": "Invalid enum value 'odd'",
}


@pytest.mark.parametrize("mapping", WRONG)
def test_a_mapping_that_cannot_be_meant_is_reported(refused, mapping):
    assert WRONG[mapping] in refused("id,t,d,g\na,0,10,1\n", mapping)
