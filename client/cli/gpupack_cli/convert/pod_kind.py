# SPDX-License-Identifier: Apache-2.0
"""Pods of Kubernetes (v1), with the GPUs of NVIDIA's device plugin, HAMi, Volcano or KAI."""

from typing import Final

from gpupack_cli.convert.foreign import Foreign, parse
from gpupack_cli.convert.job import JobFields, gpujob, restarts
from gpupack_cli.convert.pod import ObjectMeta, PodTemplate
from gpupack_cli.convert.report import Report
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.worker import worker_template
from gpupack_kubeclient.objects import Json

ENDS: Final = (
    "a GPUJob ends when its container ends; for a service, use a Deployment, whose pods "
    "gpupack schedules"
)


class Pod(Foreign, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Json = {}


def convert(json: Json, settings: Settings, report: Report) -> list[Json]:
    """Return the GPUJob of a pod.

    Raises:
        NotConverted: it requests no GPU.
    """
    source = parse(json, Pod, report)
    # Labels and annotations of the object are reported once, as those of the template.
    kept = PodTemplate(metadata=source.metadata, spec=source.spec)
    template = worker_template(kept, settings, report, path="")
    policy = template.restart_policy or "Always"
    if policy == "Always":
        report.note("spec.restartPolicy", policy, ENDS)
    fields = JobFields(max_restarts=restarts(policy, None, report, path="spec.restartPolicy"))
    bare = ObjectMeta(
        name=source.metadata.name,
        generate_name=source.metadata.generate_name,
        namespace=source.metadata.namespace,
    )
    return [gpujob(bare, template, fields, report)]
