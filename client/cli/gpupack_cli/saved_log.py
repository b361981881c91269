# SPDX-License-Identifier: Apache-2.0
"""The last lines of an attempt whose pods were deleted, which the operator saved."""

import dataclasses

from gpupack_crds import names
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.client import Api
from gpupack_kubeclient.errors import NotFound
from gpupack_kubeclient.resources import CONFIG_MAPS


@dataclasses.dataclass(frozen=True, slots=True)
class SavedLog:
    """The last output of an attempt's workers.

    Attributes:
        attempt: its number.
        texts: texts by worker.
    """

    attempt: int
    texts: dict[int, str]


async def saved_log(api: Api, job: GpuJob) -> SavedLog | None:
    """Return the saved log of the last stopped attempt; None: there is none.

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
    """Return the lines, or the last `tail` ones."""
    lines = text.encode(errors="replace").splitlines()
    return lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]
