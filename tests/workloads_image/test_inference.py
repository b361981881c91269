# SPDX-License-Identifier: Apache-2.0
"""The paged network compared with the plain one, and the server, over real connections."""

import itertools
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from gpupack_workloads.devices import choose_device
from gpupack_workloads.errors import BadArgument, NoSuchDevice, OutOfMemory, WrongResult
from gpupack_workloads.inference_load import checks, run
from gpupack_workloads.inference_load.arrivals import Arrival
from gpupack_workloads.inference_load.checks import check_answers, errors_of, regrets
from gpupack_workloads.inference_load.client import Outcome
from gpupack_workloads.inference_load.options import LoadOptions
from gpupack_workloads.inference_server import network as network_module
from gpupack_workloads.inference_server.batch import Batch, Part, Request, Sequence
from gpupack_workloads.inference_server.budget import page_bytes, share_mib, sizes_for
from gpupack_workloads.inference_server.graphs import Graphs, pinned, sizes
from gpupack_workloads.inference_server.listener import bound
from gpupack_workloads.inference_server.network import Network, rounded
from gpupack_workloads.inference_server.options import ServerOptions, ServingOptions
from gpupack_workloads.inference_server.pages import Pages
from gpupack_workloads.inference_server.sampling import NO_NUMBERS, next_tokens, uniform
from gpupack_workloads.inference_server.server import (
    Ending,
    Server,
    config_for,
    decoder_of,
    new_serving,
)
from gpupack_workloads.memory import MIB
from gpupack_workloads.transformer.memory_estimate import parameters

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

# Four heads share two key heads; 2 sequences at a time, 2 that wait.
SMALL = ServingOptions(
    layers=2, width=256, heads=4, kv_heads=2, max_length=128, max_batch=2, max_waiting=2,
    prefill_tokens=32, graphs=False,
)  # fmt: skip
TOKEN = "t" * 32
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def made(options=SMALL):
    device = choose_device(require_gpu=False)
    found = sizes_for(options, device)
    return device, found, decoder_of(options, found, device)


@pytest.fixture(autouse=True)
def whole_gpu():
    """A server holds its whole process to its share; other tests are to have the GPU again."""
    yield
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0)


def checked(decoder):
    return errors_of(
        decoder, vocabulary=256, max_length=128, seed=1, paged=torch.cuda.is_available()
    )


def network_of(decoder, *, pages, max_length=128, paged=None):
    paged = torch.cuda.is_available() if paged is None else paged
    return Network(decoder, pages=pages, page_tokens=16, max_length=max_length, paged=paged)


# The network.


@pytest.fixture(scope="module")
def exact_decoder():
    _, _, decoder = made()
    decoder.dtype = torch.float32
    return decoder


def test_logits_through_the_cache_are_those_of_the_plain_pass():
    """Ragged sequences, key heads that are shared, parts and single tokens, scattered pages."""
    _, _, decoder = made()
    errors = checked(decoder)
    assert errors.exact <= checks.EXACT_BOUND / (1 if torch.cuda.is_available() else 10)
    assert errors.served <= errors.bound


@no_gpu
def test_logits_in_16_bits_are_as_near_as_those_of_the_plain_pass():
    _, _, decoder = made()
    decoder.dtype = torch.bfloat16
    errors = checked(decoder)
    assert 0 < errors.plain < 0.1
    assert errors.served <= errors.bound
    assert decoder.head.weight.dtype == torch.bfloat16
    assert decoder.norm.weight.dtype == torch.float32


def wrong_page(place, network):
    place.read = place.read.roll(network.page_tokens, 1)


def wrong_slot(place, network):
    place.written = place.written ^ 1


def mask_too_wide(place, network):
    place.mask = place.mask.roll(1, -1)
    place.mask[..., 0] = True


def wrong_position(place, network):
    place.cosine = place.cosine.roll(1, 0)


def heads_crossed(place, network):
    place.mask = place.mask.unflatten(2, (-1, 2)).transpose(2, 3).flatten(2, 3)


