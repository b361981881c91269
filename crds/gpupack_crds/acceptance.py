# SPDX-License-Identifier: Apache-2.0
"""Acceptance tests of GPUs before they are used: the chart's value `acceptance`.

Operator and extender read the same value: the operator tests GPUs, and the extender keeps these
GPUs from other jobs.
"""

from typing import Annotated

import msgspec

from gpupack_crds import names
from gpupack_crds.errors import AcceptanceInvalid
from gpupack_crds.gpunode import GpuDevice
from gpupack_crds.kinds import GpuNode
from gpupack_crds.wire import wire_name
from gpupack_devices.models import matches_model


class Acceptance(
    msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, forbid_unknown_fields=True
):
    """Settings of acceptance tests: which GPUs are tested, and how.

    Attributes:
        models: models to test, in the form that users write; empty: all.
        new_gpus: test GPUs that have no measurement yet, too.
        timeout_seconds: time limit for a result.
        args: arguments of the burn-in.
    """

    enabled: bool = True
    models: tuple[str, ...] = ()
    new_gpus: bool = False
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1)] = 900
    args: tuple[str, ...] = ()

    def tries(self, device: GpuDevice) -> bool:
        """Return whether a burn-in can test the device: a GPU that gpupack hands out whole."""
        if device.mig_parent or device.resource != names.GPU:
            return False
        return not self.models or any(matches_model(each, device.model) for each in self.models)

    def new(self, node: GpuNode) -> tuple[GpuDevice, ...]:
        """Return the GPUs of a node that need a test before any work and have had none."""
        if not self.new_gpus or node.status.mode == "observed":
            return ()
        known = {each.gpu for each in node.spec.quarantine}
        known |= {each.gpu for each in node.status.measured}
        devices = node.status.devices
        return tuple(each for each in devices if each.uuid not in known and self.tries(each))


def parse_acceptance(text: str) -> Acceptance | None:
    """Parse the value as the chart writes it; None: GPUs are not tested.

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
