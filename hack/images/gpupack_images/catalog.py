# SPDX-License-Identifier: Apache-2.0
"""Images that the Dockerfile builds."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpupack_images.errors import UnknownImage

BASE = "docker.io/library/debian:bookworm-slim"


@dataclass(frozen=True)
class Image:
    """A target of the Dockerfile and the name of its image."""

    target: str
    name: str
    on_request: bool = False
    """The image is built only where it is named: it needs what not every host can reach."""
    large: bool = False
    """The image has gigabytes of libraries.

    Such images are built one after another: while a layer is committed there are three copies of
    it.
    """


# In building order: bases of many images come first. `torch`, `dashboard` and `launcher` are never
# run; their names protect them from pruning.
IMAGES = (
    Image("operator", "docker.io/gpupack/operator:dev"),
    Image("extender", "docker.io/gpupack/extender:dev"),
    Image("launcher", "localhost/gpupack/launcher:dev"),
    Image("dashboard", "localhost/gpupack/dashboard:dev"),
    Image("api", "docker.io/gpupack/api:dev"),
    Image("agent", "docker.io/gpupack/agent:dev"),
    Image("judge", "docker.io/gpupack/judge:dev"),
    Image("torch", "localhost/gpupack/torch:dev", large=True),
    Image("workloads", "docker.io/gpupack/workloads:dev", large=True),
    Image("thunderkittens", "localhost/gpupack/thunderkittens:dev", on_request=True),
    Image(
        "workloads-thunderkittens",
        "docker.io/gpupack/workloads-thunderkittens:dev",
        on_request=True,
        large=True,
    ),
    Image("notebook", "docker.io/gpupack/notebook:dev", large=True),
    Image("workloads-test", "docker.io/gpupack/workloads-test:dev", large=True),
    Image("tensorflow", "docker.io/gpupack/tensorflow:dev", large=True),
    Image("tensorflow-test", "docker.io/gpupack/tensorflow-test:dev", large=True),
    Image("controllers", "docker.io/gpupack/controllers:dev", on_request=True),
    Image("pause", "localhost/gpupack/pause:dev"),
    Image("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.3"),
)


def select(targets: Sequence[str]) -> tuple[Image, ...]:
    """Return the images of these targets in building order; of all usual ones if none is named."""
    unknown = set(targets) - {image.target for image in IMAGES}
    if unknown:
        known = ", ".join(image.target for image in IMAGES)
        raise UnknownImage(f"no image is called {', '.join(sorted(unknown))}; there are: {known}")
    if not targets:
        return tuple(image for image in IMAGES if not image.on_request)
    return tuple(image for image in IMAGES if image.target in targets)