@pytest.mark.parametrize(
    "fault", [wrong_page, wrong_slot, mask_too_wide, wrong_position, heads_crossed]
)
def test_a_step_that_looks_elsewhere_is_found_out(monkeypatch, fault):
    _, _, decoder = made()

    class Faulty(network_module.Place):
        def __init__(self, network, *rest):
            super().__init__(network, *rest)
            if network.dtype == torch.float32:
                fault(self, network)

    monkeypatch.setattr(network_module, "Place", Faulty)
    with pytest.raises(WrongResult, match="logits through the cache are off"):
        checked(decoder)


@pytest.mark.parametrize("spoilt", range(checks.SEQUENCES))
def test_a_plain_pass_that_comes_to_no_numbers_explains_nothing(monkeypatch, spoilt):
    _, _, decoder = made()
    passes = itertools.count()

    def logits(decoder, tokens):
        found = plain_logits(decoder, tokens)
        # The first pass over each sequence is the reference, the second in the type that is served.
        if next(passes) == checks.SEQUENCES + spoilt:
            found[0, 0] = torch.nan
        return found

    plain_logits = checks.plain_logits
    monkeypatch.setattr(checks, "plain_logits", logits)
    with pytest.raises(WrongResult, match="where it explains inf"):
        checked(decoder)


def test_padding_changes_nothing_and_writes_to_the_spare_page_alone():
    _, _, decoder = made()
    network = network_of(rounded(decoder), pages=6)
    sequence = Sequence(Request(prompt=(5, 6, 7), max_tokens=2), pages=(3,))
    part = Part(sequence, 3)
    alone = network.logits(padded(network, [part], pages=1))
    kept = network.keys[0][48:51].clone()
    together = network.logits(padded(network, [part], pages=4, rows=3))
    near = {"rtol": 0, "atol": 0.05 if torch.cuda.is_available() else 1e-5}
    torch.testing.assert_close(together[:1], alone, **near)
    torch.testing.assert_close(network.keys[0][48:51], kept, **near)
    written = network.keys[0].abs().sum((1, 2)).nonzero().flatten().tolist()
    assert set(written) <= {*range(16), 48, 49, 50}


@no_gpu
def test_steps_of_one_token_over_pages_have_the_logits_of_those_that_gather_them(exact_decoder):
    """With padding, which has no pages, and a row whose first token is its only one."""
    sequences = [
        Sequence(Request(prompt=tuple(range(length)), max_tokens=4), pages=pages, cached=cached)
        for length, pages, cached in ((17, (5, 2), 0), (16, (3, 6), 0), (1, (4,), 0))
    ]
    gathering, paged = (network_of(exact_decoder, pages=6, paged=each) for each in (False, True))
    for counts in ((16, 15, 0), (1, 1, 1)):
        parts = [Part(s, count) for s, count in zip(sequences, counts, strict=True) if count]
        found, wanted = (
            each.logits(padded(each, parts, pages=2, rows=4)) for each in (paged, gathering)
        )
        torch.testing.assert_close(found[: len(parts)], wanted[: len(parts)], rtol=0, atol=1e-5)
        for part in parts:
            part.sequence.cached += part.count


@no_gpu
def test_a_cache_that_holds_no_numbers_beyond_a_row_does_not_reach_it(exact_decoder):
    network = network_of(exact_decoder, pages=3, paged=True)
    for kept in (*network.keys, *network.values):
        kept.fill_(torch.nan)
    part = Part(Sequence(Request(prompt=(7,), max_tokens=2), pages=(2,)), 1)
    assert network.logits(padded(network, [part], pages=2, rows=2))[0].isfinite().all()


def table_of_another_row(place):
    place.tables = place.tables.roll(1, 0)


def one_position_less(place):
    place.lengths = place.lengths - 1


@pytest.mark.gpu
@pytest.mark.parametrize("fault", [table_of_another_row, one_position_less])
def test_a_step_over_pages_that_looks_elsewhere_is_found_out(monkeypatch, fault):
    _, _, decoder = made()

    class Faulty(network_module.Place):
        def __init__(self, network, *rest):
            super().__init__(network, *rest)
            fault(self)

    monkeypatch.setattr(network_module, "Place", Faulty)
    with pytest.raises(WrongResult, match="logits through the cache are off"):
        checked(decoder)


REQUESTS = st.builds(
    Request,
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=40).map(tuple),
    max_tokens=st.integers(1, 6),
)
ACTIONS = st.one_of(REQUESTS, st.just("step"), st.tuples(st.just("cancel"), st.integers(0, 9)))


