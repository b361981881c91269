# SPDX-License-Identifier: Apache-2.0
"""Writer of the CRDs: `python -m gpupack_crds.generate FOLDER`.

The types are the source; a test and `make lint` fail when the files differ from them.
"""

import pathlib
import sys
from typing import Any

import yaml

from gpupack_crds import gpucohort as cohorts
from gpupack_crds import gpuquota as quotas
from gpupack_crds import names
from gpupack_crds.gpucohort import GpuCohortSpec
from gpupack_crds.gpujob import (
    DEADLINE_RULE,
    ENDED_RULE,
    FIXED_FIELDS,
    NAME_RULES,
    REVISED_FIELDS,
    REVISION_RULE,
    GpuJobSpec,
    fixed_rule,
    revised_rule,
)
from gpupack_crds.gpujob_status import GpuJobStatus
from gpupack_crds.gpunode import GpuNodeSpec, GpuNodeStatus
from gpupack_crds.gpuquota import GpuQuotaSpec
from gpupack_crds.gpureservation import FIXED_RULE, GpuReservationSpec, GpuReservationStatus
from gpupack_crds.quota import CohortStatus, QuotaStatus
from gpupack_crds.schema import Schema, structural

HEADER = "# Generated from the types in crds/gpupack_crds by `make generate`; do not edit.\n"

JOB_COLUMNS = (
    ("Phase", "string", ".status.phase", "Summary of the conditions.", 0),
    ("Workers", "integer", ".status.workers", "Number of workers.", 0),
    ("GPUs", "string", ".status.gpus", "GPUs of all workers; 2x40% are two shares.", 0),
    ("Nodes", "string", ".status.nodes", "Nodes of the current attempt.", 0),
    ("Reason", "string", ".status.reason", "Reason of the phase.", 0),
    ("Width", "string", ".status.width.column", "Running workers of an elastic gang.", 1),
    ("Result", "string", ".status.headline", "Summary of the result.", 1),
    ("Attempt", "integer", ".status.attempt", "Number of the current attempt.", 1),
    ("Preempted", "integer", ".status.preemptions", "Number of preempted attempts.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Age of the object.", 0),
)
NODE_COLUMNS = (
    ("Mode", "string", ".status.mode", "owned or observed.", 0),
    ("GPUs", "integer", ".status.gpus", "Number of GPUs.", 0),
    ("Healthy", "integer", ".status.healthy", "Healthy GPUs.", 0),
    ("Free", "integer", ".status.free", "GPUs that are not held and can get work.", 0),
    ("Shared", "integer", ".status.shared", "GPUs with shares that are held.", 0),
    ("Held", "integer", ".status.held", "GPUs that are held whole.", 0),
    ("Model", "string", ".status.model", "Model of the GPUs.", 0),
    ("Stale", "date", ".status.staleSince", "Time since which readings are missing.", 0),
    ("Maintenance", "string", ".spec.maintenance[0].reason", "Reason of a maintenance.", 0),
    ("Drain", "string", ".spec.maintenance[0].drain", "What the maintenance moves or stops.", 1),
    ("Simulated", "boolean", ".status.simulated", "Whether GPUs are simulated.", 0),
    ("Held by", "string", ".status.heldBy", "Pods that hold GPUs or shares of them.", 1),
    ("Resources", "string", ".status.resourceCounts", "Extended resources of the GPUs.", 1),
    ("Driver", "string", ".status.driverVersion", "Version of the GPU driver.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Age of the object.", 0),
)

USE_COLUMNS = (
    ("Nominal", "string", ".status.nominal", "Guaranteed GPUs.", 0),
    ("Used", "string", ".status.used", "GPUs in use.", 0),
    ("Borrowed", "string", ".status.borrowed", "GPUs in use beyond nominal.", 0),
    ("Lent", "string", ".status.lent", "Nominal GPUs that others use.", 0),
    ("Share", "string", ".status.share", "Fair share value; the smaller one comes first.", 0),
    ("Running", "integer", ".status.running", "Jobs and pods that hold GPUs.", 0),
    ("Waiting", "integer", ".status.waiting", "Pending jobs and pods.", 0),
    ("Average", "string", ".status.average", "Decayed average of GPUs in use.", 1),
)
QUOTA_COLUMNS = (
    ("Cohort", "string", ".spec.cohort", "The cohort that it lends to first.", 0),
    *USE_COLUMNS,
    ("Problem", "string", ".status.problem", "Ignored part of the spec, and why.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Age of the object.", 0),
)
COHORT_COLUMNS = (
    ("Parent", "string", ".spec.parent", "The cohort above it.", 0),
    *USE_COLUMNS,
    ("Problem", "string", ".status.problem", "Ignored part of the spec, and why.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Age of the object.", 0),
)

