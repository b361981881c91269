# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest
import yaml

from gpupack_crds import generate

FOLDER = pathlib.Path(__file__).parents[3] / "crds"


def fields(schema, path=""):
    """Yield every property of a schema with its dotted path."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    if "items" in schema:
        yield f"{path}[]", schema["items"]
        yield from fields(schema["items"], f"{path}[]")


def schema_of(crd):
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


KINDS = pytest.mark.parametrize(
    "crd",
    [
        generate.gpujob(),
        generate.gpunode(),
        generate.gpuquota(),
        generate.gpucohort(),
        generate.gpureservation(),
    ],
    ids=["gpujob", "gpunode", "gpuquota", "gpucohort", "gpureservation"],
)


@pytest.mark.parametrize("name", sorted(generate.rendered()))
def test_the_files_are_what_the_types_say(name):
    assert (FOLDER / name).read_text() == generate.rendered()[name]


@KINDS
def test_each_column_stands_once(crd):
    [version] = crd["spec"]["versions"]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert sorted(names) == sorted(set(names))


@KINDS
def test_every_field_is_described(crd):
    silent = [path for path, field in fields(schema_of(crd)) if not field.get("description")]
    assert silent == [".metadata"]


@KINDS
def test_every_list_and_text_has_a_limit_so_that_rules_stay_cheap(crd):
    endless = [
        path
        for path, field in fields(schema_of(crd))
        if (field.get("type") == "array" and "maxItems" not in field)
        or (
            field.get("type") == "string"
            and not {"maxLength", "enum", "format"} & set(field)
            and path not in {".apiVersion", ".kind"}
        )
    ]
    assert endless == []


@pytest.mark.parametrize(
    "path",
    [
        ".spec.template.spec",
        ".spec.template.spec.containers[]",
        ".spec.template.spec.containers[].env[]",
    ],
)
def test_fields_of_the_pod_template_that_gpupack_does_not_know_are_kept(path):
    found = dict(fields(schema_of(generate.gpujob())))
    assert found[path]["x-kubernetes-preserve-unknown-fields"] is True


def test_every_rule_tells_the_user_what_to_do():
    rules = [
        rule
        for _, field in [("", schema_of(generate.gpujob())), *fields(schema_of(generate.gpujob()))]
        for rule in field.get("x-kubernetes-validations", [])
    ]
    assert len(rules) > 15
    assert all(len(rule["message"]) > 20 for rule in rules)


def test_the_crds_are_yaml_of_their_kinds():
    kinds = [yaml.safe_load(text)["spec"]["names"]["kind"] for text in generate.rendered().values()]
    assert kinds == ["GPUCohort", "GPUJob", "GPUNode", "GPUQuota", "GPUReservation"]
