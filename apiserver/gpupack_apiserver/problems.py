# SPDX-License-Identifier: Apache-2.0
"""Errors as answers: application/problem+json (RFC 9457), with field, value and fix."""

import http
import logging
import re
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi import ResponseSpec
from litestar.routes import HTTPRoute

from gpupack.errors import InventoryUnavailable, LedgerUnusable
from gpupack_apiserver.errors import CallWrong, ClusterNeeded, ConfigInvalid, Missing, TokenNeeded
from gpupack_apiserver.expectations import BODY, choices_of, fields_of, in_words, value_at
from gpupack_apiserver.patterns import IN_WORDS
from gpupack_httpserver.connections import certificate_of
from gpupack_httpserver.errors import Denied
from gpupack_kubeclient.errors import KubeError, Refused
from gpupack_scheduler.errors import NotReady

log = logging.getLogger(__name__)

PROBLEM_JSON: Final = "application/problem+json"

Call = Request[Any, Any, Any]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem: what was wrong, and what to do."""

    title: str
    status: int
    detail: str
    field: str = ""
    value: str = ""
    fix: str = ""


def _answer(problem: Problem) -> Response[bytes]:
    headers = {"Retry-After": "1"} if problem.status in _LATER else {}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=headers,
    )


_LATER: Final = frozenset({http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE})


def _problem(status: int, detail: str, **more: str) -> Response[bytes]:
    code = http.HTTPStatus(status)
    return _answer(Problem(title=code.phrase, status=code.value, detail=detail, **more))


def wrong(_: Call, error: CallWrong) -> Response[bytes]:
    """Answer a wrong field."""
    return _problem(400, str(error), field=error.field, value=error.value, fix=error.fix)


def unusable(_: Call, error: ConfigInvalid) -> Response[bytes]:
    """Answer a wrong configuration file."""
    return _problem(422, str(error), field=error.field, value=error.value, fix=error.fix)


def missing(_: Call, error: Missing) -> Response[bytes]:
    """Answer a missing object."""
    return _problem(404, str(error))


def cluster_needed(_: Call, error: ClusterNeeded) -> Response[bytes]:
    """Answer a call that needs a cluster."""
    return _problem(501, str(error))


def denied(call: Call, error: Denied) -> Response[bytes]:
    """Answer a caller without permission."""
    answer = _problem(error.status, str(error))
    if error.status == http.HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
        if certificate_of(call.scope):
            # The certificate of an open connection does not change.
            answer.headers["Connection"] = "close"
    return answer


def token_needed(_: Call, error: TokenNeeded) -> Response[bytes]:
    """Answer a caller with only a certificate."""
    fix = "send `Authorization: Bearer TOKEN`; `kubectl create token ACCOUNT` prints one"
    answer = _problem(401, str(error), field="Authorization", fix=fix)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def judged(_: Call, error: Refused) -> Response[bytes]:
    """Answer what the API server refused for the caller's own token."""
    status = error.status if error.status in _CALLERS else http.HTTPStatus.SERVICE_UNAVAILABLE
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
    return {"field": unknown[1], "fix": "there is no such field; remove it, or spell it right"}


_OBJECT: Final = '"object"'
"""The API server's value for a rule about several fields."""

_INVALID: Final = re.compile(r"(?:Invalid|Unsupported) value: (.*?): (.*)", re.DOTALL)
_UNKNOWN_TO_SERVER: Final = re.compile(r'unknown field "([^"]{1,128})"')

_CALLERS: Final = frozenset({400, 403, 404, 409, 422, 429})


def not_ready(_: Call, error: Exception) -> Response[bytes]:
    """Answer while the state is not known."""
    return _problem(503, str(error))


def invalid(call: Call, error: ValidationException) -> Response[bytes]:
    """Answer a parameter or body that violates the schema, with the first error."""
    found = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    field, text = str(found.get("key", "")), str(found.get("message", error.detail))
    if unknown := _UNKNOWN_FIELD.search(text):
        known = ", ".join(fields_of(call, field))
        fix = f"remove it, or spell it right; there are {known}" if known else text
        return _problem(400, text, field=unknown[1], fix=fix)
    if text == _NO_BODY:
        fix = "send a JSON object, {} where every field is optional"
        return _problem(400, f"the body is empty: {fix}", field="body", fix=fix)
    if lacking := _MISSING_FIELD.search(text):
        field = lacking[1] if field == BODY else f"{field}.{lacking[1]}"
        return _problem(400, f"{field} is missing: add it", field=field, fix="add it")
    value = value_at(call, field, in_body=found.get("source") == "body")
    if words := _pattern_in_words(text):
        return _problem(
            400, f"{field} is {value!r}: write {words}", field=field, value=value, fix=words
        )
    choices, words = ", ".join(choices_of(call, field)), in_words(text)
    fix = f"name one of {choices}" if choices else f"write {words}" if words else text
    name = "the body" if field == BODY else field
    detail = f"{name} is {value!r}: {fix}" if value else f"{name}: {fix}"
    return _problem(400, detail, field=field, value=value, fix=fix)


def _pattern_in_words(text: str) -> str:
    """Return the meaning of a violated pattern in words; empty: the error is another one."""
    found = _PATTERN.search(text)
    return IN_WORDS.get(found[1], "") if found else ""


_UNKNOWN_FIELD: Final = re.compile(r"unknown field `([^`]{1,64})`")
_PATTERN: Final = re.compile(r"matching regex '(.*?)'(?: - at |$)", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r"missing required field `([^`]{1,64})`")
_NO_BODY: Final = repr(BODY)
"""Litestar's text for a call without the body that it needs."""


def refused(call: Call, error: HTTPException) -> Response[bytes]:
    """Answer an unknown path, method or media type."""
    answer = _problem(error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    if error.status_code == http.HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(sorted(methods(call)))
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


def failed(call: Call, error: Exception) -> Response[bytes]:
    """Answer an internal error: details are only in the log."""
    log.error("%s %s", call.method, call.url.path, exc_info=error)
    return _problem(500, "gpupack-api failed; its log says more")


def _told(description: str) -> ResponseSpec:
    return ResponseSpec(
        Problem, generate_examples=False, description=description, media_type=PROBLEM_JSON
    )


STALE: Final = {503: _told("The cluster's state is not known now.")}
WRONG: Final = {400: _told("A field or parameter is wrong, or is none of this call.")}
REFUSALS: Final = (
    STALE
    | WRONG
    | {
        401: _told("The API server does not know the token or certificate, or a token is needed."),
        403: _told("The caller lacks the right."),
        429: _told("The caller has called too often."),
    }
)
WRITES: Final = REFUSALS | {
    409: _told("Somebody else changed it meanwhile."),
    422: _told("The API server does not take it."),
}
UNUSABLE: Final = {422: _told("The configuration file cannot be used; the old one counts.")}
MISSING: Final = {404: _told("There is no such object.")}
"""Error answers that calls have in addition to their own."""

HANDLERS: Final[dict[int | type[Exception], Any]] = {
    CallWrong: wrong,
    ConfigInvalid: unusable,
    Missing: missing,
    ClusterNeeded: cluster_needed,
    Denied: denied,
    TokenNeeded: token_needed,
    NotReady: not_ready,
    Refused: judged,
    KubeError: not_ready,
    LedgerUnusable: not_ready,
    InventoryUnavailable: not_ready,
    ValidationException: invalid,
    HTTPException: refused,
    Exception: failed,
}
