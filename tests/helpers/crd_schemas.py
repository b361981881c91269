# SPDX-License-Identifier: Apache-2.0
"""The schemas of the generated CRDs, without their CEL rules."""

import functools
from pathlib import Path

import jsonschema_rs
import yaml

CRDS = Path(__file__).parents[2] / "crds"


def violations(manifest):
    """Return what the schema of its kind refuses in a manifest's spec, unknown fields included."""
    errors = _validator(manifest["kind"]).iter_errors(manifest["spec"])
    return [str(error) for error in errors]


@functools.cache
def _validator(kind):
    for path in CRDS.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        if crd["spec"]["names"]["kind"] == kind:
            (version,) = (each for each in crd["spec"]["versions"] if each["storage"])
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            return jsonschema_rs.validator_for(_closed(schema))
    raise LookupError(kind)


def _closed(schema):
    """Refuse unknown fields, as the API server does by field validation."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if (
        schema.get("type") == "object"
        and isinstance(schema.get("properties"), dict)
        and not is_open
    ):
        closed["additionalProperties"] = False
    return closed
