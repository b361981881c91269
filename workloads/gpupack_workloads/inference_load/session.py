# SPDX-License-Identifier: Apache-2.0
"""Checks the network, serves it from this process, loads it from another, checks the answers.

The load comes from a process of its own, which needs no torch: callers who share an interpreter
with the server would take its time, and measure themselves.
"""

import contextlib
import multiprocessing
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import torch

from gpupack_workloads.devices import Device, choose_device, describe, memory_errors
from gpupack_workloads.errors import BadArgument, WorkloadError, WrongResult
from gpupack_workloads.inference_load.arrivals import Arrival, Traffic, arrivals, some_arrivals
from gpupack_workloads.inference_load.checks import check_answers, errors_of
from gpupack_workloads.inference_load.client import Outcome, Target, drive
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_load.summary import figures_of, summarise
from gpupack_workloads.inference_server.budget import Sizes, sizes_for
from gpupack_workloads.inference_server.listener import bound
from gpupack_workloads.inference_server.options import GATHERED, PAGED, ServerOptions
from gpupack_workloads.inference_server.server import (
    Ending,
    Server,
    Serving,
    config_for,
    decoder_of,
    new_serving,
)
from gpupack_workloads.memory import MIB
from gpupack_workloads.results import Result, Scalar
from gpupack_workloads.transformer.memory_estimate import parameters

START_SECONDS = 30
POLL_SECONDS = 0.01
WARM_UP_REQUESTS = 6
WARM_UP_SECONDS = 0.5


def run(options: LoadOptions) -> Result:
    """Check and measure.

    Raises:
        BadArgument: there is no such network, or no such load.
        OutOfMemory: network and cache do not fit into the share.
        WrongResult: logits or answers are wrong, or the engine has failed; nothing about speed is
            reported then.
        WorkloadError: no request got an answer.
    """
    device = choose_device(require_gpu=options.require_gpu)
    sizes = sizes_for(options, device)
    shape = sizes.shape
    traffic = traffic_of(options, sizes, device)
    planned = some_arrivals(traffic, vocabulary=shape.vocabulary, max_length=shape.sequence)
    with memory_errors("serving"):
        decoder = decoder_of(options, sizes, device)
        errors = errors_of(
            decoder,
            vocabulary=shape.vocabulary,
            max_length=shape.sequence,
            seed=options.seed,
            paged=sizes.paged,
        )
        serving = new_serving(decoder, sizes, device, Ending())
        with served(serving) as target:
            outcomes = loaded(target, warm_up(traffic, sizes), planned)
        if failure := serving.service.engine.failure:
            raise WrongResult(f"the engine has failed under the load: {failure}")
        figures = figures_of(outcomes, traffic)
        forget_cache(serving)
        answers = check_answers(decoder, planned, outcomes, errors)
    whole = figures["failed"] == 0
    checked: dict[str, Scalar] = {
        "error": errors.served,
        "error_bound": errors.bound,
        "exact_error": errors.exact,
    }
    return summarise(
        figures,
        checked | answers | serving_metrics(serving) | describe(device),
        verified=whole,
        simulated=device.simulated,
    )


def traffic_of(options: LoadOptions, sizes: Sizes, device: Device) -> Traffic:
    """Fill in what suits the device.

    Raises:
        BadArgument: usual prompts and answers are longer than the server takes.
    """
    usual = Traffic(rate_per_s=16, seconds=10, prompt_tokens=256, output_tokens=64, seed=0)
    if device.simulated:
        usual = Traffic(rate_per_s=6, seconds=2, prompt_tokens=24, output_tokens=8, seed=0)
    given: dict[str, Any] = {
        "rate_per_s": options.rate,
        "seconds": options.seconds,
        "prompt_tokens": options.prompt_tokens,
        "output_tokens": options.output_tokens,
        "seed": options.seed,
    }
    traffic = replace(usual, **{name: value for name, value in given.items() if value is not None})
    together = traffic.prompt_tokens + traffic.output_tokens
    if together > sizes.shape.sequence:
        raise BadArgument(
            f"prompts of {traffic.prompt_tokens} and answers of {traffic.output_tokens} tokens, as"
            f" they are on average, are more than --max-length {sizes.shape.sequence}"
        )
    return traffic


def warm_up(traffic: Traffic, sizes: Sizes) -> list[Arrival]:
    """Return warm-up requests, so that no measured request is the first of its kind."""
    before = replace(
        traffic,
        rate_per_s=WARM_UP_REQUESTS / WARM_UP_SECONDS,
        seconds=WARM_UP_SECONDS,
        seed=traffic.seed + 1,
    )
    shape = sizes.shape
    return arrivals(before, vocabulary=shape.vocabulary, max_length=shape.sequence)


@contextlib.contextmanager
def served(serving: Serving) -> Iterator[Target]:
    """Serve on loopback, with a secret token."""
    token = secrets.token_hex(32)
    options = ServerOptions()
    with bound(options.host, 0) as listener:
        server = Server(config_for(options, serving, token), serving.service, drain_seconds=0)
        thread = threading.Thread(target=server.run, args=([listener],), name="server", daemon=True)
        thread.start()
        try:
            wait_until_started(server, thread)
            yield Target(f"http://127.0.0.1:{listener.getsockname()[1]}", token)
        finally:
            server.end(cut_off=False)
            thread.join()


def wait_until_started(server: Server, thread: threading.Thread) -> None:
    """Wait until it listens.

    Raises:
        WorkloadError: it does not.
    """
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise WorkloadError("the server did not start")
        time.sleep(POLL_SECONDS)


def loaded(target: Target, before: list[Arrival], planned: list[Arrival]) -> list[Outcome]:
    """Send requests from a separate process.

    Raises:
        WorkloadError: it was killed.
    """
    context = multiprocessing.get_context("spawn")
    # A terminal's Ctrl-C is sent to that process, too: it is this one's to end.
    with ProcessPoolExecutor(
        1,
        mp_context=context,
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    ) as pool:
        try:
            pool.submit(drive, target, before).result()
            return pool.submit(drive, target, planned).result()
        except BrokenProcessPool as error:
            raise WorkloadError(f"the process that sends requests has ended: {error}") from error
        except KeyboardInterrupt:
            # The pool's end would await the load's.
            for process in multiprocessing.active_children():
                process.kill()
            raise


def forget_cache(serving: Serving) -> None:
    """Free the cache, whose server has ended: the plain pass needs its memory."""
    serving.network.keys.clear()
    serving.network.values.clear()
    if serving.network.device.type == "cuda":
        torch.cuda.empty_cache()


def serving_metrics(serving: Serving) -> dict[str, Scalar]:
    """Return metrics of the server: sizes, types and limits.

    `multiprocessors` are those that MPS leaves to this process: they show a limit in force.
    """
    sizes, shape, device = serving.sizes, serving.sizes.shape, serving.network.device
    gpu: dict[str, Scalar] = {}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = {"multiprocessors": int(properties.multi_processor_count)}
    return gpu | {
        "parameters": parameters(shape),
        "layers": shape.layers,
        "width": shape.width,
        "vocabulary": shape.vocabulary,
        "max_length": shape.sequence,
        "dtype": sizes.dtype,
        "max_batch": sizes.max_batch,
        "pages": sizes.pages,
        "budget_mib": sizes.budget_bytes // MIB,
        "graphs": sizes.graphs,
        "attention": PAGED if sizes.paged else GATHERED,
        "steps": serving.service.engine.load.steps,
    }
