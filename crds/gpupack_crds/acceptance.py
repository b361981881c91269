# SPDX-License-Identifier: Apache-2.0
"""How GPUs are tried before they are used: the chart's value `acceptance`.

Operator and extender read the same: what the one wants tried, the other keeps from others' work.
"""

from typing import Annotated

import msgspec

from gpupack_crds import names
from gpupack_crds.errors import AcceptanceInvalid
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.kinds import GpuNode
from gpupack_crds.wire import wire_name


class Acceptance(
    msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True
):
    """Which GPUs are tried, and how.

    Attributes:
        models: of which models, as people write them; empty: of all.
        new_gpus: those too that nobody has measured.
        seconds: within which a result must be there.
        args: of the burn-in.
    """

    enabled: bool = True
    models: tuple[str, ...] = ()
    new_gpus: bool = False
    seconds: Annotated[int, msgspec.Meta(ge=1)] = 900
    args: tuple[str, ...] = ()

    def tries(self, device: GpuDevice) -> bool:
        """Whether a burn-in can say something of it: a GPU that gpupack hands out whole."""
        # numpy comes with it.
        from gpupack_core import matches_model  # noqa: PLC0415

        if device.mig_parent or device.resource != names.GPU:
            return False
        return not self.models or any(matches_model(each, device.model) for each in self.models)

    def new(self, node: GpuNode) -> tuple[GpuDevice, ...]:
        """GPUs of a node that are to be tried before they get any work, and are not yet."""
        if not self.new_gpus or node.status.mode == "observed":
            return ()
        known = {each.gpu for each in node.spec.quarantine}
        known |= {each.gpu for each in node.status.measured}
        devices = node.status.devices
        return tuple(each for each in devices if each.uuid not in known and self.tries(each))


def parse_acceptance(text: str) -> Acceptance | None:
    """Read it as the chart writes it; None: GPUs are not tried.

    Raises:
        AcceptanceInvalid: the message says what is wrong.
    """
    try:
        found = msgspec.json.decode(text, type=Acceptance)
    except msgspec.MsgspecError as error:
        raise AcceptanceInvalid(f"acceptance cannot be read: {error}") from error
    if empty := [each for each in found.models if not each.strip()]:
        raise AcceptanceInvalid(f"acceptance.models: {empty[0]!r} names no model")
    return found if found.enabled else None
