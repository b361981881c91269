# SPDX-License-Identifier: Apache-2.0
"""Errors of the extender, named by what the caller is told.

ExtenderError
└── CallInvalid          the HTTP call is malformed; answered 4xx, nothing changed
    ├── CallTooLarge     413
    └── MediaTypeInvalid 415

What cannot be read, served or decided on is an error of gpupack_scheduling, and who may not call
one of gpupack_serving.
"""

import http

from gpupack_scheduling.errors import BindRefused


class ExtenderError(Exception):
    """Root of all errors of the extender."""


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
    """A worker is not bound yet, as others of its gang have not come to be bound."""
