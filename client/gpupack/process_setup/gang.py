# SPDX-License-Identifier: Apache-2.0
"""The workers of a TensorFlow training, and the index of this process.

    TF_CONFIG, where it is set
    else the variables of a GPUJob's pods: GPUPACK_RENDEZVOUS, GPUPACK_WORKERS, GPUPACK_WORKER_INDEX
    else there is one

A gang's pods get only worker 0's address, since there may be a thousand workers. The other
addresses differ in the index, at the end of the first label: train-1-0.train.team.svc, then
train-1-1.train…
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpupack.errors import ConfigInvalid
from gpupack.process_setup.devices import SetupInvalid
from gpupack.process_setup.tensorflow import Address

RENDEZVOUS: Final = "GPUPACK_RENDEZVOUS"
WORKERS: Final = "GPUPACK_WORKERS"
INDEX: Final = "GPUPACK_WORKER_INDEX"
MIN_WORKERS: Final = "GPUPACK_MIN_WORKERS"

MAX_WORKERS: Final = 1024
"""Maximum workers of a gang, as in a GPUJob."""

FIRST: Final = "-0"
"""End of worker 0's first label."""


class Place(msgspec.Struct, frozen=True):
    """A process among the workers of its training.

    Attributes:
        workers: addresses (host:port) of all workers; empty: there is one.
        index: index of this process.
    """

    workers: tuple[str, ...] = ()
    index: int = 0


def place_of(environ: Mapping[str, str]) -> Place:
    """Return the place of this process; a single worker needs no address.

    Raises:
        ConfigInvalid: TF_CONFIG is not JSON that names workers.
        SetupInvalid: the variables of the gang contradict each other, or the gang is elastic, which
            TensorFlow does not support.
    """
    text = environ.get("TF_CONFIG")
    place = _from_tf_config(text) if text else _from_gang_variables(environ)
    return place if len(place.workers) > 1 else Place()


class _Cluster(msgspec.Struct, frozen=True):
    worker: tuple[Address, ...]


class _Task(msgspec.Struct, frozen=True):
    index: int


class _TfConfig(msgspec.Struct, frozen=True):
    cluster: _Cluster
    task: _Task


def _from_tf_config(text: str) -> Place:
    try:
        # TensorFlow accepts an index that is written as text, too.
        config = msgspec.json.decode(text, type=_TfConfig, strict=False)
    except msgspec.DecodeError as error:
        raise ConfigInvalid(
            f"TF_CONFIG: {text[:200]!r}: {error}; write "
            '{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}'
        ) from error
    return Place(config.cluster.worker, config.task.index)


def _from_gang_variables(environ: Mapping[str, str]) -> Place:
    count = _number(environ, WORKERS, 1)
    if count == 1:
        return Place()
    if _number(environ, MIN_WORKERS, count) < count:
        raise SetupInvalid(
            MIN_WORKERS,
            environ[MIN_WORKERS],
            "TensorFlow does not support elastic jobs; remove minWorkers from the GPUJob",
        )
    host, _, port = environ.get(RENDEZVOUS, "").rpartition(":")
    first, dot, domain = host.partition(".")
    if not first.endswith(FIRST):
        raise SetupInvalid(
            RENDEZVOUS,
            environ.get(RENDEZVOUS, ""),
            "set the address of worker 0, NAME-ATTEMPT-0.NAME.NAMESPACE.svc:PORT, or set TF_CONFIG",
        )
    stem = first.removesuffix(FIRST)
    workers = tuple(f"{stem}-{index}{dot}{domain}:{port}" for index in range(count))
    return Place(workers, _number(environ, INDEX, 0))


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    text = environ.get(name) or str(otherwise)
    if not text.isdecimal() or len(text) > len(str(MAX_WORKERS)) or int(text) > MAX_WORKERS:
        raise SetupInvalid(name, text, f"give a whole number up to {MAX_WORKERS}")
    return int(text)
