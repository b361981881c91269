# SPDX-License-Identifier: Apache-2.0
"""Start, run and end of a server.

On SIGTERM it takes no more requests (`/readyz` says so, and callers get 503, to try another
server), answers those that it has, and ends; what is not answered in time is cut off. A second
signal cuts off at once.
"""

import asyncio
import logging
import os
import signal
import socket
from dataclasses import dataclass
from types import FrameType

import torch
import uvicorn

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import BadArgument, Terminated, WorkloadError
from gpupack_workloads.inference_server.access import require_reachable_by_few, token_from
from gpupack_workloads.inference_server.app import Service, application
from gpupack_workloads.inference_server.batch import Batch
from gpupack_workloads.inference_server.budget import Sizes, hold_to, page_bytes, sizes_for
from gpupack_workloads.inference_server.callers import Delivery
from gpupack_workloads.inference_server.engine import Engine
from gpupack_workloads.inference_server.graphs import Graphs
from gpupack_workloads.inference_server.listener import bound
from gpupack_workloads.inference_server.network import Network, rounded
from gpupack_workloads.inference_server.options import (
    PAGE_TOKENS,
    ServerOptions,
    ServingOptions,
)
from gpupack_workloads.inference_server.pages import Pages
from gpupack_workloads.inference_server.protocol import Limits
from gpupack_workloads.inference_server.weights import decoder_for
from gpupack_workloads.memory import MIB
from gpupack_workloads.results import Result, Scalar, headline
from gpupack_workloads.transformer.model import Decoder

logger = logging.getLogger(__name__)

# Callers that were sent here before it was known that this server ends get an answer at least.
UNREADY_SECONDS = 1.0
# A caller that does not read has its answer cut off.
CLOSING_SECONDS = 1
# In addition to requests that compute and wait: health, metrics, and refused calls.
MORE_CONNECTIONS = 128


class Server(uvicorn.Server):
    """A uvicorn server that drains before it ends."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_seconds: float) -> None:
        super().__init__(config)
        self.service = service
        self.cut_off = False
        self._drain_seconds = drain_seconds
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; at the second signal, end."""
        del frame
        if self.service.draining or self._loop is None:
            self.end(cut_off=self.service.under_way > 0)
            return
        logger.info("%s: draining %d request(s)", signal.Signals(sig).name, self.service.under_way)
        self.service.draining = True
        self._loop.call_soon_threadsafe(self._begin_draining)

    def end(self, *, cut_off: bool) -> None:
        """End soon; may be called by any thread."""
        self.cut_off = self.cut_off or cut_off
        # Not by force: the engine's last step ends first. On a limited share kernels that are left
        # behind could fail others' (ADR 34).
        self.should_exit = True

    def _begin_draining(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._drain_seconds):
                await asyncio.sleep(min(UNREADY_SECONDS, self._drain_seconds / 2))
                await self.service.idle()
        except TimeoutError:
            logger.warning("%d request(s) are cut off", self.service.under_way)
        self.end(cut_off=self.service.under_way > 0)


@dataclass(frozen=True)
class Serving:
    """State of a server before it listens.

    Attributes:
        sizes: sizes of everything.
        decoder: the network's weights.
        network: with its cache.
        service: with engine and metrics, not started.
    """

    sizes: Sizes
    decoder: Decoder
    network: Network
    service: Service


class Ending:
    """Callback of the engine for its failure; the server is set later."""

    server: Server | None = None

    def __call__(self) -> None:
        """End the server: a new process may do better."""
        if self.server is not None:
            self.server.end(cut_off=True)


def run(options: ServerOptions) -> Result:
    """Serve until a signal ends it; return how much was served.

    Raises:
        BadArgument: it may not listen there, or cannot.
        OutOfMemory: network and cache do not fit into the share.
        Terminated: requests were cut off.
        WorkloadError: the engine has failed.
    """
    token = token_from(options.token_file, os.environ)
    require_reachable_by_few(options.host, token)
    device = choose_device(require_gpu=options.require_gpu)
    sizes = sizes_for(options, device)
    ending = Ending()
    with bound(options.host, options.port) as listener, memory_errors("serving"):
        decoder = decoder_of(options, sizes, device)
        serving = new_serving(rounded(decoder), sizes, device, ending)
        server = ending.server = Server(
            config_for(options, serving, token), serving.service, options.drain_seconds
        )
        logger.info(
            "listening at %s port %d, %s",
            *listener.getsockname()[:2],
            "with a token" if token else "no token",
        )
        server.run(sockets=[listener])
    service = serving.service
    if service.engine.failure is not None:
        raise WorkloadError(f"the engine has failed: {service.engine.failure}")
    if server.cut_off:
        raise Terminated("stopped by a signal; requests that took too long were cut off")
    return Result(
        workload="inference-server",
        headline=headline(f"{service.answered} requests served", simulated=device.simulated),
        verified=False,
        simulated=device.simulated,
        metrics={"requests": service.answered, "output_tokens": service.tokens} | describe(device),
    )


def decoder_of(options: ServingOptions, sizes: Sizes, device: Device) -> Decoder:
    """Return the network, its weights in 32 bits yet, within the share."""
    hold_to(sizes.budget_bytes, device)
    return decoder_for(sizes, checkpoint=options.checkpoint, seed=options.seed, device=device.torch)


def new_serving(decoder: Decoder, sizes: Sizes, device: Device, ending: Ending) -> Serving:
    """Make cache, graphs, engine and service of a network in the type that it computes in."""
    if not device.simulated:
        torch.cuda.empty_cache()
    network = Network(
        decoder,
        pages=sizes.pages,
        page_tokens=PAGE_TOKENS,
        max_length=sizes.shape.sequence,
        paged=sizes.paged,
    )
    if sizes.paged and not sizes.graphs:
        # Compiles our kernels, for which a request would wait: of rows in one part, and in several.
        # Graphs have them when they are made.
        for pages in {1, network.max_pages}:
            network.tokens(network.padding(1, pages))
    batch = Batch(
        Pages(sizes.pages),
        page_tokens=PAGE_TOKENS,
        max_batch=sizes.max_batch,
        max_waiting=sizes.max_waiting,
        prefill_tokens=sizes.prefill_tokens,
    )
    delivery = Delivery()
    engine = Engine(
        network,
        batch,
        graphs=Graphs(network, sizes.max_batch) if sizes.graphs else None,
        publish=delivery,
        on_failed=ending,
    )
    about: dict[str, Scalar] = {"device": device.name, "simulated": device.simulated}
    limits = Limits(vocabulary=sizes.shape.vocabulary, max_length=sizes.shape.sequence)
    cache = sizes.pages * page_bytes(sizes.shape, sizes.dtype)
    logger.info(
        "%d pages of %d tokens (%d MiB) within %d MiB",
        sizes.pages,
        PAGE_TOKENS,
        cache // MIB,
        sizes.budget_bytes // MIB,
    )
    return Serving(sizes, decoder, network, Service(engine, delivery, limits, device=about))


def config_for(options: ServerOptions, serving: Serving, token: str | None) -> uvicorn.Config:
    """Return uvicorn's settings.

    Raises:
        BadArgument: one of certificate and key is missing, or they cannot be used.
    """
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise BadArgument("--tls-certificate and --tls-key go together")
    sizes = serving.sizes
    config = uvicorn.Config(
        application(serving.service, token),
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=sizes.max_batch + sizes.max_waiting + MORE_CONNECTIONS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise BadArgument(f"the certificate or its key cannot be used: {error}") from error
    return config
