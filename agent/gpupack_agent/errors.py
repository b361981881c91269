# SPDX-License-Identifier: Apache-2.0
"""The errors of the agent.

AgentError
├── InventoryUnavailable    the GPUs of this node cannot be listed
│   └── DriverTimeout       a call to their driver did not return
├── LayoutInvalid           a GPU cannot be partitioned into these MIG slices
├── KubeletUnavailable      the kubelet did not answer; a retry may help
├── KubeletTooOld           the kubelet lacks a call that the agent needs
├── CdiUnwritable           a CDI spec could not be written or removed
├── Unidentified            no pod, or more than one, has these device tokens at this moment
├── StartRefused            a container must not start now; the text appears in the pod's status
└── Abandoned               the kubelet gave up a call; nothing was written, no reply is needed

Invalid settings raise gpupack_kubeclient's SettingsInvalid.
"""


class AgentError(Exception):
    """The base class of the agent's errors.

    Attributes:
        pods: the pods that it concerns, for the log. The text names no pod: it may reach the owner
            of another pod, in another namespace.
    """

    def __init__(self, message: str, *, pods: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.pods = pods


class InventoryUnavailable(AgentError):
    """An error: the GPUs of this node cannot be listed.

    Attributes:
        reason: a CamelCase word for programs, used in the condition of the same name.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "DriverUnavailable"


class DriverTimeout(InventoryUnavailable):
    """An error: a call to the driver did not return within `seconds`.

    Attributes:
        index: index of the GPU that the call concerned; None: no GPU, or several.
    """

    def __init__(self, seconds: float, *, index: int | None, vendor: str = "NVIDIA") -> None:
        message = f"the {vendor} driver has not answered within {seconds:.0f} s"
        super().__init__(message, reason="DriverTimeout")
        self.index = index


class LayoutInvalid(AgentError):
    """An error: a GPU cannot be partitioned into these MIG slices."""


class KubeletUnavailable(AgentError):
    """An error: the kubelet did not answer; a retry may help."""


class KubeletTooOld(AgentError):
    """An error: the kubelet lacks a call that the agent needs."""


class CdiUnwritable(AgentError):
    """An error: a CDI spec could not be written or removed."""


class ContainerUnidentified(AgentError):
    """An error: no pod, or more than one, has these device tokens now; a retry may help."""


class StartRefused(AgentError):
    """An error: a container must not start now; the kubelet shows the text in the pod's status.

    Attributes:
        is_held: whether another pod still holds a device of this pod.
    """

    def __init__(self, message: str, *, pods: tuple[str, ...] = (), is_held: bool = False) -> None:
        super().__init__(message, pods=pods)
        self.is_held = is_held


class CallAbandoned(AgentError):
    """An error: the kubelet gave up a call; nothing was written, and no reply is needed."""
