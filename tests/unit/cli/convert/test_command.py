# SPDX-License-Identifier: Apache-2.0

import pytest
import yaml

from gpupack_cli.main import run_command

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "i:1", resources: {limits: {nvidia.com/gpu: 2}}}
"""


@pytest.fixture
def ran(tmp_path, capsys):
    def of(text, *options):
        path = tmp_path / "m.yaml"
        path.write_text(text)
        status = run_command(["convert", "-f", str(path), *options])
        return status, *capsys.readouterr()

    return of


def test_the_output_is_yaml_and_the_report_is_on_stderr(ran):
    status, out, err = ran(POD)
    assert (status, err) == (0, "")
    (job,) = yaml.safe_load_all(out)
    assert (job["kind"], job["spec"]["gpus"]) == ("GPUJob", 2)


def test_a_dropped_field_is_status_1_and_the_rest_is_printed(ran):
    status, out, err = ran(
        POD.replace("restartPolicy: Never", "{restartPolicy: Never, nodeName: n,")
        .replace("  containers:\n  - {name", "  containers: [{name")
        .replace("2}}}", "2}}}]}")
    )
    assert status == 1
    assert yaml.safe_load(out)["kind"] == "GPUJob"
    first, last = err.splitlines()
    assert first.startswith("dropped: Pod/a: spec.nodeName = n: gpupack chooses the node")
    assert last.startswith("gpupack: 1 line above marked dropped")


def test_notes_alone_are_status_0(ran):
    status, _, err = ran(POD.replace("Never", "OnFailure"))
    assert status == 0
    assert err.startswith("note: Pod/a: spec.restartPolicy = OnFailure")


def test_an_object_that_is_not_converted_is_not_printed(ran):
    status, out, err = ran(POD.replace("nvidia.com/gpu", "example.com/gpu"))
    assert (status, out) == (1, "")
    assert "no container requests a GPU" in err


@pytest.mark.parametrize("text", ["", "---\n", "[", "a: 1"])
def test_input_without_objects_is_status_65(ran, text):
    status, out, err = ran(text)
    assert (status, out) == (65, "")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("memory", ["much", "-1", "80"])
def test_an_invalid_memory_is_wrong_usage(ran, memory):
    status, _, err = ran(POD, "--gpu-memory", memory)
    assert status == 2
    assert "80Gi" in err


def test_control_characters_of_a_manifest_do_not_reach_the_terminal(ran):
    _, _, err = ran(POD.replace("nvidia.com/gpu", "x/y").replace("name: a}", 'name: "a\\e[2J"}'))
    assert "\x1b" not in err
