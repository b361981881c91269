# SPDX-License-Identifier: Apache-2.0
"""A file of `quotas` and `cohorts`, and `queue` if its rules differ: as in a scenario."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_queue import Quotas
from gpupack_simulator.disciplines import discipline_named
from gpupack_simulator.inputs.faults import Faults
from gpupack_simulator.inputs.quotas import QueueSpec, rules_of
from gpupack_simulator.inputs.scenario import Reading
from gpupack_simulator.inputs.typed import fields_of, one
from gpupack_simulator.inputs.yamlfile import Document

_FIELDS = ("quotas", "cohorts", "queue")
_NO_MANIFEST = (
    "manifests of Kubernetes are not read; write quotas: "
    "[{tenant: NAMESPACE, gpus: {MODEL: NUMBER}}], and cohorts: [{name: NAME}]"
)


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """The content of a quota file. `queue` None: the rules stay as they are."""

    name: str
    quotas: Quotas
    queue: QueueSpec | None = None


def read_quotas(path: Path) -> QuotaFile:
    """Read a quota file.

    Raises:
        InvalidInput: every fault of the file.
    """
    faults = Faults(path)
    document = Document(faults)
    top = fields_of(document.data, "", document, faults)
    if "apiVersion" in top:
        raise faults.fatal(_NO_MANIFEST, line=document.line("apiVersion"), column="apiVersion")
    for name in top:
        if name not in _FIELDS:
            expected = "only quotas, cohorts and queue are expected here"
            faults.add(document.line(str(name)), str(name), expected)
    quotas = Reading(document, faults).quotas(top)
    queue = None
    if top.get("queue") is not None:
        queue = one(top["queue"], QueueSpec, "queue", document, faults)
    if queue is not None:
        try:
            rules_of(queue, discipline_named("fair-share"))
        except ValueError as error:
            faults.add(document.line("queue"), "queue", str(error))
    faults.check()
    return QuotaFile(path.name, quotas, queue)
