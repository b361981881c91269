# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from gpupack_workloads.inference_server.protocol import Answer, Limits, Refused, parsed

LIMITS = Limits(vocabulary=100, max_length=32)


def ask(**body):
    return parsed(json.dumps(body).encode(), LIMITS)[1]


def test_a_prompt_is_numbers_or_their_text():
    assert ask(prompt=[1, 2, 99]).prompt == ask(prompt=" 1 2\n99").prompt == (1, 2, 99)


def test_defaults_are_openais():
    request = ask(prompt=[1])
    assert (request.max_tokens, request.temperature, request.stop) == (16, 1.0, frozenset())
    assert ask(prompt=[1], max_tokens=None, temperature=None, n=None).max_tokens == 16


def test_a_seed_is_kept_and_without_one_each_request_has_its_own():
    assert ask(prompt=[1], seed=7).seed == 7
    assert 0 <= ask(prompt=[1], seed=-1).seed < 2**63
    assert ask(prompt=[1]).seed != ask(prompt=[1]).seed


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "no JSON"),
        (b"\xff", 400, "no JSON"),
        (b"[]", 400, "cannot be served"),
        (b"{}", 400, "missing required field `prompt`"),
        ({"prompt": []}, 400, "the prompt is empty"),
        ({"prompt": "  "}, 400, "the prompt is empty"),
        ({"prompt": "hello"}, 400, "numbers of tokens"),
        ({"prompt": "1" * 5000}, 400, "numbers of tokens"),
        ({"prompt": "\u0661"}, 400, "numbers of tokens"),
        ({"prompt": [-1]}, 400, ">= 0"),
        ({"prompt": [100]}, 400, "token 100 is not among the 100"),
        ({"prompt": [1.5]}, 400, "Expected `int`"),
        ({"prompt": [[1], [2]]}, 400, "Expected `int`"),
        ({"prompt": [1], "max_tokens": 0}, 400, ">= 1"),
        ({"prompt": [1] * 17}, 400, "17 tokens and max_tokens of 16 are more than the 32"),
        ({"prompt": [1], "max_tokens": 10**30}, 400, "more than the 32"),
        ({"prompt": [1], "temperature": 2.1}, 400, "<= 2"),
        ({"prompt": [1], "temperature": -0.1}, 400, ">= 0"),
        ({"prompt": [1], "n": 2}, 400, "n can only be 1"),
        ({"prompt": [1], "echo": True}, 400, "echo can only be false"),
        ({"prompt": [1], "top_p": 0.5}, 400, "unknown field `top_p`"),
        ({"prompt": [1], "model": "gpt"}, 404, "no model 'gpt'"),
        ({"prompt": [1], "stop_token_ids": [100]}, 400, "token 100"),
        ({"prompt": [1], "stop_token_ids": [1] * 65}, 400, "more than 64"),
    ],
)  # fmt: skip
def test_an_unsupported_request_is_refused_with_the_reason(body, status, message):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Refused) as refused:
        parsed(text, LIMITS)
    assert (refused.value.status, message in refused.value.message) == (status, True), refused.value


def test_an_answer_is_written_as_openai_writes_it():
    answer = Answer(name="cmpl-1", created=5, prompt_tokens=3)
    whole = answer.whole([4, 5], "length")
    assert whole["choices"][0]["text"] == " 4 5"
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    piece = answer.piece([6], None)
    assert piece.startswith(b"data: {")
    assert piece.endswith(b"}\n\n")
    assert json.loads(piece[6:])["choices"][0]["token_ids"] == [6]
