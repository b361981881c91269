# SPDX-License-Identifier: Apache-2.0
"""The body of a call, divided once into kube-scheduler's node names and the rest.

There may be twenty thousand names, and a name costs little memory. So the limit is for the rest,
which in a call of kube-scheduler is the pod.
"""

import dataclasses
from typing import Final, Self

import msgspec

from gpupack_extender.errors import CallTooLarge
from gpupack_extender.wire import NodeNames
from gpupack_placement import NodeName

SCANNED_BYTES: Final = 2 << 20
"""More than the largest object that etcd accepts. Parsed, JSON can take thirty times its size."""

_NAMES: Final = b',"NodeNames":['
_END: Final = b"]}"


@dataclasses.dataclass(frozen=True, slots=True)
class CallBody:
    """JSON of a call that is not decoded yet.

    Attributes:
        whole: the body.
        without_names: the body without the names in kube-scheduler's NodeNames, which come last; a
            body of another form is the same as `whole`.
    """

    whole: bytes
    without_names: bytes

    @classmethod
    def of(cls, whole: bytes) -> Self:
        """Divide a body.

        The removed part contains no colon, so no key. If the rest is JSON, the removed part was in
        an array of the outermost object: the brackets that end the rest are those that ended the
        body.
        """
        start = whole.find(_NAMES) + len(_NAMES)
        is_other = start < len(_NAMES) or not whole.endswith(_END) or whole.find(b":", start) >= 0
        return cls(whole, whole if is_other else whole[:start] + _END)

    @property
    def size(self) -> int:
        """Return the size in bytes without names: in a call of kube-scheduler, that of the pod."""
        return len(self.without_names)

    def require_bounded(self) -> None:
        """Refuse a body that would take too much memory when it is decoded.

        Raises:
            CallTooLarge: without names it has more than SCANNED_BYTES.
        """
        if self.size > SCANNED_BYTES:
            raise CallTooLarge(
                f"apart from NodeNames the body has {self.size} bytes; at most {SCANNED_BYTES} are "
                "read"
            )

    def node_names(self) -> list[NodeName] | None:
        """Return only the names, without decoding the rest; None: the body has another form."""
        if not self.without_names.endswith(_NAMES + _END):
            return None
        start = self.size - len(_END) - 1
        try:
            return msgspec.json.decode(self.whole[start:-1], type=NodeNames)
        except msgspec.MsgspecError:
            return None
