# SPDX-License-Identifier: Apache-2.0
"""GPUJobs as the operator keeps them, from their manifests."""

import msgspec

from gpupack_operator.cache import ReadableGpuJob


def read_gpujob(body):
    """Return what the operator's index has of a GPUJob.

    Raises:
        msgspec.ValidationError: it does not follow the CRD's schema.
    """
    return msgspec.convert(body, ReadableGpuJob).cached
