# SPDX-License-Identifier: Apache-2.0
"""`device-query`."""

import click

from gpupack_workloads.commands.common import common, finish
from gpupack_workloads.settings import Options


@click.command("device-query")
@common
def command(seed: int, *, require_gpu: bool, as_json: bool) -> None:
    """Report every GPU's properties by CUDA, torch and NVML, which must agree."""
    options = Options(seed=seed, require_gpu=require_gpu)
    finish("device-query", lambda module: module.run(options), as_json=as_json)
