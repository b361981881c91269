# SPDX-License-Identifier: Apache-2.0
"""Errors of serving.

ServingError
├── Denied        the caller is unknown, lacks the permission, or was unknown too often
└── TaskEnded     a server or an essential task ended by itself; the process ends non-zero
"""

import http


class ServingError(Exception):
    """Root of all errors of serving."""


class Denied(ServingError):
    """The caller is unknown, lacks the permission, or was unknown too often.

    Attributes:
        status: 401, 403 or 429.
    """

    def __init__(self, message: str, *, status: http.HTTPStatus) -> None:
        super().__init__(message)
        self.status = status


class TaskEnded(ServingError):
    """A server or an essential task ended by itself."""
