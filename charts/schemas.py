# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""Write JSON schemas for kubeconform: `python charts/schemas.py FOLDER`.

By default kubeconform downloads schemas, which cover only Kubernetes. These schemas come from the
OpenAPI document in the Go module of the Kubernetes version of the dev cluster, and from gpupack's
CRDs. They refuse unknown fields, as a strict API server does.
"""

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import click
import yaml

ROOT = pathlib.Path(__file__).parents[1]
KINDS = "x-kubernetes-group-version-kind"
REFERENCE = re.compile(r'"\$ref": "#/definitions/([^"]+)"')
LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"
"""Template of file names for kubeconform: -schema-location is FOLDER/LOCATION."""

STRING_OR_NUMBER = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
"""Types that the OpenAPI document describes as strings. The API server accepts numbers, too."""

Schema = dict[str, Any]


def refuse_unknown_fields(schema: Schema) -> Schema:
    """Return a copy of the schema that refuses fields that it does not name."""
    built = dict(schema)
    if isinstance(reference := schema.get("$ref"), str):
        return {"$ref": reference}
    if "properties" in schema:
        built["properties"] = {
            name: refuse_unknown_fields(kind) for name, kind in schema["properties"].items()
        }
        built.setdefault("additionalProperties", _allows_unknown_fields(schema))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            built[key] = refuse_unknown_fields(schema[key])
    if schema.get("x-kubernetes-int-or-string"):
        built |= {"type": ["string", "integer"]}
    return built


def _allows_unknown_fields(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def kubernetes_schemas(document: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the file names and schemas of all kinds in an OpenAPI 2 document."""
    definitions = {
        name: refuse_unknown_fields(schema) for name, schema in document["definitions"].items()
    }
    definitions |= STRING_OR_NUMBER
    for name, schema in document["definitions"].items():
        used = {part: definitions[part] for part in reachable_definitions(name, definitions)}
        for kind in schema.get(KINDS, ()):
            file = file_name(kind["kind"], group=kind["group"], version=kind["version"])
            yield file, {"$ref": f"#/definitions/{name}", "definitions": used}


def reachable_definitions(name: str, definitions: Schema) -> set[str]:
    """Return the names of a definition and of all definitions that it refers to."""
    found: set[str] = set()
    remaining = [name]
    while remaining:
        part = remaining.pop()
        if part not in found:
            found.add(part)
            remaining += REFERENCE.findall(json.dumps(definitions[part]))
    return found


def crd_schemas(crd: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the file names and schemas of the versions of a CRD."""
    spec = crd["spec"]
    for version in spec["versions"]:
        schema = refuse_unknown_fields(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        yield (
            file_name(spec["names"]["kind"], group=spec["group"], version=version["name"]),
            schema,
        )


def file_name(kind: str, *, group: str, version: str) -> str:
    """Return the name of a kind's file as in LOCATION: only the first word of the group."""
    words = [kind, group.partition(".")[0], version]
    return "-".join(word.lower() for word in words if word) + ".json"


def openapi_document() -> pathlib.Path:
    """Return the path of the OpenAPI document of the dev cluster's Kubernetes.

    The module is downloaded if it is missing.
    """
    module = "k8s.io/kubernetes"
    command = ["go", "-C", str(ROOT / "hack/devcluster/go"), "mod", "download", "-json", module]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return pathlib.Path(json.loads(answer.stdout)["Dir"]) / "api/openapi-spec/swagger.json"


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=pathlib.Path))
def main(folder: pathlib.Path) -> None:
    """Write a schema for each kind of Kubernetes and of gpupack into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    schemas = dict(kubernetes_schemas(json.loads(openapi_document().read_text())))
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        schemas |= crd_schemas(yaml.safe_load(crd.read_text()))
    for name, schema in schemas.items():
        (folder / name).write_text(json.dumps(schema))


if __name__ == "__main__":
    main()
