# SPDX-License-Identifier: Apache-2.0
"""A place in the list of waiting jobs, which stays valid while jobs come and go."""

import datetime as dt
from typing import Final, NamedTuple

from gpupack_apiserver.errors import invalid_cursor
from gpupack_restapi.jobs import QueueRow
from gpupack_scheduler.queueing.pending.request import POD_NAME

NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


class QueueCursor(NamedTuple):
    """The order of waiting jobs: highest priority first, then oldest, then by name."""

    descent: int
    created: dt.datetime
    namespace: str
    name: str

    @classmethod
    def of(cls, row: QueueRow) -> "QueueCursor":
        """Return the place of a job or pod; no GPUJob has the form of a pod's name here."""
        name = f"{POD_NAME}{row.name}" if row.kind == "Pod" else row.name
        return cls(-row.priority, row.created or NEVER, row.namespace, name)

    @classmethod
    def read(cls, text: str) -> "QueueCursor":
        """Parse the form of `text`.

        Raises:
            CallInvalid: it is not a cursor.
        """
        try:
            priority, created, namespace, name = text.split("/")
            moment = dt.datetime.fromisoformat(created)
            return cls(
                -int(priority), moment.replace(tzinfo=moment.tzinfo or dt.UTC), namespace, name
            )
        except ValueError as error:
            raise invalid_cursor(text) from error

    @property
    def text(self) -> str:
        """The form in `next` and `after`: PRIORITY/CREATED/NAMESPACE/NAME."""
        created = self.created.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        return f"{-self.descent}/{created}/{self.namespace}/{self.name}"
