# SPDX-License-Identifier: Apache-2.0
"""Options of `inference-load`."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.inference_server.options import ServingOptions


@dataclass(frozen=True, kw_only=True)
class LoadOptions(ServingOptions):
    """Options of the load; None: defaults for the device.

    Attributes:
        rate: requests per second, on average.
        seconds: for how long requests begin.
        prompt_tokens: number of tokens of a request, on average.
        output_tokens: number of tokens of an answer, on average.
        url: URL of a server that runs already; None starts one in this process.
        token_file: holds the token that it wants to see.
    """

    rate: float | None = None
    seconds: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    url: str | None = None
    token_file: Path | None = None
