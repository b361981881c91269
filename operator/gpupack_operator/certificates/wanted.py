# SPDX-License-Identifier: Apache-2.0
"""The certificates that are wanted, as the chart lists them."""

import datetime as dt
from typing import Annotated

import msgspec


class Wanted(msgspec.Struct, frozen=True, rename="camel"):
    """A certificate.

    Attributes:
        secret: name of the Secret that holds it.
        service: name of the Service.
        host: by which callers know the Service, such as gpupack-api.NAMESPACE.svc.
        validity_days: for which it is good.
    """

    secret: Annotated[str, msgspec.Meta(min_length=1)]
    service: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    host: Annotated[str, msgspec.Meta(min_length=1)]
    validity_days: Annotated[int, msgspec.Meta(ge=1, le=36500)]

    @property
    def validity(self) -> dt.timedelta:
        """For how long it is good."""
        return dt.timedelta(days=self.validity_days)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every name by which it is reached; the last by `kubectl port-forward`."""
        return self.host, f"{self.host}.cluster.local", "localhost"


def parse_wanted(text: str) -> tuple[Wanted, ...]:
    """Read the list.

    Raises:
        ValueError: the text says where it is wrong.
    """
    return msgspec.json.decode(text, type=tuple[Wanted, ...])
