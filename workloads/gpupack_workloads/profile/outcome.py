# SPDX-License-Identifier: Apache-2.0
"""Result of a profiled workload: the digest, then the workload's own figures."""

import msgspec

from gpupack_workloads.profile.digest import Digest
from gpupack_workloads.profile.settings import Recording
from gpupack_workloads.results import HEADLINE_CHARACTERS, Result, headline


def with_profile(result: Result, seen: Digest, recording: Recording) -> Result:
    """Return the workload's result as one of `profile`: the profile first, then its metrics."""
    figures = seen.metrics()
    share = f"{recording.workload}: {seen.part(seen.communication_us, seen.busy_us):.0%} comm"
    text = f"{share}, {result.headline.removesuffix(' (simulated)')}"
    own = len(headline("", simulated=result.simulated))
    return msgspec.structs.replace(
        result,
        workload="profile",
        headline=headline(text[: HEADLINE_CHARACTERS - own], simulated=result.simulated),
        metrics={"profiled": recording.workload, "trace_folder": str(recording.folder)}
        | figures
        | result.metrics,
        rows=seen.rows(recording.top),
    )
