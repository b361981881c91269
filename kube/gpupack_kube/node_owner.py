# SPDX-License-Identifier: Apache-2.0
"""Objects that go with their Node: the garbage collector removes what a Node owns after it.

`blockOwnerDeletion` is left out: it needs a right on the Node's finalizers, and keeps no Node.
"""

from gpupack_kube import objects
from gpupack_kube.client import Api
from gpupack_kube.resources import NODES

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
    """Tell whether an object was removed with its Node, as its successor's owner shows.

    Where the Node is the same one, or not known of either, a person removed the object.
    """
    before, after = node_uid(gone), node_uid(now)
    return bool(before and after) and before != after
