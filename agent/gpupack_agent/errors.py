# SPDX-License-Identifier: Apache-2.0
"""Errors of the agent.

AgentError
├── SettingsInvalid         an environment variable is missing or wrong
├── InventoryUnavailable    the GPUs of this node cannot be listed
├── KubeletUnavailable      the kubelet gave no answer; asking again may help
├── KubeletTooOld           the kubelet lacks a call that we need
├── CdiUnwritable           a CDI spec could not be written or removed
├── Unidentified            no pod, or more than one, fits some tickets at this moment
├── StartRefused            a container must not start now; the text goes into the pod's status
└── Abandoned               the kubelet gave up a call; nothing was written, nobody is told
"""


class AgentError(Exception):
    """Root of the agent's errors."""


class SettingsInvalid(AgentError):
    """An environment variable is missing or wrong."""


class InventoryUnavailable(AgentError):
    """The GPUs of this node cannot be listed."""


class KubeletUnavailable(AgentError):
    """The kubelet gave no answer; asking again may help."""


class KubeletTooOld(AgentError):
    """The kubelet lacks a call that we need."""


class CdiUnwritable(AgentError):
    """A CDI spec could not be written or removed."""


class Unidentified(AgentError):
    """No pod, or more than one, fits some tickets at this moment; time may tell."""


class StartRefused(AgentError):
    """A container must not start now; the kubelet shows the text in the pod's status."""


class Abandoned(AgentError):
    """The kubelet gave up a call; nothing was written, nobody is told."""
