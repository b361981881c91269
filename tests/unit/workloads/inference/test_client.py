# SPDX-License-Identifier: Apache-2.0
"""The load generator with a server that answers as the test says, over real connections."""

import asyncio
import itertools
import json
import threading
import time

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from gpupack_workloads.errors import BadArgument, NoSuchDevice, WorkloadError
from gpupack_workloads.inference_load.arrivals import Arrival, Traffic
from gpupack_workloads.inference_load.client import Target, about, drive
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_load.other_server import run, target_of
from gpupack_workloads.inference_load.summary import figures_of
from gpupack_workloads.inference_server.access import Authenticated
from gpupack_workloads.inference_server.listener import bound

TOKEN = "t" * 32
TRAFFIC = Traffic(rate_per_s=1, seconds=1, prompt_tokens=1, output_tokens=1, seed=0)


@pytest.fixture
def serve():
    """Return a function that starts a server with a given answer and returns its address."""
    running = []

    def serve(complete):
        models = {"data": [{"id": "m", "vocabulary": 9, "max_length": 64, "simulated": True}]}
        routes = [
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/models", lambda _: JSONResponse(models)),
        ]
        listener = bound("127.0.0.1", 0)
        config = uvicorn.Config(
            Authenticated(Starlette(routes=routes), TOKEN),
            lifespan="off",
            log_config=None,
            ws="none",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        running.append((server, thread, listener))
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return Target(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)

    yield serve
    for server, thread, listener in running:
        server.should_exit = True
        thread.join()
        listener.close()


def streamed(*pieces, pause=0.0):
    """Return a handler that answers with lists of tokens up to max_tokens, and a finish reason."""

    async def complete(call):
        asked = json.loads(await call.body())

        async def events():
            sent = 0
            for tokens in pieces:
                await asyncio.sleep(pause)
                sent += len(tokens)
                reason = "length" if sent == asked["max_tokens"] else None
                choice = {"token_ids": tokens, "finish_reason": reason}
                yield f"data: {json.dumps({'choices': [choice]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return complete


def test_each_token_has_its_time_and_each_request_is_sent_when_it_is_due(serve):
    target = serve(streamed([1], [2, 3], pause=0.05))
    outcomes = drive(target, [Arrival(0.0, (1,), 3), Arrival(0.3, (2,), 3)])
    for outcome in outcomes:
        assert (outcome.tokens, outcome.finished, outcome.trouble) == ([1, 2, 3], "length", None)
        first, second, third = outcome.times
        assert outcome.due <= outcome.sent < first < second == third
    assert outcomes[1].sent >= 0.3


def test_a_server_that_stalls_gets_the_same_load_and_its_callers_waits_count_in_full(serve):
    """A client that waits for answers would never send the second request."""
    here, all_here = itertools.count(1), asyncio.Event()

    async def complete(call):
        if next(here) == 5:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 30)
        return await streamed([1])(call)

    outcomes = drive(serve(complete), [Arrival(0.1 * n, (1,), 1) for n in range(5)])
    figures = figures_of(outcomes, TRAFFIC)
    assert figures["answered"] == 5
    # The first waits until the last is due, 0.4 s after it.
    assert figures["ttft_p99_ms"] > 380
    assert figures["ttft_p50_ms"] > 190


def test_refusals_and_short_answers_are_counted_and_not_timed(serve):
    statuses = iter([429, 503, 500, 200, 200])

    async def complete(call):
        status = next(statuses)
        if status != 200:
            return JSONResponse({"error": "busy"}, status)
        return await streamed([1], [2])(call)

    target = serve(complete)
    planned = [Arrival(0.05 * n, (1,), 2) for n in range(4)] + [Arrival(0.2, (1,), 3)]
    figures = figures_of(drive(target, planned), TRAFFIC)
    counted = {name: figures[name] for name in ("requests", "answered", "rejected", "failed")}
    assert counted == {"requests": 5, "answered": 1, "rejected": 2, "failed": 2}


def test_a_connection_that_breaks_is_a_failure_and_none_answered_an_error(serve):
    async def complete(call):
        async def events():
            yield 'data: {"choices": [{"token_ids": [1]}]}\n\n'
            raise ConnectionResetError

        return StreamingResponse(events())

    (outcome,) = drive(serve(complete), [Arrival(0.0, (1,), 2)])
    assert outcome.tokens == [1]
    assert "Error" in outcome.trouble
    with pytest.raises(WorkloadError, match="none of 1 requests was answered"):
        figures_of([outcome], TRAFFIC)


def test_a_server_elsewhere_is_measured_and_never_called_verified(serve, tmp_path):
    target = serve(streamed([1]))
    file = tmp_path / "token"
    file.write_text(TOKEN)
    options = LoadOptions(
        url=target.url, token_file=file, rate=40, seconds=0.5, prompt_tokens=1, output_tokens=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPACK_DEVICE_PERCENT", "30")
        result = run(options)
    assert (result.verified, result.simulated) == (False, True)
    assert result.metrics["share_percent"] == 30
    assert result.metrics["answered"] + result.metrics["failed"] == result.metrics["requests"] > 5
    assert [row["quantity"] for row in result.rows][:1] == ["ttft"]


def test_a_required_gpu_that_the_server_lacks_is_an_error(serve, monkeypatch):
    target = serve(streamed([1]))
    monkeypatch.setenv("INFERENCE_TOKEN", TOKEN)
    with pytest.raises(NoSuchDevice, match="a GPU is required"):
        run(LoadOptions(url=target.url, require_gpu=True))


def test_an_empty_load_is_refused_for_another_server_too(serve, monkeypatch):
    target = serve(streamed([1]))
    monkeypatch.setenv("INFERENCE_TOKEN", TOKEN)
    with pytest.raises(BadArgument, match=r"no request begins within 0.1 s at 0.01 per second"):
        run(LoadOptions(url=target.url, rate=0.01, seconds=0.1))


def test_a_server_that_refuses_the_token_or_is_no_inference_server_is_refused(serve):
    target = serve(streamed([1]))
    assert about(target).vocabulary == 9
    with pytest.raises(BadArgument, match="401"):
        about(Target(target.url, "x" * 32))
    with pytest.raises(BadArgument, match="no inference server"):
        about(Target("http://127.0.0.1:9", None))


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://a", "http://", "http://a/v1"])
def test_an_invalid_server_address_is_refused(url):
    with pytest.raises(BadArgument, match="is not http"):
        target_of(LoadOptions(url=url))


def test_a_slash_at_the_end_of_an_address_does_not_matter():
    assert target_of(LoadOptions(url="http://127.0.0.1:8000/")).url == "http://127.0.0.1:8000"


def test_drive_takes_an_empty_load():
    assert drive(Target("http://127.0.0.1:9"), []) == []
