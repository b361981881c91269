# SPDX-License-Identifier: Apache-2.0
"""Serves the transformer over HTTP: continuous batching, a paged cache, tokens as they come.

    options       options of the command line (no torch)
    budget        sizes filled in; how many pages of the cache the share's memory holds
    pages         ownership of pages
    weights       of the network, from the seed or from a checkpoint
    checkpoint    of `transformer`
    batch         sequences of the next step: admission, prompts in parts, ends
    network       one step of the decoder, with keys and values kept in pages
    sampling      the next token of each row, independent of the rest of the batch
    graphs        steps of one token as CUDA graphs
    engine        the thread that steps
    protocol      the API's JSON, judged before anything is computed
    access        access control: the token, and the address to listen at without one
    listener      the socket
    callers       callers that wait for tokens
    app           routes
    metrics       for Prometheus
    server        uvicorn: starts, drains on SIGTERM, ends

It is Starlette's, and not Litestar's as the REST API is: five routes need no description by
OpenAPI, and workloads bring few libraries.

A request has all pages that it can need before it computes. With pages taken as a sequence grows
more requests would run at a time; but when none is left, one that has already begun to answer
would have to wait, or be computed again.
"""

import importlib
from typing import Any

from gpupack_workloads.errors import WorkloadError
from gpupack_workloads.inference_server.options import ServerOptions
from gpupack_workloads.results import Result

EXTRA = ("aiohttp", "prometheus_client", "starlette", "uvicorn")


def run(options: ServerOptions) -> Result:
    """Serve until a signal ends it; see `server.run`."""
    # The command line imports the options from here, and torch must wait until they are judged.
    result: Result = part("inference_server.server").run(options)
    return result


def part(name: str) -> Any:
    """Import what needs libraries that most workloads do without.

    Raises:
        WorkloadError: one is not installed.
    """
    try:
        return importlib.import_module(f"gpupack_workloads.{name}")
    except ModuleNotFoundError as error:
        if (missing := (error.name or "").partition(".")[0]) not in EXTRA:
            raise
        raise WorkloadError(
            f"{missing} is not installed: pip install 'gpupack-workloads[serve]'"
        ) from error