@no_gpu
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(ACTIONS, min_size=4, max_size=24), st.integers(1, 24))
def test_sequences_that_join_and_leave_have_the_logits_of_the_plain_pass(
    exact_decoder, actions, prefill_tokens
):
    """Pages of finished sequences are soon reused, with their old content."""
    network = network_of(exact_decoder, pages=7)
    batch = Batch(
        Pages(7), page_tokens=16, max_batch=3, max_waiting=99, prefill_tokens=prefill_tokens
    )
    sequences = []
    for action in [*actions, *["step"] * 400]:
        if isinstance(action, Request):
            sequences.append(batch.submit(action))
        elif action != "step":
            for chosen in sequences[action[1] :][:1]:
                batch.cancel(chosen)
        elif step := batch.plan():
            batch.advance(step, [token_of(network, part, exact_decoder) for part in step.parts])
    assert batch.idle


def token_of(network, part, decoder):
    """The likeliest token after a part, whose logits must be right where it ends its sequence."""
    (logits,) = network.logits(
        padded(network, [part], pages=network_module.pages_needed([part], 16))
    )
    if part.completes:
        sequence = part.sequence
        plain = checks.plain_logits(decoder, [*sequence.request.prompt, *sequence.output])
        torch.testing.assert_close(logits, plain[-1], rtol=0, atol=1e-4)
    return int(logits.argmax())


def padded(network, parts, *, pages, rows=None):
    numbers, temperatures = network_module.packed(parts, pages=pages, rows=rows)
    given = torch.from_numpy(numbers), torch.from_numpy(temperatures)
    return network_module.Rows(*(x.to(network.device) for x in given), pages)


# Sampling.


def choose(logits, temperature, seeds, positions):
    rows = len(seeds)
    return next_tokens(
        logits.expand(rows, -1),
        torch.full((rows,), temperature),
        torch.tensor(seeds),
        torch.tensor(positions),
    )


def test_tokens_are_drawn_as_often_as_their_probability_says():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    draws = 20_000
    found = choose(logits, 0.5, [7] * draws, list(range(draws)))
    counts = torch.bincount(found, minlength=4) / draws
    # Four standard deviations of a share of 20,000 are 0.014 at most.
    assert (counts - (logits[0] / 0.5).softmax(0)).abs().max() < 0.015


def test_without_temperature_the_likeliest_is_taken():
    logits = torch.tensor([[0.0, 3.0, 2.9]])
    assert choose(logits, 0.0, [1, 2], [3, 4]).tolist() == [1, 1]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_of_logits_that_are_no_numbers_no_token_is_taken(broken, temperature):
    logits = torch.tensor([[0.0, 3.0, broken]])
    assert choose(logits, temperature, [1], [3]).tolist() == [NO_NUMBERS]


def test_a_choice_depends_on_seed_and_position_only():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1))
    together = choose(logits, 1.0, [5, 6, 2**63 - 1, 5], [9, 9, 9, 10])
    for row, (seed, position) in enumerate([(5, 9), (6, 9), (2**63 - 1, 9), (5, 10)]):
        assert choose(logits, 1.0, [seed], [position]).tolist() == [together[row]]
    assert len(set(choose(logits, 1.0, [5] * 40, list(range(40))).tolist())) > 10


def test_uniform_numbers_are_between_0_and_1_and_spread_evenly():
    found = uniform(torch.tensor([0, 3]), torch.tensor([0, 1]), 50_000)
    assert 0 < found.min() < found.max() < 1
    assert (found.mean() - 0.5).abs() < 0.01
    assert (torch.histc(found, 10, 0, 1) / found.numel() - 0.1).abs().max() < 0.005


# Memory.


