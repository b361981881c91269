# SPDX-License-Identifier: Apache-2.0
"""Types of the REST API's requests and answers, for the server and its clients.

    nodes        nodes and GPUs, figures of the cluster, health
    jobs         GPUJobs, the queue
    holders      pods and the GPUs that they hold
    questions    why a job waits, and what-if
    quotas       GPUQuotas and their history
    cost         GPU-hours and cost
    allocations  GPUs that are held for a caller
    events       the stream of changes
    config       settings that were read again
    problem      errors

Clients ignore fields that a newer server adds. A field that is added later has a default, so that
clients can read an older server's answer. A field with named values is a text (`patterns.values`),
so that clients accept a value of a newer server.
"""

from typing import Final

PREFIX: Final = "/api/v1/gpu"
"""Path of all calls."""
