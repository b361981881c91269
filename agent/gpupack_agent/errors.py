# SPDX-License-Identifier: Apache-2.0
"""Errors of the agent.

AgentError
├── InventoryUnavailable    the GPUs of this node cannot be listed
│   └── DriverHangs         a call to their driver did not come back
├── LayoutInvalid           a GPU cannot be cut into these MIG slices
├── KubeletUnavailable      the kubelet gave no answer; asking again may help
├── KubeletTooOld           the kubelet lacks a call that we need
├── CdiUnwritable           a CDI spec could not be written or removed
├── Unidentified            no pod, or more than one, fits some tickets at this moment
├── StartRefused            a container must not start now; the text goes into the pod's status
└── Abandoned               the kubelet gave up a call; nothing was written, nobody is told

Settings that are wrong raise gpupack_kube's SettingsInvalid.
"""


class AgentError(Exception):
    """Root of the agent's errors.

    Attributes:
        pods: whom it is about, for the log. The text may reach whoever waits for a container, and
            pods of others are none of their business; so it names none.
    """

    def __init__(self, message: str, *, pods: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.pods = pods


class InventoryUnavailable(AgentError):
    """The GPUs of this node cannot be listed.

    Attributes:
        reason: a word for programs, of the condition of the same name.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "DriverUnavailable"


class DriverHangs(InventoryUnavailable):
    """A call to the driver did not come back within so many seconds.

    Attributes:
        index: of the GPU that it was about; None: of none, or of several.
    """

    def __init__(self, seconds: float, *, index: int | None, vendor: str = "NVIDIA") -> None:
        message = f"the {vendor} driver has not answered within {seconds:.0f} s"
        super().__init__(message, reason="DriverHangs")
        self.index = index


class LayoutInvalid(AgentError):
    """A GPU cannot be cut into these MIG slices."""


class KubeletUnavailable(AgentError):
    """The kubelet gave no answer; asking again may help."""


class KubeletTooOld(AgentError):
    """The kubelet lacks a call that we need."""


class CdiUnwritable(AgentError):
    """A CDI spec could not be written or removed."""


class Unidentified(AgentError):
    """No pod, or more than one, fits some tickets at this moment; time may tell."""


class StartRefused(AgentError):
    """A container must not start now; the kubelet shows the text in the pod's status.

    Attributes:
        is_held: another pod, which is not gone, has what this one is to have.
    """

    def __init__(self, message: str, *, pods: tuple[str, ...] = (), is_held: bool = False) -> None:
        super().__init__(message, pods=pods)
        self.is_held = is_held


class Abandoned(AgentError):
    """The kubelet gave up a call; nothing was written, nobody is told."""
