# SPDX-License-Identifier: Apache-2.0
"""`gpupack what-if`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.text import Text

from gpupack_cli import figures
from gpupack_cli.errors import InputInvalid
from gpupack_cli.explanation import hidden_text, queue_lines
from gpupack_cli.manifest_files import objects_of_kind
from gpupack_cli.options import Output, output_option, session_options
from gpupack_cli.output import show_document, show_lines
from gpupack_cli.session import Session, run
from gpupack_cli.text import plain
from gpupack_restapi.jobs import HeldDevice
from gpupack_restapi.questions import Outcome

if TYPE_CHECKING:
    from gpupack_kubeclient.client import Api

FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command(name="what-if")
@session_options(rest=True)
@click.option(
    "-f", "--filename", type=FILE, required=True, help="Manifest of a GPUJob; - is stdin."
)
@click.option("--without-node", "without", multiple=True, help="Ignore this node.")
@click.option("--policy", default="", help="Placement policy to assume.")
@click.option("--quotas", type=FILE, help="Manifest of GPUQuotas to assume.")
@output_option
def command(
    session: Session,
    *,
    filename: Path,
    without: tuple[str, ...],
    policy: str,
    quotas: Path | None,
    output: Output,
) -> None:
    """Show where and when a job would start if submitted now. Nothing is changed."""
    job = _one(objects_of_kind(filename, "GPUJob"), filename)
    wanted = objects_of_kind(quotas, "GPUQuota") if quotas else []
    body = {
        "job": job.get("spec") or {},
        "without_nodes": list(without),
        "policy": policy,
        "quotas": [_quota(each, quotas) for each in wanted],
    }
    named = (job.get("metadata") or {}).get("namespace") or ""
    run(lambda: _show(session, named, body, output=output))


async def _show(session: Session, named: str, body: dict[str, Any], *, output: Output) -> None:
    async with session.kubernetes() as api, session.rest(api) as rest:
        namespace = session.namespace or named or await session.current_namespace(api)
        if rest.uses_certificate:
            body |= await _check_job(api, body["job"], namespace)
        answer = await rest.post("what-if", {"namespace": namespace, **body}, Outcome)
    if output.document:
        show_document(answer, output)
        return
    show_lines(map(Text, format_answer(answer)))


async def _check_job(api: "Api", spec: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Have the API server check the job: a certificate cannot be passed on; raises KubeError."""
    from gpupack_crds.dry_run import judged  # noqa: PLC0415 - as Session.kubernetes

    job = await judged(api, spec, namespace=namespace)
    return {"job": msgspec.json.decode(job.spec), "judged": True}


def format_answer(answer: Outcome) -> list[str]:
    """Return the answer as sentences."""
    first = {
        "Starts": "It would start now",
        "Waits": "It would wait",
        "Never": "It would never run",
    }
    lines = [first.get(answer.outcome, plain(answer.outcome))]
    if answer.reason:
        lines[0] += f": {plain(answer.reason)}"
    if answer.message:
        lines.append(f"  {plain(answer.message)}")
    lines += [
        f"  worker {each.worker}: {plain(each.node)}{_devices_text(each.devices)}"
        for each in answer.workers
    ]
    if answer.outcome == "Waits":
        lines += queue_lines(
            answer.position,
            answer.waiting,
            estimated_wait_seconds=answer.estimated_wait_seconds,
            ahead=[],
        )
    stopped = [plain(each.text) for each in answer.preempts]
    if answer.preempts_hidden:
        stopped.append(hidden_text(answer.preempts_hidden))
    if stopped:
        lines.append(f"  Would preempt: {', '.join(stopped)}")
    if answer.would_help:
        lines += ["What would help:", *(f"  - {plain(each)}" for each in answer.would_help)]
    return lines


def _devices_text(devices: Sequence[HeldDevice]) -> str:
    """Return «, GPU indices 0, 1»; a GPU that its node does not list now has its UUID."""
    if not devices:
        return ""
    noun = "index" if len(devices) == 1 else "indices"
    return f", GPU {noun} {', '.join(map(_device_text, devices))}"


def _device_text(device: HeldDevice) -> str:
    name = plain(device.uuid) if device.index is None else str(device.index)
    is_whole = device.percent >= 100  # noqa: PLR2004 - percent
    return name if is_whole else f"{name} ({_part(device)})"


def _part(device: HeldDevice) -> str:
    return f"{figures.percent(device.percent)}, {figures.memory(device.memory_mib)}"


def _one(found: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    if len(found) != 1:
        raise InputInvalid(f"{path} has {len(found)} GPUJobs; give exactly one")
    return found[0]


def _quota(item: dict[str, Any], path: Path | None) -> dict[str, Any]:
    namespace = (item.get("metadata") or {}).get("namespace")
    if not namespace:
        raise InputInvalid(f"a GPUQuota in {path} has no metadata.namespace; set it")
    return {"namespace": namespace, "spec": item.get("spec") or {}}
