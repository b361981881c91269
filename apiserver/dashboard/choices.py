# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""What the page offers to choose, from the schemas of the REST API and of GPUJob.

    python apiserver/dashboard/choices.py apiserver/dashboard/src/choices.ts

The page and the API are of one image, so the lists are written before it is built, and a test
compares them with the schemas.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, Final

import click
from litestar import Litestar
from litestar.openapi import OpenAPIConfig

from gpupack_apiserver.routes import cost, jobs, what_if
from gpupack_apiserver.routes.parts import PREFIX
from gpupack_crds import generate

Json = Mapping[str, Any]

COLUMNS: Final = 100

BOUNDED: Final = {
    "workers": ("workers",),
    "gpus": ("gpus",),
    "percent": ("share", "percent"),
    "priority": ("priority",),
}
"""Fields of a GPUJob's spec that a form asks for, by their names there."""


def written() -> str:
    """The file's text."""
    api = Litestar(
        route_handlers=[jobs.jobs, cost.cost, what_if.what_if],
        openapi_config=OpenAPIConfig(title="gpupack", version="0"),
    ).openapi_schema.to_schema()
    spec = generate.gpujob()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
        "spec"
    ]
    fields = {name: _field(spec, path) for name, path in BOUNDED.items()}
    least = {name: each["minimum"] for name, each in fields.items()}
    most = {name: each["maximum"] for name, each in fields.items()}
    lists = {
        "PHASES": _parameter(api, f"{PREFIX}/jobs", "phase"),
        "GROUPS": _parameter(api, f"{PREFIX}/cost", "group_by"),
        "POLICIES": [each for each in _property(api, "WhatIf", "policy") if each],
    }
    text = [
        "// SPDX-License-Identifier: Apache-2.0",
        "/** Written by `make generate` from the schemas of the REST API and of GPUJob. */",
        "",
        *(f"{_array(name, values)}\n" for name, values in lists.items()),
        f"export const LEAST = {_object(least)};\n",
        f"export const MOST = {_object(most)};",
    ]
    return "\n".join(text) + "\n"


def _parameter(api: Json, path: str, name: str) -> list[str]:
    found = api["paths"][path]["get"]["parameters"]
    return _enum(api, next(each["schema"] for each in found if each["name"] == name))


def _property(api: Json, kind: str, name: str) -> list[str]:
    return _enum(api, api["components"]["schemas"][kind]["properties"][name])


def _enum(api: Json, schema: Json) -> list[str]:
    """The values of a schema, which may refer to another one, or allow null."""
    if reference := schema.get("$ref"):
        return _enum(api, api["components"]["schemas"][reference.rpartition("/")[2]])
    parts = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf") or ()
    found = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    return [each for each in found if each is not None] + [
        value for part in parts for value in _enum(api, part)
    ]


def _field(schema: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        schema = schema["properties"][name]
    return schema


def _array(name: str, values: list[str]) -> str:
    """As biome writes it: on one line where there is room."""
    words = [json.dumps(value) for value in values]
    line = f"export const {name} = [{', '.join(words)}] as const;"
    if len(line) <= COLUMNS:
        return line
    lines = "".join(f"  {word},\n" for word in words)
    return f"export const {name} = [\n{lines}] as const;"


def _object(values: Mapping[str, int]) -> str:
    lines = "".join(f"  {name}: {number:_},\n" for name, number in values.items())
    return f"{{\n{lines}}}"


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the choices."""
    file.write_text(written())


if __name__ == "__main__":
    main()
