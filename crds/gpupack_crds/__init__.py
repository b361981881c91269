# SPDX-License-Identifier: Apache-2.0
"""The API group gpupack.dev/v1alpha1.

* `names`: every name that more than one part spells (resources, labels, annotations, variables).
* `gpujob`, `template`, `gpujob_status`, `gpunode`, `kinds`: the kinds as types; the CRDs beside
  this package are generated from them.
* `devices`: the annotation that says which devices a pod holds.
* `outlook`: what requests are likely to come, in the status of GPUCohort `cluster`.
* `plan`: the messages of the plan API between operator and extender.
* `results`: what a workload writes into its termination message.
* `schema`, `generate`: types to CRDs.
"""
