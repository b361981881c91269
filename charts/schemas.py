# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""Write the JSON schemas that kubeconform judges manifests by: `python charts/schemas.py FOLDER`.

kubeconform would fetch them from the network, for Kubernetes alone. Here they come from the OpenAPI
document inside the Go module of the very Kubernetes version that the dev cluster is built from, and
from our CRDs. Fields that no schema names are refused, as a strict API server does.
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
"""How kubeconform finds a kind's file: its -schema-location is FOLDER/LOCATION."""

WRITTEN_TWO_WAYS = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
"""Types whose document says string, and which the API server reads from numbers too."""

Schema = dict[str, Any]


def closed(schema: Schema) -> Schema:
    """The schema, refusing fields that it does not name."""
    built = dict(schema)
    if isinstance(reference := schema.get("$ref"), str):
        return {"$ref": reference}
    if "properties" in schema:
        built["properties"] = {name: closed(kind) for name, kind in schema["properties"].items()}
        built.setdefault("additionalProperties", _open(schema))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            built[key] = closed(schema[key])
    if schema.get("x-kubernetes-int-or-string"):
        built |= {"type": ["string", "integer"]}
    return built


def _open(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def of_kubernetes(document: Schema) -> Iterator[tuple[str, Schema]]:
    """File names and schemas of all kinds in an OpenAPI 2 document."""
    definitions = {name: closed(schema) for name, schema in document["definitions"].items()}
    definitions |= WRITTEN_TWO_WAYS
    for name, schema in document["definitions"].items():
        used = {part: definitions[part] for part in reachable(name, definitions)}
        for kind in schema.get(KINDS, ()):
            file = file_name(kind["kind"], group=kind["group"], version=kind["version"])
            yield file, {"$ref": f"#/definitions/{name}", "definitions": used}


def reachable(name: str, definitions: Schema) -> set[str]:
    """Names of the definitions that this one is made of, its own among them."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += REFERENCE.findall(json.dumps(definitions[part]))
    return found


def of_crd(crd: Schema) -> Iterator[tuple[str, Schema]]:
    """File names and schemas of the versions of a CRD."""
    spec = crd["spec"]
    for version in spec["versions"]:
        schema = closed(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        yield (
            file_name(spec["names"]["kind"], group=spec["group"], version=version["name"]),
            schema,
        )


def file_name(kind: str, *, group: str, version: str) -> str:
    """Name of a kind's file, as LOCATION spells it: of the group its first word alone."""
    words = [kind, group.partition(".")[0], version]
    return "-".join(word.lower() for word in words if word) + ".json"


def openapi_document() -> pathlib.Path:
    """The OpenAPI document of the dev cluster's Kubernetes; fetches its module where missing."""
    module = "k8s.io/kubernetes"
    command = ["go", "-C", str(ROOT / "hack/devcluster/go"), "mod", "download", "-json", module]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return pathlib.Path(json.loads(answer.stdout)["Dir"]) / "api/openapi-spec/swagger.json"


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=pathlib.Path))
def main(folder: pathlib.Path) -> None:
    """Write a schema for each kind of Kubernetes and of gpupack into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    schemas = dict(of_kubernetes(json.loads(openapi_document().read_text())))
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        schemas |= of_crd(yaml.safe_load(crd.read_text()))
    for name, schema in schemas.items():
        (folder / name).write_text(json.dumps(schema))


if __name__ == "__main__":
    main()
