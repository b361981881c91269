# SPDX-License-Identifier: Apache-2.0
"""kopf's handlers: a table of contents of what the operator listens to.

Only indices and low-level events: they need no finalizer and no annotation, so kopf never writes
to an object, and a GPUJob can be deleted while the operator is down. What an event says is not
looked at; it only tells which GPUJob to look at.
"""

from collections.abc import Mapping
from typing import Any

import kopf
import msgspec

from gpupack_crds import names
from gpupack_kube.objects import Job, Pod
from gpupack_operator.hearing import Ear
from gpupack_operator.waitlist import Key
from gpupack_operator.world import Seen, World, read_gpujob

Body = Mapping[str, Any]
GPUJOBS = (names.GROUP, names.VERSION, "gpujobs")
GPUNODES = (names.GROUP, names.VERSION, "gpunodes")
JOBS = ("batch", "v1", "jobs")
PODS = ("", "v1", "pods")


def registry(world: World, ear: Ear, *, in_cluster: bool) -> kopf.OperatorRegistry:
    """Everything that kopf shall call."""
    found = kopf.OperatorRegistry()
    _indices(found)
    _events(found, ear)

    @kopf.on.login(registry=found)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if in_cluster:
            return kopf.login_with_service_account(**kwargs)
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=found, errors=kopf.ErrorsMode.PERMANENT)
    async def bind(**indices: Any) -> None:
        world.gpujobs, world.jobs = indices["gpujobs"], indices["jobs"]
        world.pods = indices["pods"]

    return found


def _indices(found: kopf.OperatorRegistry) -> None:
    @kopf.index(*GPUJOBS, id="gpujobs", registry=found)
    async def gpujobs(body: Body, **_: Any) -> dict[Key, Seen]:
        seen = read_gpujob(body)
        return {Key(*seen.job.key): seen}

    @kopf.index(*JOBS, id="jobs", registry=found)
    async def jobs(body: Body, labels: Body, **_: Any) -> dict[str, Job]:
        return {labels.get(names.JOB_UID_LABEL, ""): msgspec.convert(dict(body), Job)}

    @kopf.index(*PODS, id="pods", registry=found)
    async def pods(body: Body, labels: Body, **_: Any) -> dict[str, Pod]:
        return {labels.get(names.JOB_UID_LABEL, ""): msgspec.convert(dict(body), Pod)}


def _events(found: kopf.OperatorRegistry, ear: Ear) -> None:
    @kopf.on.event(*GPUJOBS, registry=found)
    async def gpujob(type: str | None, body: Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        ear.gpujob(body, deleted=type == "DELETED")

    @kopf.on.event(*JOBS, registry=found)
    async def job(body: Body, **_: Any) -> None:
        ear.child(body)

    @kopf.on.event(*PODS, registry=found)
    async def pod(type: str | None, body: Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        ear.pod(body, deleted=type == "DELETED")

    @kopf.on.event(*GPUNODES, registry=found)
    async def gpunode(**_: Any) -> None:
        ear.freed()


def settings() -> kopf.OperatorSettings:
    """Use kopf as a listener: it posts nothing, needs no peers, and watches only what is ours."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = True
    chosen.watching.inactivity_timeout = 70.0
    chosen.watching.label_selectors["batch/v1", "jobs"] = names.JOB_LABEL
    chosen.watching.label_selectors["v1", "pods"] = names.JOB_LABEL
    chosen.process.ultimate_exiting_timeout = 10.0
    return chosen
