# SPDX-License-Identifier: Apache-2.0
"""The API's JSON: OpenAI's completions, as far as a model of a made-up language can serve them.

A token's text is its number: `"12 7 99"` and `[12, 7, 99]` are the same prompt, and an answer's
text is ` 31 8`. Each choice has `token_ids` as well. What cannot be honoured is refused by its
name, and not passed over.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from gpupack_workloads.inference_server.batch import Request
from gpupack_workloads.inference_server.options import MODEL

SEEDS = 2**63
MAX_STOPS = 64
TOKEN_TEXT = re.compile("[0-9]{1,18}")
Token = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(eq=False)
class Refused(Exception):
    """Error: a call is refused.

    Attributes:
        status: HTTP status.
        message: text for people.
        param: which field is at fault.
        code: for programs.
        headers: headers of the answer.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Whether a stream ends with the count of its tokens."""

    include_usage: bool = False


class Completion(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A caller's request. `user` is accepted and ignored; `n` and `best_of` can only be 1."""

    prompt: str | list[Token]
    model: str = MODEL
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = 16
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = 1.0
    seed: int | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop_token_ids: list[Token] | None = None
    n: int | None = 1
    best_of: int | None = 1
    echo: bool | None = False
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request."""

    vocabulary: int
    max_length: int


def parsed(body: bytes, limits: Limits) -> tuple[Completion, Request]:
    """Return the call's content, and the request to generate.

    Raises:
        Refused: it is no such JSON, or cannot be served.
    """
    try:
        completion = msgspec.json.decode(body, type=Completion)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the body cannot be served: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from error
    return completion, requested(completion, limits)


def requested(completion: Completion, limits: Limits) -> Request:
    """Return what to generate.

    Raises:
        Refused: a field is beyond what this server does.
    """
    if completion.model != MODEL:
        raise Refused(
            404,
            f"there is no model {completion.model!r}, only {MODEL!r}",
            "model",
            "model_not_found",
        )
    for name, only in (("n", 1), ("best_of", 1), ("echo", False)):
        if getattr(completion, name) not in {only, None}:
            raise Refused(400, f"{name} can only be {str(only).lower()} here", name)
    prompt = prompt_of(completion.prompt)
    max_tokens = 16 if completion.max_tokens is None else completion.max_tokens
    stops = completion.stop_token_ids or []
    if len(stops) > MAX_STOPS:
        raise Refused(400, f"more than {MAX_STOPS} stop_token_ids", "stop_token_ids")
    require_known(prompt, "prompt", limits)
    require_known(stops, "stop_token_ids", limits)
    if len(prompt) + max_tokens > limits.max_length:
        raise Refused(
            400,
            f"a prompt of {len(prompt)} tokens and max_tokens of {max_tokens} are more than the"
            f" {limits.max_length} tokens of the longest sequence",
            "max_tokens",
            "context_length_exceeded",
        )
    return Request(
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        temperature=1.0 if completion.temperature is None else completion.temperature,
        seed=secrets.randbelow(SEEDS) if completion.seed is None else completion.seed % SEEDS,
        stop=frozenset(stops),
    )


def prompt_of(prompt: str | list[int]) -> list[int]:
    """Return a prompt's tokens.

    Raises:
        Refused: it has none, or its text is not numbers.
    """
    if isinstance(prompt, str):
        words = prompt.split()
        if not all(TOKEN_TEXT.fullmatch(word) for word in words):
            raise Refused(
                400, "a prompt is numbers of tokens: [12, 7, 99], or as text '12 7 99'", "prompt"
            )
        prompt = [int(word) for word in words]
    if not prompt:
        raise Refused(400, "the prompt is empty", "prompt")
    return prompt


def require_known(tokens: list[int], name: str, limits: Limits) -> None:
    """Refuse numbers that are no token's."""
    if tokens and max(tokens) >= limits.vocabulary:
        raise Refused(
            400, f"token {max(tokens)} is not among the {limits.vocabulary} of the vocabulary", name
        )


def refusal(refused: Refused) -> Response:
    """Return the answer that says why."""
    kinds = {401: "authentication_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
    error = {
        "message": refused.message,
        "type": kinds.get(refused.status, "invalid_request_error"),
        "param": refused.param,
        "code": refused.code,
    }
    return answered({"error": error}, refused.status, refused.headers)


def answered(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON as an answer."""
    return Response(
        msgspec.json.encode(content), status, dict(headers or {}), media_type="application/json"
    )


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Writes an answer, whole or piece by piece."""

    name: str
    created: int
    prompt_tokens: int

    def whole(self, tokens: list[int], finished: str) -> dict[str, Any]:
        """Return all of it."""
        return self._with([self._choice(tokens, finished)], usage=self._usage(len(tokens)))

    def piece(self, tokens: list[int], finished: str | None) -> bytes:
        """Return new tokens as an event of the stream."""
        return event(self._with([self._choice(tokens, finished)]))

    def usage(self, count: int) -> bytes:
        """Return the number of tokens as an event of the stream."""
        return event(self._with([], usage=self._usage(count)))

    def _with(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "text_completion",
            "created": self.created,
            "model": MODEL,
            "choices": choices,
        } | more

    def _choice(self, tokens: list[int], finished: str | None) -> dict[str, Any]:
        return {
            "index": 0,
            "text": "".join(f" {token}" for token in tokens),
            "token_ids": tokens,
            "logprobs": None,
            "finish_reason": finished,
        }

    def _usage(self, count: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": self.prompt_tokens + count,
        }


DONE = b"data: [DONE]\n\n"


def event(content: Any) -> bytes:
    """Return a server-sent event."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
