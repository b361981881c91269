# SPDX-License-Identifier: Apache-2.0
"""Measures a running server. Its answers are not verified, because its weights are not here."""

import os
from urllib.parse import urlsplit

from gpupack_workloads.errors import BadArgument, NoSuchDevice
from gpupack_workloads.inference_load.arrivals import Traffic, some_arrivals
from gpupack_workloads.inference_load.client import Target, about, drive
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_load.summary import figures_of, summarise
from gpupack_workloads.inference_server.access import token_from
from gpupack_workloads.inference_server.options import ServingOptions
from gpupack_workloads.results import Result, Scalar
from gpupack_workloads.settings import Options

RATE, SECONDS, PROMPT_TOKENS, OUTPUT_TOKENS = 4.0, 10.0, 64, 32


def run(options: LoadOptions) -> Result:
    """Ask and measure.

    Raises:
        BadArgument: the address is not valid, or no server there serves us; no request begins; or
            an option is for a server that is started here.
        NoSuchDevice: a GPU is required, and it has none.
        WorkloadError: no request got an answer.
    """
    refuse_settings(options)
    target = target_of(options)
    model = about(target)
    if options.require_gpu and model.simulated:
        raise NoSuchDevice(f"a GPU is required, and {target.url} computes on {model.device}")
    traffic = Traffic(
        rate_per_s=options.rate or RATE,
        seconds=options.seconds or SECONDS,
        prompt_tokens=min(options.prompt_tokens or PROMPT_TOKENS, model.max_length // 2),
        output_tokens=min(options.output_tokens or OUTPUT_TOKENS, model.max_length // 2),
        seed=options.seed,
    )
    planned = some_arrivals(traffic, vocabulary=model.vocabulary, max_length=model.max_length)
    figures = figures_of(drive(target, planned), traffic)
    where: dict[str, Scalar] = {"url": target.url, "device": model.device}
    return summarise(figures, where, verified=False, simulated=model.simulated)


def refuse_settings(options: LoadOptions) -> None:
    """Refuse options that only a server that is started here could use."""
    own = set(Options.__dataclass_fields__)
    for name, field in ServingOptions.__dataclass_fields__.items():
        if name not in own and getattr(options, name) != field.default:
            raise BadArgument(
                f"--{name.replace('_', '-')} is for a server that is started here, and --url names"
                " one that runs already"
            )


def target_of(options: LoadOptions) -> Target:
    """Return the server that was named.

    Raises:
        BadArgument: the URL is no server's.
    """
    parts = urlsplit(options.url or "")
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/"):
        raise BadArgument(f"--url {options.url!r} is not http(s)://HOST:PORT")
    return Target(f"{parts.scheme}://{parts.netloc}", token_from(options.token_file, os.environ))
