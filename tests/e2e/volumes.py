# SPDX-License-Identifier: Apache-2.0
"""What a class of storage would provide: a folder that all nodes of this host reach."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from harness import STATE, Kube


@contextlib.contextmanager
def shared_folder(kube: Kube, claim: str) -> Iterator[pathlib.Path]:
    """Yield the folder behind a claim of this name, and remove it.

    What a killed run of the same test left is removed first.
    """
    folder = STATE / "volumes" / kube.namespace
    name = f"{kube.namespace}-{claim}"
    kube.kubectl("delete", "pv", name, "--ignore-not-found")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    kube.submit(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": kube.namespace, "name": claim},
                "hostPath": {"path": str(folder.resolve())},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
    )
    try:
        yield folder
    finally:
        kube.kubectl("delete", "pv", name, "--wait=false")
        shutil.rmtree(folder)
