# SPDX-License-Identifier: Apache-2.0
"""Sends requests to an inference server as many users would, and measures their waits.

options    options of the command line (no torch)
arrivals   requests and their times, drawn before any is sent
client     sends each request at its time, and records when tokens come
checks     the paged network, and answers that callers got, against the plain forward pass
summary    percentiles, and the result
session    starts its own server
elsewhere  measures one that runs already
"""

from gpupack_workloads.errors import BadArgument
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_server import part
from gpupack_workloads.results import Result


def run(options: LoadOptions) -> Result:
    """Check and measure our own server, or measure another; see `session` and `other_server`.

    Raises:
        BadArgument: --token-file is set without --url.
        WorkloadError: a library is not installed; and as `session` and `other_server` raise it.
    """
    if options.url is None and options.token_file is not None:
        raise BadArgument("--token-file is for the server of --url, which is not set")
    # Measuring another server needs no torch.
    name = "session" if options.url is None else "other_server"
    result: Result = part(f"inference_load.{name}").run(options)
    return result
