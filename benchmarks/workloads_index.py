# SPDX-License-Identifier: Apache-2.0
"""Entries of the index of docs/workloads; the newest results are added."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One workload in the index.

    Attributes:
        name: the command.
        page: file name of its page in docs/workloads.
        workers: how many workers a job of it may have.
        summary: what it does, in one line.
        manifests: file names in examples, without the extension; by default its own name.
    """

    name: str
    page: str
    workers: str
    summary: str
    manifests: tuple[str, ...] = ()

    @property
    def examples(self) -> tuple[str, ...]:
        """Names of its manifests."""
        return self.manifests or (self.name,)


PRODUCTS = "matrix-products.md"
ATTENTION = "attention.md"
ELEMENTWISE = "elementwise.md"
CNN = "cnn.md"
TRANSFORMER = "transformer.md"
INFERENCE = "inference.md"
COLLECTIVES = "collectives.md"
PEERS = "peer-memory.md"
DEVICES = "device-tests.md"
TOOLS = "tools.md"

INDEX = (
    Entry(
        "device-query",
        DEVICES,
        "1",
        "reports every GPU's properties from torch, the driver and NVML, and compares them",
    ),
    Entry("burn-in", DEVICES, "1", "loads one GPU for two minutes and judges its health"),
    Entry(
        "matmul",
        PRODUCTS,
        "1",
        "multiplies matrices by NumPy on the CPU, by torch and by a Triton kernel",
        ("matmul", "share"),
    ),
    Entry(
        "gemm",
        PRODUCTS,
        "1",
        "multiplies matrices by our kernel and by cuBLAS: bf16, fp16, fp8, ragged shapes",
    ),
    Entry(
        "cuda-matmul",
        PRODUCTS,
        "1",
        "multiplies matrices in CUDA C++, step by step to tensor cores, or by your kernel",
    ),
    Entry(
        "thunderkittens",
        PRODUCTS,
        "1",
        "product and attention in ThunderKittens' tile C++, Gluon, Triton, cuBLAS and cuDNN",
    ),
    Entry("matmul-multi", PRODUCTS, "any", "one large product over several GPUs"),
    Entry(
        "attention",
        ATTENTION,
        "1",
        "fused attention, forward and backward, and cuDNN's; packed sequences; pages",
    ),
    Entry("vector-add", ELEMENTWISE, "1", "the smallest Triton kernel, torch's, and a plain copy"),
    Entry("softmax", ELEMENTWISE, "1", "fused softmax in Triton, forward and backward"),
    Entry(
        "llm-kernels",
        ELEMENTWISE,
        "1",
        "a language model's norm, rotation, gate and loss; torch.compile's and Liger's",
    ),
    Entry(
        "train-cnn",
        CNN,
        "any",
        "trains a small CNN by epochs, or compares AMP, accumulation and channels-last",
        ("train-cnn", "train-cnn-mnist"),
    ),
    Entry("resnet50", CNN, "any", "trains ResNet-50 by DDP on synthetic ImageNet"),
    Entry(
        "tensorflow",
        CNN,
        "any",
        "trains the small CNN with TensorFlow, in an image of its own",
        ("tensorflow", "tensorflow-gang"),
    ),
    Entry(
        "transformer",
        TRANSFORMER,
        "any",
        "trains a language model: DDP, FSDP2, tensor and pipeline parallel; checkpoints",
        ("transformer", "elastic-transformer"),
    ),
    Entry(
        "inference-load",
        INFERENCE,
        "1",
        "serves the transformer on a share with continuous batching, and measures latency",
        ("inference-load", "inference"),
    ),
    Entry("allreduce", COLLECTIVES, "any", "sums over all workers, exact"),
    Entry(
        "collectives",
        COLLECTIVES,
        "any",
        "every NCCL operation, type and reduction from 8 bytes to 4 GiB; small sums",
    ),
    Entry(
        "mpi",
        COLLECTIVES,
        "any",
        "ring, all-reduce and halo exchange by MPI between ranks of mpirun, and NCCL",
    ),
    Entry("p2p", PEERS, "1", "every pair of GPUs reads and modifies each other's memory"),
    Entry(
        "p2p-cpp",
        PEERS,
        "1",
        "the same links in CUDA C++: copies, loads and stores, through the host",
    ),
    Entry(
        "symmetric-memory",
        PEERS,
        "1",
        "puts and gets between GPUs, and a product fused with an all-gather; NCCL's",
    ),
    Entry(
        "gpu-manager",
        TOOLS,
        "1",
        "tasks for several GPUs from one queue, with memory quotas and time limits",
    ),
    Entry("profile", TOOLS, "any", "another workload under torch's profiler or Nsight Systems"),
)
