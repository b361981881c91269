# SPDX-License-Identifier: Apache-2.0
"""The API group gpupack.dev/v1beta1.

* `names`: every name that several components use (resources, labels, annotations, variables).
* `gpujob`, `template`, `gpujob_status`, `gpunode`, `kinds`: the kinds as types. The CRDs next to
  this package are generated from them.
* `devices`: the annotation with the devices that a pod holds.
* `demand_forecast`: the demand forecast in the status of GPUCohort `cluster`.
* `plan`: the messages of the plan API between operator and extender.
* `results`: the result that a workload writes into its termination message.
* `schema`, `generate`: conversion of types to CRDs.
"""
