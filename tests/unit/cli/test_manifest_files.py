# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cli.errors import InputInvalid
from gpupack_cli.manifest_files import MAX_BYTES, objects_of_kind

JOB = "apiVersion: gpupack.dev/v1beta1\nkind: GPUJob\nmetadata: {name: a}\nspec: {gpus: 1}\n"


@pytest.fixture
def found(tmp_path):
    def read(text, kind="GPUJob"):
        path = tmp_path / "manifest.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return objects_of_kind(path, kind)

    return read


def test_objects_of_the_kind_are_found_among_others(found):
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"
    assert [each["metadata"]["name"] for each in found(f"{other}---\n{JOB}---\n---\n{JOB}")] == [
        "a",
        "a",
    ]


def test_a_list_is_read_as_its_items(found):
    items = "".join(f"  {line}\n" for line in JOB.splitlines())
    assert len(found(f"kind: List\nitems:\n- {items.strip()}\n")) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no GPUJob"),
        ("apiVersion: v1\nkind: Pod\n", "has no GPUJob"),
        ("apiVersion: other.dev/v1\nkind: GPUJob\n", "has no GPUJob"),
        ("just words", "is not a manifest: its top level is str"),
        ("- 1\n- 2", "is not a manifest: its top level is list"),
        ("a: [1", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("a: !!python/object:os.system {}", "is not YAML"),
        (JOB.replace("{gpus: 1}", "[1]"), "spec of a GPUJob in .* is not an object"),
        (" " * (MAX_BYTES + 1), "larger than 4 MiB"),
        ("[" * 5000, "is not YAML"),
    ],
)
def test_an_invalid_manifest_is_reported_in_one_line(found, text, says):
    with pytest.raises(InputInvalid, match=says) as error:
        found(text)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputInvalid, match=r"nothing.yaml cannot be read"):
        objects_of_kind(tmp_path / "nothing.yaml", "GPUJob")
