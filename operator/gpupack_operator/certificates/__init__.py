# SPDX-License-Identifier: Apache-2.0
"""Issuer of the certificates of gpupack's own Services, in the cluster (ADR 74).

    chart: Secrets without data ─► service: read each ─► renewal: keep, or issue ─► patch
                                      ▲                      pure │ x509
                                      └──── every 10 s ───────────┘

* `certificate_requests`: the Secrets to fill and their hosts, from the environment.
* `pair`: a Secret's data as keys and certificates; creates new ones.
* `renewal`: the decision whether a Secret needs new data, as a pure function.
* `service`: the loop; `python -m gpupack_operator.certificates` runs it.
"""