RESERVATION_COLUMNS = (
    ("Model", "string", ".spec.model", "GPU model.", 0),
    ("GPUs", "string", ".status.gpus", "Reserved GPUs.", 0),
    ("Phase", "string", ".status.phase", "Upcoming, Active, Ended or Refused.", 0),
    ("From", "string", ".status.windowStart", "Start of the current or next window.", 0),
    ("To", "string", ".status.windowEnd", "End of that window.", 0),
    ("Used", "string", ".status.used", "GPUs of jobs that name the reservation.", 0),
    ("Held", "string", ".status.held", "GPUs that are held for such jobs.", 0),
    ("Missing", "string", ".status.missing", "GPUs of the window that are not there.", 0),
    ("Recurrence", "string", ".spec.recurrence", "Rule by which the window is repeated.", 1),
    ("Age", "date", ".metadata.creationTimestamp", "Age of the object.", 0),
)


def gpujob() -> dict[str, Any]:
    """Return the CRD of GPUJob."""
    spec = structural(GpuJobSpec)
    spec["x-kubernetes-validations"] = [
        rule.as_schema()
        for rule in (
            *GpuJobSpec.rules,
            *map(fixed_rule, FIXED_FIELDS),
            *map(revised_rule, REVISED_FIELDS),
            REVISION_RULE,
        )
    ]
    schema = {
        "type": "object",
        "description": "A job on GPUs: a gang of workers that start together or not at all.",
        "required": ["spec"],
        "x-kubernetes-validations": [
            rule.as_schema() for rule in (*NAME_RULES, DEADLINE_RULE, ENDED_RULE)
        ],
        "properties": _properties(spec, structural(GpuJobStatus)),
    }
    return _crd("GPUJob", "gj", scope="Namespaced", schema=schema, columns=JOB_COLUMNS)


def gpunode() -> dict[str, Any]:
    """Return the CRD of GPUNode."""
    schema = {
        "type": "object",
        "description": "The GPUs of the node with the same name, as its agent reports them.",
        "properties": _properties(structural(GpuNodeSpec), structural(GpuNodeStatus)),
    }
    return _crd("GPUNode", "gn", scope="Cluster", schema=schema, columns=NODE_COLUMNS)


def gpuquota() -> dict[str, Any]:
    """Return the CRD of GPUQuota."""
    schema = {
        "type": "object",
        "description": "The GPU quota of a namespace. Its name is default.",
        "required": ["spec"],
        "x-kubernetes-validations": [rule.as_schema() for rule in quotas.NAME_RULES],
        "properties": _properties(structural(GpuQuotaSpec), structural(QuotaStatus)),
    }
    return _crd("GPUQuota", "gq", scope="Namespaced", schema=schema, columns=QUOTA_COLUMNS)


def gpucohort() -> dict[str, Any]:
    """Return the CRD of GPUCohort."""
    schema = {
        "type": "object",
        "description": "Quotas and cohorts that lend to each other before they lend to others.",
        "required": ["spec"],
        "x-kubernetes-validations": [rule.as_schema() for rule in cohorts.NAME_RULES],
        "properties": _properties(structural(GpuCohortSpec), structural(CohortStatus)),
    }
    return _crd("GPUCohort", "gc", scope="Cluster", schema=schema, columns=COHORT_COLUMNS)


def gpureservation() -> dict[str, Any]:
    """Return the CRD of GPUReservation."""
    spec = structural(GpuReservationSpec)
    spec["x-kubernetes-validations"] = [
        rule.as_schema() for rule in (*GpuReservationSpec.rules, FIXED_RULE)
    ]
    schema = {
        "type": "object",
        "description": "GPUs that a namespace reserves from one time to another.",
        "required": ["spec"],
        "properties": _properties(spec, structural(GpuReservationStatus)),
    }
    columns = RESERVATION_COLUMNS
    return _crd("GPUReservation", "gr", scope="Namespaced", schema=schema, columns=columns)


def _properties(spec: Schema, status: Schema) -> Schema:
    return {
        "apiVersion": {"type": "string", "description": f"{names.API_VERSION}."},
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }


def _crd(
    kind: str, short: str, *, scope: str, schema: Schema, columns: tuple[tuple[Any, ...], ...]
) -> dict[str, Any]:
    singular = kind.lower()
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in columns],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": f"{singular}s",
                "singular": singular,
                "shortNames": [short],
                "categories": ["gpupack"],
            },
            "versions": [version],
        },
    }


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    """Return a column of `kubectl get`; leave out a priority of 0, which the API server drops."""
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


def rendered() -> dict[str, str]:
    """Return file names and contents of all CRDs."""
    return {
        f"{name}.yaml": HEADER + yaml.safe_dump(crd, sort_keys=False, width=100)
        for name, crd in (
            ("gpucohorts", gpucohort()),
            ("gpujobs", gpujob()),
            ("gpunodes", gpunode()),
            ("gpuquotas", gpuquota()),
            ("gpureservations", gpureservation()),
        )
    }


def main() -> None:
    """Write the CRDs into the folder that the first argument names."""
    folder = pathlib.Path(sys.argv[1])
    for name, text in rendered().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
