# SPDX-License-Identifier: Apache-2.0
"""Errors of the extender, named as in answers to callers.

ExtenderError
└── CallInvalid          the HTTP call is malformed; answered 4xx, nothing changed
    ├── CallTooLarge     413
    └── MediaTypeInvalid 415

Requests that cannot be read, served or decided are errors of gpupack_scheduler, and denied access
is one of gpupack_httpserver.
"""

import http

from gpupack_scheduler.errors import BindRefused


class ExtenderError(Exception):
    """Base class of the extender's errors."""


class CallInvalid(ExtenderError):
    """The HTTP call is malformed; nothing has changed."""

    status = http.HTTPStatus.BAD_REQUEST


class CallTooLarge(CallInvalid):
    """The body is larger than any real call."""

    status = http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class MediaTypeInvalid(CallInvalid):
    """The body is not sent as plain JSON."""

    status = http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class GangIncomplete(BindRefused):
    """A worker is not bound yet, because other workers of its gang have not arrived at bind."""