@no_gpu
def test_the_cache_is_cut_from_the_share(monkeypatch):
    device, made_sizes, _ = made()
    assert made_sizes.pages == 8 * 2
    many = replace(SMALL, max_batch=16)
    assert sizes_for(many, device).pages == 8 * 16
    monkeypatch.setenv("GPUPACK_DEVICE_MEMORY_MIB", "14")
    fewer = sizes_for(many, device)
    assert (fewer.budget_bytes, 8 <= fewer.pages < 8 * 16) == (14 * MIB, True)
    weights = 4 * parameters(fewer.shape)
    assert weights + fewer.pages * page_bytes(fewer.shape, "fp32") < 14 * MIB
    monkeypatch.setenv("GPUPACK_DEVICE_MEMORY_MIB", "4")
    with pytest.raises(OutOfMemory, match="request a larger share"):
        sizes_for(SMALL, device)
    assert sizes_for(replace(SMALL, memory_mib=100), device).budget_bytes == 100 * MIB


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_a_share_that_is_no_number_is_refused(text):
    with pytest.raises(BadArgument, match="not a whole number of MiB"):
        share_mib({"GPUPACK_DEVICE_MEMORY_MIB": text})


@no_gpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graphs": True}, "--graphs needs a GPU"),
        ({"max_length": 100}, "no multiple of 16"),
        ({"width": 200}, "not 64 or 128"),
        ({"kv_heads": 3}, "do not divide"),
    ],
)
def test_what_cannot_be_served_is_refused(changes, message):
    with pytest.raises(BadArgument, match=message):
        sizes_for(replace(SMALL, **changes), choose_device(require_gpu=False))


# Weights.


def test_a_checkpoint_of_a_training_is_served_and_another_networks_is_not(tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    device, made_sizes, trained = made(replace(SMALL, seed=8))
    place = tmp_path / "attempt-1" / "step-3"
    dcp.save({"model": trained.state_dict()}, checkpoint_id=str(place), no_dist=True)
    network = {name: value for name, value in vars(made_sizes.shape).items() if name != "sequence"}
    (place / "network.json").write_text(json.dumps({"network": network | {"seed": 8}}))
    options = replace(SMALL, checkpoint=tmp_path)
    found = decoder_of(options, made_sizes, device)
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value)
    other = replace(options, layers=1)
    with pytest.raises(BadArgument, match="another network: layers 2 and not 1"):
        decoder_of(other, sizes_for(other, device), device)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadArgument, match="has no checkpoint"):
        decoder_of(replace(SMALL, checkpoint=empty), made_sizes, device)


# The server.


@contextmanager
def serving_with(options=SMALL, *, drain_seconds=20.0):
    device, made_sizes, decoder = made(options)
    ending, errors = Ending(), checked(decoder)
    serving = new_serving(decoder, made_sizes, device, ending)
    with bound("127.0.0.1", 0) as listener:
        config = config_for(ServerOptions(), serving, TOKEN)
        server = ending.server = Server(config, serving.service, drain_seconds)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            until(lambda: server.started)
            with httpx.Client(base_url=url, headers=HEADERS, timeout=60) as client:
                yield SimpleNamespace(
                    client=client,
                    server=server,
                    serving=serving,
                    thread=thread,
                    url=url,
                    errors=errors,
                )
        finally:
            server.end(cut_off=True)
            thread.join()


@pytest.fixture(scope="module")
def served():
    with serving_with() as found:
        yield found


def until(true, seconds=20):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def complete(client, **body):
    return client.post("/v1/completions", json={"temperature": 0, **body})


@contextmanager
def streaming(client, **body):
    with client.stream("POST", "/v1/completions", json={"stream": True, **body}) as reply:
        yield reply


def pieces(reply):
    lines = [line for line in reply.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines[:-1]]


def load_of(served):
    return served.serving.service.engine.load


def idle(served):
    load = load_of(served)
    return load.running == load.waiting == 0 and load.pages_free == load.pages


