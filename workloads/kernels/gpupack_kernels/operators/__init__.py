# SPDX-License-Identifier: Apache-2.0
"""A folder for each operator, all of one shape.

    __init__   what is computed, and how many bytes that must move
    ops        the function that others use: torch operators, their fakes and gradients
    launch     the same without torch operators: checks the arguments, sizes grids, launches
    kernel     the Triton kernels

Some have more:

    problem    the operands, checked once, where several files need that
    tuning     tiles by device, from measurements
    portable, hopper
               kernels for any GPU and for Hopper GPUs, each with its own `launch`; the operator's
               `launch` chooses

Importing `ops` or `launch` imports Triton, which decides at that moment whether kernels are
compiled or interpreted: set TRITON_INTERPRET before. The folders are not the functions' names of
the package `gpupack_kernels`, since importing a folder makes it an attribute of its package.
"""
