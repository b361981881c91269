# SPDX-License-Identifier: Apache-2.0
"""Errors of the devcluster, as one tree.

DevclusterError
├── NotRoot            namespaces, mounts and cgroups need root
├── ToolMissing        a program of the host, or a binary of `build`, is missing
├── CommandFailed      a program was run and failed; holds the end of its output
├── BuildFailed        a Go build failed; its output is in the log
├── NotUp              the command needs a running cluster or node
├── Occupied           another cluster holds this host's bridge
├── NotInTime          something did not become ready; names it and its log
├── UnknownName        no such node or component
└── ImageProblem
    ├── ImageMissing   the store has no image of that name
    └── StoreInvalid   the store's records contradict each other
"""


class DevclusterError(Exception):
    """Base of all errors that the command line reports in one line."""


class NotRoot(DevclusterError):
    """Namespaces, mounts and cgroups need root."""


class ToolMissing(DevclusterError):
    """A program of the host or of `build` is missing."""


class CommandFailed(DevclusterError):
    """A program was run and failed."""


class BuildFailed(DevclusterError):
    """A Go build failed."""


class NotUp(DevclusterError):
    """The command needs a running cluster or node."""


class Occupied(DevclusterError):
    """Another cluster holds this host's bridge."""


class NotInTime(DevclusterError):
    """Something did not become ready in time."""


class UnknownName(DevclusterError):
    """No such node or component."""


class ImageProblem(DevclusterError):
    """An image cannot be loaded."""


class ImageMissing(ImageProblem):
    """The store has no image of that name."""


class StoreInvalid(ImageProblem):
    """The store's records contradict each other."""
