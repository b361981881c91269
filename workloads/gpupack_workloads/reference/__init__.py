# SPDX-License-Identifier: Apache-2.0
"""Reference results in 64 bits, and bounds of the error that rounding explains.

    agreement   errors compared with the bounds that rounding explains
    softmax, gemm, attention, vector_add   one computation each
    language   norm, rotation, gate and loss of a language model

Apart from the kernels, which import nothing but torch and Triton. Only `attention` and `language`
import torch.
"""
