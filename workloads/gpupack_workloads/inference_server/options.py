# SPDX-License-Identifier: Apache-2.0
"""Options of `inference-server`, and of the server that `inference-load` starts."""

from dataclasses import dataclass
from pathlib import Path

from gpupack_workloads.settings import Options

MODEL = "gpupack-transformer"
PAGED, GATHERED = "paged", "gathered"
"""Our kernel reads pages in place; or they are copied into order for torch's."""
PAGE_TOKENS = 16
"""Positions whose keys and values are in one page."""


@dataclass(frozen=True, kw_only=True)
class ServingOptions(Options):
    """Options of the network and its batch; None: defaults for the device.

    Attributes:
        layers: blocks of the network.
        width: numbers per token.
        heads: number of heads of the queries; width over heads is 64 or 128.
        kv_heads: number of heads of keys and values.
        checkpoint: folder in which `transformer` has left checkpoints of such a network; None
            makes the weights from the seed, untrained.
        max_length: tokens of prompt and answer together, at most.
        max_batch: requests that compute at a time.
        max_waiting: maximum number of waiting requests; later ones are refused.
        prefill_tokens: tokens of prompts in one step.
        memory_mib: MiB of the GPU, for everything; None takes the share's, or what is free.
        graphs: whether steps of one token are CUDA graphs; None: on GPUs.
        attention: implementation of steps of one token, PAGED or GATHERED; None: PAGED on GPUs.
    """

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    checkpoint: Path | None = None
    max_length: int | None = None
    max_batch: int | None = None
    max_waiting: int = 64
    prefill_tokens: int | None = None
    memory_mib: int | None = None
    graphs: bool | None = None
    attention: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServerOptions(ServingOptions):
    """Options of the server's address and of its end.

    Attributes:
        host: address to listen at; beyond loopback only with a token.
        port: 0 takes a free one.
        token_file: holds what callers must show.
        tls_certificate: PEM file, with its chain; with `tls_key`, HTTPS.
        tls_key: PEM file.
        drain_seconds: for requests under way, after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    drain_seconds: float = 25.0
