# SPDX-License-Identifier: Apache-2.0
"""The last lines of an attempt whose pods were deleted, as the operator has saved them."""

import dataclasses

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kube.client import Api
from gpupack_kube.errors import NotFound
from gpupack_kube.resources import CONFIG_MAPS


@dataclasses.dataclass(frozen=True, slots=True)
class SavedLog:
    """What workers of an attempt printed last.

    Attributes:
        attempt: its number.
        texts: by worker.
    """

    attempt: int
    texts: dict[int, str]


async def saved_log(api: Api, job: GpuJob) -> SavedLog | None:
    """Of the last attempt that was stopped; None: there is none.

    Raises:
        KubeError: it may not be read.
    """
    name = names.saved_log(job.metadata.uid)
    try:
        found = await api.get(CONFIG_MAPS, name, namespace=job.metadata.namespace)
    except NotFound:
        return None
    attempt = found.metadata.labels.get(names.ATTEMPT_LABEL, "")
    texts = {
        int(worker): text
        for key, text in found.data.items()
        if (worker := key.removeprefix(names.SAVED_LOG_KEY_PREFIX)).isdecimal()
    }
    return SavedLog(int(attempt) if attempt.isdecimal() else 0, dict(sorted(texts.items())))


def last_lines(text: str, tail: int | None) -> list[bytes]:
    """The lines, or so many of the last."""
    lines = text.encode(errors="replace").splitlines()
    return lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]
