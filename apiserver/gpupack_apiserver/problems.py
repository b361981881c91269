# SPDX-License-Identifier: Apache-2.0
"""Errors as answers: application/problem+json (RFC 9457), with field, value and fix."""

import http
import logging
import re
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.openapi import ResponseSpec
from litestar.routes import HTTPRoute

from gpupack.errors import InventoryUnavailable, LedgerUnusable
from gpupack_apiserver.errors import CallInvalid, ClusterNeeded, ConfigInvalid, Missing, TokenNeeded
from gpupack_apiserver.parameter_types import (
    BODY,
    MAX_CHARACTERS,
    choices_of,
    fields_of,
    header_of,
    in_words,
    value_at,
)
from gpupack_apiserver.patterns import IN_WORDS
from gpupack_httpserver.connections import certificate_of
from gpupack_httpserver.errors import Denied
from gpupack_kubeclient.errors import KubeError, Refused
from gpupack_restapi import PREFIX
from gpupack_restapi.problem import Problem
from gpupack_scheduler.errors import NotReady

log = logging.getLogger(__name__)

PROBLEM_JSON: Final = "application/problem+json"

Call = Request[Any, Any, Any]


def _answer(problem: Problem) -> Response[bytes]:
    headers = {"Retry-After": "1"} if problem.status in _RETRYABLE else {}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=headers,
    )


_RETRYABLE: Final = frozenset(
    {http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE}
)


def _problem(status: int, detail: str, **more: str) -> Response[bytes]:
    code = http.HTTPStatus(status)
    return _answer(Problem(title=code.phrase, status=code.value, detail=detail, **more))


def answer_invalid_call(_: Call, error: CallInvalid) -> Response[bytes]:
    """Answer a call with an invalid field."""
    return _problem(400, str(error), field=error.field, value=error.value, fix=error.fix)


def answer_invalid_config(_: Call, error: ConfigInvalid) -> Response[bytes]:
    """Answer an invalid configuration file."""
    return _problem(422, str(error), field=error.field, value=error.value, fix=error.fix)


def answer_missing(_: Call, error: Missing) -> Response[bytes]:
    """Answer a missing object."""
    return _problem(404, str(error))


def answer_cluster_needed(_: Call, error: ClusterNeeded) -> Response[bytes]:
    """Answer a call that needs a cluster."""
    return _problem(501, str(error))


def answer_denied(call: Call, error: Denied) -> Response[bytes]:
    """Answer a caller without permission."""
    answer = _problem(error.status, str(error))
    if error.status == http.HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
        if certificate_of(call.scope):
            # The certificate of an open connection does not change.
            answer.headers["Connection"] = "close"
    return answer


def answer_token_needed(_: Call, error: TokenNeeded) -> Response[bytes]:
    """Answer a caller with only a certificate."""
    fix = "send `Authorization: Bearer TOKEN`; `kubectl create token ACCOUNT` prints one"
    answer = _problem(401, str(error), field="Authorization", fix=fix)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def answer_refused(_: Call, error: Refused) -> Response[bytes]:
    """Answer a refusal of the API server for the caller's own token."""
    status = error.status if error.status in _CALLER_ERRORS else http.HTTPStatus.SERVICE_UNAVAILABLE
    return _problem(status, error.said or str(error), **_field(error))


def _field(error: Refused) -> dict[str, str]:
    """Return the first wrong field, as the API server names it."""
    for cause in error.causes:
        found = _INVALID.fullmatch(cause.message)
        value, fix = found.groups() if found else ("", cause.message)
        value = "" if value == _OBJECT else value[:128].strip('"')
        return {"field": cause.field, "value": value, "fix": fix}
    unknown = _UNKNOWN_TO_SERVER.search(error.said)
    if unknown is None:
        return {}
    return {"field": unknown[1], "fix": "there is no such field; remove or correct it"}


_OBJECT: Final = '"object"'
"""The API server's value for a rule about several fields."""

_INVALID: Final = re.compile(r"(?:Invalid|Unsupported) value: (.*?): (.*)", re.DOTALL)
_UNKNOWN_TO_SERVER: Final = re.compile(r'unknown field "([^"]{1,128})"')

_CALLER_ERRORS: Final = frozenset({400, 403, 404, 409, 422, 429})


def answer_not_ready(_: Call, error: Exception) -> Response[bytes]:
    """Answer while the state is not known."""
    return _problem(503, str(error))


