# SPDX-License-Identifier: Apache-2.0
"""Objects that are removed with their Node: the garbage collector removes what a Node owns.

`blockOwnerDeletion` is left out: it needs a permission on the Node's finalizers, and it does not
keep a Node from being deleted.
"""

from gpupack_kubeclient import objects
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.resources import NODES

KIND = "Node"


async def node_reference(api: Api, node: str) -> objects.Json:
    """Return the owner reference of a Node as it is now.

    Raises:
        NotFound: there is no such Node.
    """
    found = await api.get(NODES, node)
    return {"apiVersion": "v1", "kind": KIND, "name": node, "uid": found.metadata.uid}


def node_uid(metadata: objects.ObjectMeta) -> str:
    """Return the UID of the Node that owns an object; empty: no Node does."""
    owners = (owner for owner in metadata.owner_references if owner.kind == KIND)
    return next((owner.uid for owner in owners if owner.api_version == "v1"), "")


def went_with_node(gone: objects.ObjectMeta, now: objects.ObjectMeta) -> bool:
    """Tell whether an object was removed with its Node, by the owner of its successor.

    Where the Node is the same, or one of the two owners is unknown, a user removed the object.
    """
    before, after = node_uid(gone), node_uid(now)
    return bool(before and after) and before != after