def test_answers_that_were_batched_are_what_the_plain_pass_says_of_each_alone(served):
    """Four callers come at once to a batch of two: some wait, join and leave between steps."""
    asked = [((7 * n) % 256, 1, n)[: 1 + n % 3] * (1 + n) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        replies = list(
            pool.map(lambda p: complete(served.client, prompt=p, max_tokens=9 + len(p)), asked)
        )
    for prompt, reply in zip(asked, replies, strict=True):
        assert reply.status_code == 200, reply.text
        body = reply.json()
        answer = body["choices"][0]["token_ids"]
        assert body["usage"]["completion_tokens"] == len(answer) == 9 + len(prompt)
        length = len(prompt) + len(answer)
        regret = regrets(served.serving.decoder, prompt, answer, length=length).max()
        assert regret <= served.errors.choice_bound
    assert idle(served)


def test_a_stream_has_the_same_tokens_piece_by_piece_and_then_their_count(served):
    whole = complete(served.client, prompt="1 2 3", max_tokens=12).json()["choices"][0]
    with streaming(
        served.client, prompt=[1, 2, 3], max_tokens=12, temperature=0,
        stream_options={"include_usage": True},
    ) as reply:  # fmt: skip
        assert reply.headers["content-type"].startswith("text/event-stream")
        found = pieces(reply)
    assert len({piece["id"] for piece in found}) == 1
    choices = [piece["choices"][0] for piece in found[:-1]]
    assert len(choices) > 1
    assert [token for choice in choices for token in choice["token_ids"]] == whole["token_ids"]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(choices) - 1) + ["length"]
    assert (found[-1]["choices"], found[-1]["usage"]["total_tokens"]) == ([], 15)


@no_gpu  # in 16 bits the batch's size decides the rounding, and rounding between near tokens
def test_a_seed_gives_the_same_answer_with_any_other_requests(served):
    body = {"prompt": [9, 8], "max_tokens": 12, "temperature": 1.5, "seed": 11}
    alone = complete(served.client, **body).json()["choices"][0]["token_ids"]
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(complete, served.client, prompt=[1] * 40, max_tokens=30)
        again = pool.submit(complete, served.client, **body).result()
        assert others.result().status_code == 200
    assert again.json()["choices"][0]["token_ids"] == alone
    other = complete(served.client, **body | {"seed": 12}).json()["choices"][0]["token_ids"]
    assert other != alone


def test_a_stop_token_ends_an_answer(served):
    whole = complete(served.client, prompt=[4], max_tokens=6).json()["choices"][0]["token_ids"]
    reply = complete(served.client, prompt=[4], max_tokens=6, stop_token_ids=[whole[2]]).json()
    first = whole.index(whole[2])
    assert reply["choices"][0]["token_ids"] == whole[: first + 1]
    assert reply["choices"][0]["finish_reason"] == "stop"


LONG = {"prompt": [3], "max_tokens": 127}


def paced(served, monkeypatch, seconds=0.05):
    """Each step takes as long at least, so that no answer ends before its caller looks again."""
    tokens = served.serving.network.tokens

    def later(rows):
        time.sleep(seconds)
        return tokens(rows)

    monkeypatch.setattr(served.serving.network, "tokens", later)


def test_who_goes_away_frees_a_place_and_pages_at_once(served, monkeypatch):
    paced(served, monkeypatch)
    cancelled = ended(served, "cancelled")
    with streaming(served.client, **LONG) as reply:
        next(reply.iter_lines())
        assert load_of(served).pages_free < load_of(served).pages
    until(lambda: idle(served), seconds=5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{served.url}/v1/completions", json=LONG, headers=HEADERS,
            timeout=httpx.Timeout(5, read=0.05),
        )  # fmt: skip
    until(lambda: idle(served), seconds=5)
    until(lambda: ended(served, "cancelled") == cancelled + 2)


def ended(served, outcome):
    name = f'gpupack_inference_requests_total{{outcome="{outcome}"}}'
    text = served.client.get("/metrics").text
    found = [line.split()[1] for line in text.splitlines() if line.startswith(name)]
    return float(found[0]) if found else 0.0


def test_requests_beyond_the_limit_are_refused_with_a_time_to_retry(served, slowly):
    with ThreadPoolExecutor(4) as pool:
        slowly.clear()
        try:
            computing = pool.submit(complete, served.client, **LONG)
            until(lambda: load_of(served).running == 1)
            waiting = [pool.submit(complete, served.client, **LONG) for _ in range(3)]
            # The batch has a place for one of them after this step.
            until(lambda: load_of(served).waiting == 3)
            refused = complete(served.client, prompt=[1])
        finally:
            slowly.set()
        assert [each.result().status_code for each in (computing, *waiting)] == [200] * 4
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert ended(served, "rejected") >= 1
    assert complete(served.client, prompt=[1]).status_code == 200


@pytest.fixture
def slowly(served, monkeypatch):
    """Steps wait for this event, which is set."""
    go = threading.Event()
    go.set()
    network = served.serving.network
    tokens = network.tokens

    def later(rows):
        assert go.wait(30)
        return tokens(rows)

    monkeypatch.setattr(network, "tokens", later)
    yield go
    go.set()
    until(lambda: idle(served))


