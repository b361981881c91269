# SPDX-License-Identifier: Apache-2.0
"""`gpupack convert`."""

from pathlib import Path

import click

from gpupack_cli.convert.kinds import Converted, convert
from gpupack_cli.convert.report import Level
from gpupack_cli.convert.settings import Settings
from gpupack_cli.convert.source import read
from gpupack_cli.errors import ConversionIncomplete, InputInvalid, UsageInvalid
from gpupack_cli.job_manifest import as_yaml
from gpupack_cli.notes import note
from gpupack_crds import quantity
from gpupack_crds.errors import QuantityInvalid

PATH = click.Path(exists=True, allow_dash=True, path_type=Path)


@click.command(name="convert")
@click.option(
    "-f",
    "--filename",
    "paths",
    type=PATH,
    required=True,
    multiple=True,
    help="Manifest, sbatch script or folder of them; - is stdin. Can be repeated.",
)
@click.option(
    "--gpu-memory", default="", help="Memory of one GPU, such as 80Gi, for percentages of it."
)
@click.option(
    "--keep-resource",
    is_flag=True,
    help="Keep GPUs of the present device plugin instead of gpupack.dev/gpu.",
)
@click.option("--image", default="", help="Container image of sbatch scripts.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def command(*, paths: tuple[Path, ...], gpu_memory: str, keep_resource: bool, image: str) -> None:
    """Convert manifests of other schedulers into GPUJobs, printed as YAML.

    Reads PyTorchJob, TrainJob, MPIJob, Volcano's Job, Job, Pod, Deployment, StatefulSet, CronJob
    and sbatch scripts. Other objects of Kubernetes are printed unchanged. stderr lists what was not
    converted and what to do instead: `dropped` lines need a change, `note` lines do not. The exit
    status is 1 if there is a `dropped` line. Nothing is created.
    """
    settings = Settings(
        gpu_memory_mib=_mebibytes(gpu_memory), keep_resource=keep_resource, image=image
    )
    results = convert(read(paths), settings)
    if not results:
        raise InputInvalid("the input has no object and no script")
    objects = [each for result in results for each in result.objects]
    if objects:
        click.echo(as_yaml(objects), nl=False)
    dropped = sum(map(_print_findings, results))
    if dropped:
        lines = "1 line" if dropped == 1 else f"{dropped} lines"
        raise ConversionIncomplete(
            f"{lines} above marked dropped: change the manifests as the lines say"
        )


def _print_findings(result: Converted) -> int:
    """Print the findings; return the number of those that need a change."""
    for finding in result.report.findings:
        note(finding.line(result.source))
    if result.report.omitted:
        note(f"dropped: {result.source}: {result.report.omitted} more fields")
    dropped = [each for each in result.report.findings if each.level is Level.DROPPED]
    return len(dropped) + result.report.omitted


def _mebibytes(text: str) -> int:
    if not text:
        return 0
    try:
        found = quantity.mebibytes(text)
    except QuantityInvalid as error:
        raise UsageInvalid(f"--gpu-memory {error}; write, for example, 80Gi") from error
    if found < 1 << 10:
        raise UsageInvalid(f"--gpu-memory {text!r} is less than 1Gi; write, for example, 80Gi")
    return found
