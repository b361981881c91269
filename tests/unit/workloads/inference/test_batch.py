# SPDX-License-Identifier: Apache-2.0
"""The order of computation, without a network: the test gives the tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpupack_workloads.inference_server.batch import Batch, QueueFull, Request
from gpupack_workloads.inference_server.pages import Pages, pages_for

PAGE = 4


def batch(*, pages=100, max_batch=4, max_waiting=10, prefill_tokens=8):
    return Batch(
        Pages(pages),
        page_tokens=PAGE,
        max_batch=max_batch,
        max_waiting=max_waiting,
        prefill_tokens=prefill_tokens,
    )


def request(prompt=3, output=2, **more):
    return Request(prompt=tuple(range(prompt)), max_tokens=output, **more)


def step(batch, token=9):
    plan = batch.plan()
    return batch.advance(plan, [token] * len(plan.parts))


def counts(parts):
    return [part.count for part in parts]


def test_a_prompt_is_computed_in_parts_and_then_its_answer_token_by_token():
    one = batch()
    sequence = one.submit(request(prompt=19, output=3))
    seen = []
    while not sequence.finished:
        plan = one.plan()
        seen.append((counts(plan.prefill), counts(plan.decode)))
        one.advance(plan, [9] * len(plan.parts))
    assert seen == [([8], []), ([8], []), ([3], []), ([], [1]), ([], [1])]
    assert (sequence.output, sequence.finished, one.pages.free) == ([9, 9, 9], "length", 100)


def test_a_request_joins_the_running_batch_and_leaves_it_when_it_is_done():
    one = batch()
    long = one.submit(request(output=6))
    step(one)
    short = one.submit(request(prompt=5, output=2))
    plan = one.plan()
    assert [part.sequence for part in plan.decode] == [long]
    assert [part.sequence for part in plan.prefill] == [short]
    one.advance(plan, [7, 8])
    assert (short.output, long.output) == ([7], [9, 8])
    assert len(step(one)) == 2
    assert short.finished == "length"
    assert [part.sequence for part in one.plan().decode] == [long]


def test_the_input_of_a_step_is_what_is_not_cached():
    one = batch(prefill_tokens=2)
    sequence = one.submit(request(prompt=3, output=3))
    inputs = []
    while not sequence.finished:
        (part,) = one.plan().parts
        inputs.append(list(sequence.tokens(part.count)))
        one.advance(one.plan(), [40 + len(inputs)])
    assert inputs == [[0, 1], [2], [42], [43]]


def test_a_stop_token_ends_an_answer_and_is_part_of_it():
    one = batch()
    sequence = one.submit(request(output=5, stop=frozenset({8})))
    step(one, 9)
    step(one, 8)
    assert (sequence.output, sequence.finished, one.idle) == ([9, 8], "stop", True)


def test_no_more_requests_wait_than_the_maximum():
    one = batch(max_batch=1, max_waiting=2)
    for _ in range(2):
        for _ in range(3 - len(one.waiting) - len(one.running)):
            one.submit(request())
        with pytest.raises(QueueFull):
            one.submit(request())
        one.plan()
    one.cancel(one.running[0])
    one.submit(request())
    with pytest.raises(QueueFull):
        one.submit(request())


def test_a_request_that_can_never_fit_is_refused_and_one_that_just_fits_is_not():
    one = batch(pages=2)
    with pytest.raises(ValueError, match="9 positions do not fit"):
        one.submit(request(prompt=8, output=2))
    one.submit(request(prompt=8, output=1))
    assert len(step(one)) == 1


def test_a_large_request_is_not_overtaken_while_it_waits_for_pages():
    one = batch(pages=3)
    first, large, small = (
        one.submit(request(prompt=n, output=m)) for n, m in ((4, 5), (8, 5), (1, 1))
    )
    step(one)
    assert (one.running, list(one.waiting)) == ([first], [large, small])
    while not first.finished:
        step(one)
    one.plan()
    assert one.running[0] is large


def test_prompts_share_a_step_as_far_as_their_padded_tokens_allow():
    one = batch(prefill_tokens=8)
    for prompt in (2, 4, 3, 1):
        one.submit(request(prompt=prompt))
    assert counts(one.plan().prefill) == [2, 4]


def test_a_cancelled_request_frees_its_pages_wherever_it_is():
    one = batch(max_batch=1)
    running, waiting = one.submit(request()), one.submit(request())
    step(one)
    assert one.pages.free < 100
    one.cancel(waiting)
    one.cancel(running)
    one.cancel(running)
    assert (one.pages.free, one.idle) == (100, True)


def test_tokens_ahead_are_the_remaining_tokens_of_all_requests():
    one = batch(max_batch=1)
    one.submit(request(output=5))
    one.submit(request(output=7))
    step(one)
    assert one.tokens_ahead == 11


REQUESTS = st.builds(request, prompt=st.integers(1, 30), output=st.integers(1, 12))
ACTIONS = st.lists(
    st.one_of(REQUESTS, st.just("step"), st.tuples(st.just("cancel"), st.integers(0, 30))),
    max_size=60,
)


@given(
    ACTIONS,
    st.integers(11, 40),
    st.integers(1, 5),
    st.integers(1, 16),
)
def test_pages_suffice_and_every_sequence_ends(actions, pages, max_batch, prefill_tokens):
    one = batch(pages=pages, max_batch=max_batch, max_waiting=1000, prefill_tokens=prefill_tokens)
    sequences, cancelled = [], set()
    for action in actions:
        if isinstance(action, Request):
            sequences.append(one.submit(action))
        elif action == "step":
            checked_step(one)
        elif sequences:
            chosen = sequences[action[1] % len(sequences)]
            if not chosen.finished:
                cancelled.add(chosen)
            one.cancel(chosen)
    for _ in range(10_000):
        if one.idle:
            break
        checked_step(one)
    assert one.idle
    assert one.pages.free == pages
    for sequence in sequences:
        if sequence not in cancelled:
            assert len(sequence.output) == sequence.request.max_tokens


def checked_step(one):
    plan = one.plan()
    assert bool(plan) == bool(one.running)
    assert len(one.running) <= one.max_batch
    assert sum(counts(plan.prefill)) <= one.prefill_tokens
    held = [page for sequence in one.running for page in sequence.pages]
    assert len(set(held)) == len(held) == one.pages.count - one.pages.free
    for part in plan.parts:
        assert len(part.sequence.tokens(part.count)) == part.count
        written = part.sequence.cached + part.count
        assert pages_for(written, PAGE) <= len(part.sequence.pages)
    # Generating sequences are in every step, which bounds the time between tokens.
    answering = [sequence for sequence in one.running if sequence.answering]
    assert [part.sequence for part in plan.decode] == answering
    one.advance(plan, [1] * len(plan.parts))
