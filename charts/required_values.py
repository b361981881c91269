# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""Write the list of values that the templates need: `python charts/required_values.py FILE`.

These are the values with a non-empty default in values.yaml. A template cannot read that file, and
`helm upgrade --reuse-values` does not: it takes the defaults of the installed chart.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import yaml

CHART: Final = pathlib.Path(__file__).parent / "gpupack"
REMOVABLE: Final = frozenset(
    {"resources", "priorityClassName", "tolerations", "labels", "correctThreadPercentages"}
)
"""Keys that a user may remove with null, which means the same as an empty value."""


def iterate_required(
    values: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the paths of values that have a default, an object before its fields.

    Keys that the schema does not name belong to the user and are not required.
    """
    for name, value in values.items():
        field = schema.get("properties", {}).get(name)
        if field is None or name in REMOVABLE or value in (None, "", {}, []):
            continue
        yield name
        if isinstance(value, Mapping):
            named = definitions.get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            for inner in iterate_required(value, {**named, **field}, definitions):
                yield f"{name}.{inner}"


def render(chart: pathlib.Path = CHART) -> str:
    """Return the text of the file."""
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    return "".join(f"{path}\n" for path in iterate_required(values, schema, schema["$defs"]))


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the list."""
    file.write_text(render())


if __name__ == "__main__":
    main()
