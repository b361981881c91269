# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001 - a script, not a package
"""Write which values the chart's templates need: `python charts/required_values.py FILE`.

They are those of values.yaml with a default that says something. A template cannot read that file,
and `helm upgrade --reuse-values` does not: it takes the defaults of the installed chart.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import yaml

CHART: Final = pathlib.Path(__file__).parent / "gpupack"
REMOVABLE: Final = frozenset(
    {"resources", "priorityClassName", "tolerations", "labels", "soundThreads"}
)
"""Keys that a user may remove by null, which means none of it."""


def required(
    values: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the paths of values that have a default, an object before what it holds.

    Keys that the schema does not name are the user's, and none of them is required.
    """
    for name, value in values.items():
        field = schema.get("properties", {}).get(name)
        if field is None or name in REMOVABLE or value in (None, "", {}, []):
            continue
        yield name
        if isinstance(value, Mapping):
            named = definitions.get(field.get("$ref", "").removeprefix("#/$defs/"), {})
            for inner in required(value, {**named, **field}, definitions):
                yield f"{name}.{inner}"


def written(chart: pathlib.Path = CHART) -> str:
    """Return the file's text."""
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    return "".join(f"{path}\n" for path in required(values, schema, schema["$defs"]))


@click.command()
@click.argument("file", type=click.Path(path_type=pathlib.Path))
def main(file: pathlib.Path) -> None:
    """Write the list."""
    file.write_text(written())


if __name__ == "__main__":
    main()
