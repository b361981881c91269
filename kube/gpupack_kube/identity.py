# SPDX-License-Identifier: Apache-2.0
"""Who a caller of the API server is, as far as another server that asks it wants to know."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """By a token, a client certificate, both or neither.

    Attributes:
        authorization: the header; empty: there is no token.
        certificate: path of a PEM file; empty: there is none.
        key: path of its private key.
        namespace: where the caller works if he names no other.
    """

    authorization: str = dataclasses.field(default="", repr=False)
    certificate: str = ""
    key: str = ""
    namespace: str = "default"