@pytest.mark.parametrize(
    ("path", "arguments", "status"),
    [
        ("/v1/completions", {"json": {"prompt": "hello"}}, 400),
        ("/v1/completions", {"json": {"prompt": [1], "max_tokens": 128}}, 400),
        ("/v1/completions", {"json": {"prompt": [1_000_000]}}, 400),
        ("/v1/completions", {"content": b'{"prompt": [1]}'}, 415),
        ("/v1/completions", {"json": {"prompt": "1 " * 2**20}}, 413),
        ("/v1/completions", {"json": {"prompt": [1], "model": "other"}}, 404),
        ("/v1/chat/completions", {"json": {}}, 404),
        ("/v1/models", {"json": {}}, 405),
    ],
)
def test_bad_calls_are_refused_in_json(served, path, arguments, status):
    reply = served.client.post(path, **arguments)
    assert reply.status_code == status, reply.text
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_without_the_token_only_health_is_served(served):
    with httpx.Client(base_url=served.url) as stranger:
        assert stranger.get("/healthz").status_code == stranger.get("/readyz").status_code == 200
        for reply in (stranger.get("/metrics"), complete(stranger, prompt=[1])):
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"


def test_the_model_and_its_device_are_reported(served):
    (model,) = served.client.get("/v1/models").json()["data"]
    assert (model["vocabulary"], model["max_length"]) == (
        served.serving.sizes.shape.vocabulary, 128,
    )  # fmt: skip
    assert model["simulated"] == (not torch.cuda.is_available())


def test_metrics_count_tokens_and_tell_of_pages(served):
    complete(served.client, prompt=[1, 2], max_tokens=3)
    text = served.client.get("/metrics").text
    for name in (
        'gpupack_inference_tokens_total{kind="output"}',
        "gpupack_inference_first_token_seconds_count",
        "gpupack_inference_between_tokens_seconds_count",
        "gpupack_inference_steps",
    ):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert float(line.split()[1]) > 0
    assert f"gpupack_inference_pages_free {load_of(served).pages}.0" in text


@no_gpu
def test_a_server_over_pages_gives_the_answers_of_the_plain_pass():
    with serving_with(replace(SMALL, layers=1, attention="paged")) as served:
        reply = complete(served.client, prompt=[3] * 17, max_tokens=4)
        answer = reply.json()["choices"][0]["token_ids"]
        regret = regrets(served.serving.decoder, [3] * 17, answer, length=21)
        assert regret.max() <= served.errors.choice_bound


def test_after_a_signal_it_answers_running_requests_and_refuses_others(monkeypatch):
    with serving_with() as served:
        paced(served, monkeypatch, seconds=0.02)
        with streaming(served.client, **LONG) as reply:
            lines = reply.iter_lines()
            next(lines)
            served.server.handle_exit(signal.SIGTERM, None)
            assert served.client.get("/readyz").status_code == 503
            assert served.client.get("/healthz").status_code == 200
            sent_away = complete(served.client, prompt=[1])
            assert (sent_away.status_code, sent_away.headers["retry-after"]) == (503, "1")
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        served.thread.join(10)
        assert (served.thread.is_alive(), served.server.cut_off) == (False, False)


def test_what_is_not_answered_in_time_is_cut_off(monkeypatch):
    with serving_with(drain_seconds=0.2) as served:
        paced(served, monkeypatch, seconds=0.1)
        with streaming(served.client, **LONG) as reply:
            lines = reply.iter_lines()
            next(lines)
            served.server.handle_exit(signal.SIGTERM, None)
            served.thread.join(10)
            assert (served.thread.is_alive(), served.server.cut_off) == (False, True)


def test_a_step_that_fails_fails_all_requests_and_ends_the_server(monkeypatch):
    with serving_with() as served:
        paced(served, monkeypatch)

        def broken(rows):
            raise RuntimeError("an illegal memory access was encountered")

        with streaming(served.client, **LONG) as reply:
            lines = reply.iter_lines()
            next(lines)
            monkeypatch.setattr(served.serving.network, "tokens", broken)
            assert '"error"' in [line for line in lines if line][-1]
        served.thread.join(10)
        assert not served.thread.is_alive()
        assert "illegal memory" in str(served.serving.service.engine.failure)


