# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_placement import Request, Share
from gpupack_simulator import InvalidInput
from gpupack_simulator.inputs.openb import read_nodes, read_pods, read_timed_jobs

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def nodes(tmp_path, *lines, header=NODES):
    path = tmp_path / "nodes.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return read_nodes(path)


def pods(tmp_path, *lines, header=PODS):
    path = tmp_path / "pods.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return read_pods(path)


def test_a_node_gets_its_gpus_in_order(tmp_path):
    (node,) = nodes(tmp_path, "n1,64000,262144,2,P100")
    assert (node.cpu, node.memory) == (64_000, 262_144)
    assert [(device.uuid, device.model) for device in node.devices] == [
        ("n1-gpu-0", "P100"),
        ("n1-gpu-1", "P100"),
    ]


def test_a_node_without_gpus_needs_no_model(tmp_path):
    assert nodes(tmp_path, "n1,64000,262144,0,")[0].devices == ()


def test_pods_request_shares_whole_gpus_or_none(tmp_path):
    found = pods(tmp_path, "a,1000,1,1,460,", "b,1000,1,1,1000,T4|P100", "c,1000,1,0,0,")
    assert [pod.request for pod in found] == [
        Request(share=Share(460, 0), cpu=1000, memory=1),
        Request(gpus=1, models=("T4", "P100"), cpu=1000, memory=1),
        Request(gpus=0, cpu=1000, memory=1),
    ]


def test_columns_beyond_those_that_are_read_may_lack(tmp_path):
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
    assert pods(tmp_path, "a,1000,1,8,1000", header=header)[0].request.gpus == 8


def test_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path):
    assert len(pods(tmp_path, "", "a,1,1,0,0,", "", header="\ufeff" + PODS)) == 1


def test_the_error_for_an_invalid_csv_header_names_its_line(tmp_path):
    with pytest.raises(InvalidInput, match=r"nodes.csv:1: is not CSV: unexpected end of data"):
        nodes(tmp_path, header='"sn,cpu_milli\n')


BROKEN_PODS = {
    "a,many,1,0,0,": "pods.csv:2: cpu_milli: 'many': expected `int`",
    "a,-5,1,0,0,": "pods.csv:2: cpu_milli: '-5': expected `int` >= 0",
    "a,1,1,1,1500,": "pods.csv:2: gpu_milli: '1500': expected `int` <= 1000",
    "a,1,1,1,0,": "pods.csv:2: gpu_milli: a pod with 1 GPU needs 1 to 1000, not 0",
    "a,1,1,4,500,": "gpu_milli: a pod with 4 GPUs gets whole ones: 1000, not 500",
    "a,1,1,0,300,": "pods.csv:2: gpu_milli: a pod without GPU needs 0, not 300",
    "a,1,1,1,1000,T4||P100": "pods.csv:2: gpu_spec: 'T4||P100' has an empty model",
    "a,1,1,1": "pods.csv:2: has 4 cells, the header 6",
    ",1,1,1,1000,": "pods.csv:2: name: '': expected `str` of length >= 1",
    'a,1,1,1,1000,"T4': "pods.csv:2: is not CSV: unexpected end of data",
}


@pytest.mark.parametrize("line", BROKEN_PODS)
def test_a_broken_pod_is_reported_by_line_and_column(tmp_path, line):
    with pytest.raises(InvalidInput) as caught:
        pods(tmp_path, line)
    assert BROKEN_PODS[line] in str(caught.value)


def test_a_duplicate_name_is_reported_with_its_first_line(tmp_path):
    with pytest.raises(InvalidInput, match=r"pods.csv:4: name: 'a' stands on line 2 too"):
        pods(tmp_path, "a,1,1,0,0,", "b,1,1,0,0,", "a,1,1,0,0,")


def test_a_missing_column_is_reported_with_those_that_there_are(tmp_path):
    with pytest.raises(InvalidInput, match=r"pods.csv:1: gpu_milli: is missing; there are name,"):
        pods(tmp_path, header="name,cpu_milli,memory_mib,num_gpu\n")


def test_a_duplicate_column_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"pods.csv:1: the header has name twice"):
        pods(tmp_path, header="name,name,memory_mib,num_gpu\n")


def test_gpus_of_no_model_are_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"nodes.csv:2: model: n1 has GPUs of no model"):
        nodes(tmp_path, "n1,64000,262144,2,")


@pytest.mark.parametrize("read", [read_nodes, read_pods])
def test_an_empty_file_is_reported(tmp_path, read):
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(InvalidInput, match=r"empty.csv: is empty; the first line must name"):
        read(path)


def test_a_file_without_rows_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"nodes.csv: has no nodes"):
        nodes(tmp_path)


def test_a_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(InvalidInput, match=r"none.csv: cannot be read: No such file"):
        read_nodes(tmp_path / "none.csv")


def test_a_file_that_is_no_text_is_reported(tmp_path):
    path = tmp_path / "binary.csv"
    path.write_bytes(b"sn,cpu\n\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"binary.csv: is not UTF-8 text: byte 7"):
        read_nodes(path)


def test_all_faults_of_a_file_are_counted_and_the_first_twenty_listed(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        pods(tmp_path, *(f"p{n},x,1,0,0," for n in range(25)))
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("pods.csv:2: cpu_milli")
    assert lines[-1] == "… and 5 more faults in pods.csv"


def test_both_errors_of_one_row_are_reported(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        pods(tmp_path, "a,x,y,0,0,")
    assert [fault.column for fault in caught.value.faults] == ["cpu_milli", "memory_mib"]


TIMED = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time"


def timed(tmp_path, *rows):
    path = tmp_path / "pods.csv"
    path.write_text("\n".join((TIMED, *rows)) + "\n")
    return read_timed_jobs(path)


def test_timed_pods_arrive_when_they_were_created_and_last_from_scheduling_to_deletion(tmp_path):
    trace = timed(
        tmp_path,
        "b,4000,1024,1,300,BE,150,400,190",
        "a,4000,1024,2,1000,LS,100,100,100",
        "never,4000,1024,1,1000,LS,120,500,",
    )
    first, second = trace.jobs
    assert (first.id, first.arrival, first.duration, first.tenant) == ("a", 0, 1, "LS")
    assert (second.id, second.arrival, second.duration, second.tenant) == ("b", 50, 210, "BE")
    assert (first.request.gpus, second.request.share.milli, trace.left_out) == (
        2,
        300,
        {"never ran": 1},
    )


BROKEN_TIMES = {
    "a,1,1,1,1000,LS,0,50,soon": "pods.csv:2: scheduled_time: 'soon' is no time",
    "a,1,1,1,1000,LS,0,50,-3": "pods.csv:2: scheduled_time: '-3' is no time",
    "a,1,1,1,1000,LS,0,50,60": "pods.csv:2: deletion_time: 50 is before 60",
    "a,1,1,1,1000,LS,nan,50,60": "pods.csv:2: creation_time: 'nan'",
    "a,1,1,1,1000,,0,50,10": "pods.csv:2: qos: ''",
    "a,1,1,2,500,LS,0,50,10": "pods.csv:2: gpu_milli: a pod with 2 GPUs gets whole ones",
    "a,1,1,1,1000,LS,0,50,": "pods.csv: has no pods that ran",
}


@pytest.mark.parametrize("row", BROKEN_TIMES)
def test_a_broken_time_is_reported_by_line_and_column(tmp_path, row):
    with pytest.raises(InvalidInput) as caught:
        timed(tmp_path, row)
    assert BROKEN_TIMES[row] in str(caught.value)
