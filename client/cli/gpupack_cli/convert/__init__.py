# SPDX-License-Identifier: Apache-2.0
"""Conversion of the manifests of other schedulers and job controllers into gpupack's.

source         files and their documents, with limits
foreign        base of the types of other projects' objects, and what no type reads
report         what was not converted, and what to do instead
pod            Kubernetes' pod template: the fields that a conversion reads
gpus           GPUs that a container requests
queue_labels   labels of other queues
worker         a pod template as that of a GPUJob's workers
standalone     a pod template as that of standalone pods
job            the GPUJob
…              one module for each kind of source
kinds          the list of kinds
"""