def test_logits_of_nan_end_the_server_and_give_no_token(monkeypatch):
    with serving_with() as served:
        paced(served, monkeypatch)
        with streaming(served.client, **LONG) as reply:
            lines = reply.iter_lines()
            next(lines)
            for values in served.serving.network.values:
                values.fill_(torch.nan)
            assert '"error"' in [line for line in lines if line][-1]
        served.thread.join(10)
        assert not served.thread.is_alive()
        assert "no numbers" in str(served.serving.service.engine.failure)


def test_the_plain_pass_leaves_nothing_that_a_training_could_not_use():
    device, _, decoder = made()
    tokens = list(range(77))  # as many as no other test has: what is kept is kept for each length
    checks.plain_logits(decoder, tokens)
    decoder(torch.tensor([tokens], device=device.torch)).sum().backward()
    assert decoder.head.weight.grad is not None


# The workload.


@no_gpu
def test_a_small_load_is_measured_and_each_token_checked():
    result = run(
        LoadOptions(rate=20, seconds=0.5, prompt_tokens=10, output_tokens=5, **asdict_of(SMALL))
    )
    assert (result.verified, result.simulated) == (True, True)
    assert result.metrics["answered"] > 3
    assert result.metrics["checked_tokens"] > 10
    assert result.metrics["error"] <= result.metrics["error_bound"]
    assert [row["quantity"] for row in result.rows] == ["ttft", "itl", "latency"]
    for row in result.rows:
        assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]


def asdict_of(options):
    given = {name: value for name, value in vars(options).items() if name != "max_batch"}
    return given | {"max_batch": 4, "max_waiting": 64}


def test_an_answer_with_one_wrong_token_is_refused():
    _, _, decoder = made()
    errors = checked(decoder)
    prompt, answer = (5, 6), []
    for _ in range(4):
        logits = checks.plain_logits(decoder, [*prompt, *answer])
        answer.append(int(logits[-1].argmax()))
    planned = [Arrival(0.0, prompt, 4), Arrival(0.0, prompt, 2)]
    right = [
        Outcome(0.0, tokens=list(answer), finished="length"),
        Outcome(0.0, tokens=answer[:2], finished="length"),
    ]
    assert check_answers(decoder, planned, right, errors)["checked_tokens"] == 6
    for place in range(4):
        wrong = list(answer)
        wrong[place] = (wrong[place] + 1) % 256
        with pytest.raises(WrongResult, match="a caller got a token"):
            check_answers(decoder, planned, [replace(right[0], tokens=wrong), right[1]], errors)


def test_answers_of_which_the_plain_pass_knows_nothing_are_refused(monkeypatch):
    planned = [Arrival(0.0, (5, 6), 2)] * 2
    outcomes = [Outcome(0.0, tokens=[1, 2], finished="length")] * 2
    errors = checks.Errors(0.0, 0.0, 0.0, 1.0)
    regrets = iter([torch.zeros(2), torch.tensor([0.0, torch.nan])])
    monkeypatch.setattr(checks, "regrets", lambda *_, **__: next(regrets))
    with pytest.raises(WrongResult, match="whose logit is inf below"):
        check_answers(None, planned, outcomes, errors)


@no_gpu
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"require_gpu": True}, NoSuchDevice, "a GPU is required"),
        ({"prompt_tokens": 300}, BadArgument, "are more than --max-length 256"),
        ({"rate": 0.01, "seconds": 0.1}, BadArgument, "no request begins"),
    ],
)
def test_a_load_that_cannot_be_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        run(LoadOptions(**changes))


# Graphs.


@pytest.mark.parametrize(
    ("least", "most", "found"),
    [
        (1, 8, [1, 2, 4, 8]),
        (1, 24, [1, 2, 4, 8, 16, 24]),
        (16, 128, [16, 32, 64, 128]),
        (8, 8, [8]),
    ],
)
def test_sizes_of_graphs_double_up_to_the_most(least, most, found):
    assert sizes(least, most) == found


