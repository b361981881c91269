# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_cli.convert.source import MAX_DOCUMENTS, MAX_VALUES, Script, read
from gpupack_cli.errors import InputInvalid
from gpupack_cli.manifest_files import MAX_BYTES

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"


@pytest.fixture
def found(tmp_path):
    def of(text, name="manifest.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read((path,))

    return of


def test_several_documents_and_lists_are_read_in_their_order(found):
    items = "".join(f"  {line}\n" for line in POD.replace("a}", "c}").splitlines())
    sources = found(f"{POD}---\n---\nkind: List\napiVersion: v1\nitems:\n- {items.strip()}\n")
    assert [each.name for each in sources] == ["Pod/a", "Pod/c"]


def test_a_folder_is_read_by_name_without_other_files(tmp_path):
    (tmp_path / "b.yaml").write_text(POD)
    (tmp_path / "a.sbatch").write_text("#!/bin/bash\n#SBATCH -N 1\n")
    (tmp_path / "notes.txt").write_text("[")
    assert [each.name for each in read((tmp_path,))] == ["a.sbatch", "Pod/a"]


def test_an_empty_folder_is_refused_with_the_endings_that_count(tmp_path):
    with pytest.raises(InputInvalid, match=r"no file that ends in \.yaml"):
        read((tmp_path,))


def test_nulls_are_absent_fields_and_times_are_text(found):
    (pod,) = found(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: 2024-01-01T00:00:00Z}\n"
        "spec: {nodeName: null, volumes: [{name: v, emptyDir: }]}\n"
    )
    assert pod.json["spec"] == {"volumes": [{"name": "v"}]}
    assert pod.json["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["#!/bin/sh\necho\n", "# a\n#SBATCH -N 1\necho: [\n"])
def test_a_script_is_recognized_by_its_first_lines(found, text):
    assert found(text, "run") == [Script("run", text)]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("just words", "its top level is str"),
        ("a: [1", "is not YAML"),
        ("a: 1", "no apiVersion or no kind"),
        ("apiVersion: v1\nkind: [1]\n", "no apiVersion or no kind"),
        (b"#!/bin/sh\n\xff\xfe", "not a script in UTF-8"),
        (" " * (MAX_BYTES + 1), "larger than 4 MiB"),
        (f"{POD}---\n" * (MAX_DOCUMENTS + 1), f"more than {MAX_DOCUMENTS} documents"),
        (BOMB, f"more than {MAX_VALUES} values"),
        ("apiVersion: v1\nkind: Pod\nspec: &a {b: *a}\n", f"more than {MAX_VALUES} values"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_unusable_file_is_refused_in_one_line(found, text, says):
    with pytest.raises(InputInvalid, match=says) as error:
        found(text)
    assert "\n" not in str(error.value)
