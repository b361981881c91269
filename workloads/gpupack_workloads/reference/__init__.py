# SPDX-License-Identifier: Apache-2.0
"""What right results are, in 64 bits, and how far from them correct ones may be.

    agreement   errors beside the bounds that rounding explains
    softmax, gemm, attention, vector_add   one computation each
    language   norm, rotation, gate and loss of a language model

Apart from the kernels, which import nothing but torch and Triton. Only `attention` and `language`
import torch.
"""