class Uncaptured(Graphs):
    """Computes what its graph would, of the same size, with the same padding."""

    def __init__(self, network, max_batch):
        self._network = network
        self._rows, self._pages = sizes(1, max_batch), sizes(1, network.max_pages)
        self.used = set()

    def tokens(self, numbers, temperatures, pages):
        self.used.add((len(numbers), pages))
        device = self._network.device
        rows = network_module.Rows(numbers.to(device), temperatures.to(device), pages)
        return self._network.tokens(rows)


def test_steps_that_are_padded_to_a_graphs_size_give_the_same_answers(served, monkeypatch):
    graphs = Uncaptured(served.serving.network, 2)
    monkeypatch.setattr(served.serving.service.engine, "_graphs", graphs)
    prompts = [[1, 2, 3], [7] * 30, [5]]
    with ThreadPoolExecutor(3) as pool:
        replies = list(
            pool.map(lambda p: complete(served.client, prompt=p, max_tokens=20), prompts)
        )
    for prompt, reply in zip(prompts, replies, strict=True):
        answer = reply.json()["choices"][0]["token_ids"]
        regret = regrets(served.serving.decoder, prompt, answer, length=len(prompt) + 20)
        assert regret.max() <= served.errors.choice_bound
    assert {rows for rows, _ in graphs.used} == {1, 2}
    assert {pages for _, pages in graphs.used} <= {1, 2, 4, 8}
    assert any(pages > 2 for _, pages in graphs.used)


# On a GPU.


@pytest.mark.gpu
def test_graphs_compute_what_single_kernels_do():
    device, made_sizes, decoder = made(replace(SMALL, max_length=512, max_batch=8))
    network = network_of(rounded(decoder), pages=160, max_length=512)
    graphs = Graphs(network, 8)
    first = 1
    sequences = []
    for length in (1, 15, 16, 17, 100, 300):
        needed = -(-(length + 8) // 16)
        prompt = tuple((7 * i + length) % made_sizes.shape.vocabulary for i in range(length))
        sequences.append(
            Sequence(
                Request(prompt=prompt, max_tokens=8), pages=tuple(range(first, first + needed))
            )
        )
        first += needed
    for sequence in sequences:
        part = Part(sequence, len(sequence.request.prompt))
        token = network.tokens(padded(network, [part], pages=len(sequence.pages)))
        sequence.cached += part.count
        sequence.output.append(int(token))
    parts = [Part(sequence, 1) for sequence in sequences]
    pages = network_module.pages_needed(parts, 16)
    single = network.logits(padded(network, parts, pages=pages))
    rows, wide = graphs.size_for(len(parts), pages)
    assert (rows, wide) == (8, 32)
    numbers, temperatures = network_module.packed(parts, pages=wide, rows=rows)
    found = graphs.tokens(pinned(numbers), pinned(temperatures), wide)[: len(parts)]
    best = single.max(1).values
    taken = single.gather(1, found[:, None]).squeeze(1)
    assert (best - taken).max() <= 0.05 * single.abs().max()
    assert device.torch.type == "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("graphs", "attention"), [(True, "paged"), (False, "paged"), (True, "gathered")]
)
def test_a_load_on_a_gpu_is_verified_in_bfloat16(graphs, attention):
    options = LoadOptions(
        layers=2, width=1024, heads=8, kv_heads=2, max_length=512, max_batch=8,
        rate=20, seconds=2, prompt_tokens=64, output_tokens=16, graphs=graphs, require_gpu=True,
        attention=attention,
    )  # fmt: skip
    result = run(options)
    assert (result.verified, result.simulated) == (True, False)
    assert (result.metrics["dtype"], result.metrics["attention"]) == ("bf16", attention)
    assert result.metrics["error"] <= result.metrics["error_bound"]


@pytest.mark.gpu
def test_a_server_keeps_within_the_memory_of_its_share(monkeypatch):
    monkeypatch.setenv("GPUPACK_DEVICE_MEMORY_MIB", "4096")
    torch.cuda.empty_cache()
    device, made_sizes, decoder = made(replace(SMALL, max_batch=64, max_length=2048, graphs=True))
    assert made_sizes.budget_bytes == 4096 * MIB
    new_serving(rounded(decoder), made_sizes, device, Ending())
    assert torch.cuda.memory_reserved(device.torch) <= 3072 * MIB
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(3072 * MIB, dtype=torch.uint8, device=device.torch)
