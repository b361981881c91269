# SPDX-License-Identifier: Apache-2.0
"""How replicas stay one: every rank steps with the mean gradient of all.

ddp     torch's DistributedDataParallel.
flat    gradients are gathered into a few long buffers after the backward pass; a buffer is summed
        by the backend while the next is filled, and the optimiser reads from it.
copies  as soon as a segment has its gradients, they travel as copies out of peers' memory, while
        the backward pass goes on. Copy engines do it: NCCL's kernels would take multiprocessors
        from the pass, which costs more than it hides.

A compiled segment hands over all its gradients at once. DDP copies each of 161 by a kernel of its
own; a gathering copy of many tensors takes one kernel. Statistics of normalisation stay a rank's
own, as usual.
"""