def answer_invalid_parameter(call: Call, error: ValidationException) -> Response[bytes]:
    """Answer a parameter or body that violates the schema, with the first error."""
    found = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    field = str(found.get("key", "")).removesuffix(_ANY_VALUE)
    text = str(found.get("message", error.detail))
    if unknown := _UNKNOWN_FIELD.search(text):
        known = ", ".join(fields_of(call, field))
        fix = f"remove or correct it; the fields are {known}" if known else text
        return _problem(400, text, field=unknown[1], fix=fix)
    if text == _NO_BODY:
        fix = "send a JSON object, {} where every field is optional"
        return _problem(400, f"the body is empty: {fix}", field="body", fix=fix)
    if lacking := _MISSING_FIELD.search(text):
        field = lacking[1] if field == BODY else f"{field}.{lacking[1]}"
        return _problem(400, f"{field} is missing: add it", field=field, fix="add it")
    value = value_at(call, field, in_body=found.get("source") == "body")
    if words := _pattern_in_words(text):
        fix = f"write {words}"
        return _problem(400, f"{field} is {value!r}: {fix}", field=field, value=value, fix=fix)
    choices, words = ", ".join(choices_of(call, field)), in_words(text)
    fix = f"use one of {choices}" if choices else f"write {words}" if words else text
    if found.get("source") == "header":
        field = header_of(call, field)
    name = "the body" if field == BODY else field
    is_given = value or field in call.query_params
    detail = f"{name} is {value!r}: {fix}" if is_given else f"{name}: {fix}"
    return _problem(400, detail, field=field, value=value, fix=fix)


def _pattern_in_words(text: str) -> str:
    """Return the meaning of a violated pattern in words; empty: the error is another one."""
    found = _PATTERN.search(text)
    return IN_WORDS.get(found[1].replace("\\\\", "\\"), "") if found else ""


_ANY_VALUE: Final = "[...]"
"""The place of a value in a mapping, whose key is not reported."""

_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]{1,64})`")
_PATTERN: Final = re.compile(r"matching regex '(.*?)'(?: - at |$)", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r"missing required field `([^`]{1,64})`")
_NO_BODY: Final = repr(BODY)
"""Litestar's text for a call without the body that it needs."""


def answer_unknown_path(call: Call, _: NotFoundException) -> Response[bytes]:
    """Answer a path that no call has."""
    path = call.url.path[:MAX_CHARACTERS]
    fix = f"there is no such call; {PREFIX}/openapi/openapi.json lists all"
    return _problem(404, f"path is {path!r}: {fix}", field="path", value=path, fix=fix)


def answer_unknown_method(call: Call, _: MethodNotAllowedException) -> Response[bytes]:
    """Answer a method that no call of the path has."""
    method, allowed = call.method, ", ".join(sorted(methods(call)))
    fix = f"{call.url.path[:MAX_CHARACTERS]} has {allowed}"
    answer = _problem(405, f"method is {method!r}: {fix}", field="method", value=method, fix=fix)
    answer.headers["Allow"] = allowed
    return answer


def answer_http_error(_: Call, error: HTTPException) -> Response[bytes]:
    """Answer an unknown media type, or another error of HTTP."""
    answer = _problem(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer


def methods(call: Call) -> set[str]:
    """Return the methods of this path."""
    path = call.url.path.rstrip("/")
    routes = (route for route in call.app.routes if isinstance(route, HTTPRoute))
    return {method for route in routes if _is_at(route, path) for method in route.methods}


def _is_at(route: HTTPRoute, path: str) -> bool:
    wanted, given = route.path_components, path.strip("/").split("/")
    return len(wanted) == len(given) and all(
        not isinstance(part, str) or part == name for part, name in zip(wanted, given, strict=True)
    )


def answer_internal_error(call: Call, error: Exception) -> Response[bytes]:
    """Answer an internal error: details are only in the log."""
    log.error("%s %s", call.method, call.url.path, exc_info=error)
    return _problem(500, "internal error; see the log of gpupack-api")


def _problem_spec(description: str) -> ResponseSpec:
    return ResponseSpec(
        Problem, generate_examples=False, description=description, media_type=PROBLEM_JSON
    )


STALE: Final = {503: _problem_spec("The cluster's state is not known now.")}
WRONG: Final = {400: _problem_spec("A field or parameter is not valid, or is unknown.")}
REFUSALS: Final = (
    STALE
    | WRONG
    | {
        401: _problem_spec("The token or certificate is not valid, or a token is needed."),
        403: _problem_spec("The caller lacks a permission."),
        429: _problem_spec("The caller sends too many requests."),
    }
)
WRITES: Final = REFUSALS | {
    409: _problem_spec("Another client changed the object at the same time."),
    422: _problem_spec("The API server refuses the object."),
}
UNUSABLE: Final = {422: _problem_spec("The file is not valid; the old configuration stays.")}
MISSING: Final = {404: _problem_spec("There is no such object.")}
"""Error answers that calls have in addition to their own."""

HANDLERS: Final[dict[int | type[Exception], Any]] = {
    CallInvalid: answer_invalid_call,
    ConfigInvalid: answer_invalid_config,
    Missing: answer_missing,
    ClusterNeeded: answer_cluster_needed,
    Denied: answer_denied,
    TokenNeeded: answer_token_needed,
    NotReady: answer_not_ready,
    Refused: answer_refused,
    KubeError: answer_not_ready,
    LedgerUnusable: answer_not_ready,
    InventoryUnavailable: answer_not_ready,
    ValidationException: answer_invalid_parameter,
    NotFoundException: answer_unknown_path,
    MethodNotAllowedException: answer_unknown_method,
    HTTPException: answer_http_error,
    Exception: answer_internal_error,
}
