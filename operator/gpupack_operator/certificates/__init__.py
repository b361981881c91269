# SPDX-License-Identifier: Apache-2.0
"""Issues the certificates of gpupack's own Services, in the cluster (ADR 74).

    chart: Secrets without data ─► service: read each ─► renewal: keep, or issue ─► patch
                                      ▲                      pure │ x509
                                      └──── every 10 s ───────────┘

* `wanted`: which Secrets, for which hosts, from the environment.
* `pair`: a Secret's data as keys and certificates; makes new ones.
* `renewal`: whether a Secret needs new data, as a pure function.
* `service`: the loop; `python -m gpupack_operator.certificates` runs it.
"""
