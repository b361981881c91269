# SPDX-License-Identifier: Apache-2.0
"""The Secrets that a release needs, by what its own objects name.

    volumes of labelled Deployments and DaemonSets ──► certificates, CAs, the API's scrape token
    ServiceAccount gpupack-metrics ──────────────────► the token of a Prometheus
    imagePullSecrets ────────────────────────────────► credentials of the registry

Secrets of an administrator (existingSecret, tokenSecret) have no labels and are found like others.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Final

from gpupack.cluster.release import Release
from gpupack_cli.doctor.views import Part, ServingVolume
from gpupack_kubeclient import objects

CERTIFICATE: Final = "tls.crt"
METRICS: Final = "gpupack-metrics"
METRICS_TOKEN: Final = "gpupack-metrics-token"  # noqa: S105 - a name
NAME_LABEL: Final = "app.kubernetes.io/name"


@dataclasses.dataclass(frozen=True, slots=True)
class NeededSecret:
    """A Secret that parts of the release use.

    Attributes:
        name: name of the Secret.
        keys: keys that must have a value; empty: the Secret only has to exist.
        parts: names of the objects that use it.
        pulls: it is for pulls of images, which may succeed without it.
    """

    name: str
    keys: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()
    pulls: bool = False

    @property
    def serves(self) -> bool:
        """Whether a component serves the certificate in it."""
        return CERTIFICATE in self.keys


def needed_secrets(
    parts: Iterable[Part], accounts: Iterable[objects.Object], release: Release
) -> tuple[NeededSecret, ...]:
    """Return the Secrets, by name; without any part those of the plan API and the REST API."""
    found = dict[str, NeededSecret]()
    for each in _named(parts, accounts):
        before = found.get(each.name, NeededSecret(each.name, pulls=each.pulls))
        found[each.name] = NeededSecret(
            each.name,
            before.keys | each.keys,
            tuple(dict.fromkeys((*before.parts, *each.parts))),
            before.pulls and each.pulls,
        )
    if not found:
        named = (release.extender_secret, release.api_secret)
        return tuple(NeededSecret(name, frozenset({CERTIFICATE})) for name in named)
    return tuple(found[name] for name in sorted(found))


def _named(parts: Iterable[Part], accounts: Iterable[objects.Object]) -> Iterator[NeededSecret]:
    for part in parts:
        if part.metadata.labels.get(NAME_LABEL) != "gpupack":
            continue
        spec, users = part.spec.template.spec, (part.metadata.name,)
        for volume in spec.volumes:
            for name, keys in _secrets(volume):
                yield NeededSecret(name, keys, users)
        for pull in spec.image_pull_secrets:
            yield NeededSecret(pull.name, parts=users, pulls=True)
    for account in accounts:
        if account.metadata.name == METRICS:
            yield NeededSecret(METRICS_TOKEN, frozenset({"token"}), ("Prometheus",))


def _secrets(volume: ServingVolume) -> Iterator[tuple[str, frozenset[str]]]:
    direct = volume.secret
    if direct.secret_name:
        yield direct.secret_name, frozenset(item.key for item in direct.items)
    for source in volume.projected.sources:
        if source.secret.name:
            yield source.secret.name, frozenset(item.key for item in source.secret.items)
