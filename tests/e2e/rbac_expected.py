# SPDX-License-Identifier: Apache-2.0
"""Rights of each service account, as `kubectl auth can-i --list` prints them.

A row is (resource or path, names that it is limited to, verbs in alphabetical order).
"""

READ = "get list watch"
READ_UPDATE = "get list patch update watch"

ANY_USER = {
    ("selfsubjectaccessreviews.authorization.k8s.io", "", "create"),
    ("selfsubjectreviews.authentication.k8s.io", "", "create"),
    ("selfsubjectrulesreviews.authorization.k8s.io", "", "create"),
    ("/.well-known/openid-configuration", "", "get"),
    ("/.well-known/openid-configuration/", "", "get"),
    ("/api", "", "get"),
    ("/api/*", "", "get"),
    ("/apis", "", "get"),
    ("/apis/*", "", "get"),
    ("/healthz", "", "get"),
    ("/livez", "", "get"),
    ("/openapi", "", "get"),
    ("/openapi/*", "", "get"),
    ("/openid/v1/jwks", "", "get"),
    ("/openid/v1/jwks/", "", "get"),
    ("/readyz", "", "get"),
    ("/version", "", "get"),
    ("/version/", "", "get"),
    ("gpunodes.gpupack.dev/summary", "", "get"),
}
"""What Kubernetes gives to each service account, and the chart: to see the cluster as a whole."""

KUBE_SCHEDULER = {
    ("bindings", "", "create"),
    ("csidrivers.storage.k8s.io", "", READ),
    ("csinodes.storage.k8s.io", "", READ),
    ("csistoragecapacities.storage.k8s.io", "", READ),
    ("deviceclasses.resource.k8s.io", "", READ),
    ("events", "", "create patch update"),
    ("events.events.k8s.io", "", "create patch update"),
    (
        "leasecandidates.coordination.k8s.io",
        "",
        "create delete deletecollection get list patch update watch",
    ),
    ("leases.coordination.k8s.io", "", "create"),
    ("leases.coordination.k8s.io", "kube-scheduler", "get list update watch"),
    ("namespaces", "", READ),
    ("nodes", "", READ),
    ("persistentvolumeclaims", "", READ_UPDATE),
    ("persistentvolumes", "", READ_UPDATE),
    ("poddisruptionbudgets.policy", "", READ),
    ("pods", "", "delete get list watch"),
    ("pods/binding", "", "create"),
    ("pods/finalizers", "", "update"),
    ("pods/status", "", "patch update"),
    ("replicasets.apps", "", READ),
    ("replicasets.extensions", "", READ),
    ("replicationcontrollers", "", READ),
    ("resourceclaims.resource.k8s.io", "", "create delete get list patch update watch"),
    ("resourceclaims.resource.k8s.io/binding", "", "patch update"),
    ("resourceclaims.resource.k8s.io/status", "", READ_UPDATE),
    ("resourceslices.resource.k8s.io", "", READ),
    ("services", "", READ),
    ("statefulsets.apps", "", READ),
    ("storageclasses.storage.k8s.io", "", READ),
    ("subjectaccessreviews.authorization.k8s.io", "", "create"),
    ("tokenreviews.authentication.k8s.io", "", "create"),
    ("volumeattachments.storage.k8s.io", "", READ),
}
"""system:kube-scheduler and system:volume-scheduler of Kubernetes 1.36."""

ASKS_WHO_CALLS = {
    ("subjectaccessreviews.authorization.k8s.io", "", "create"),
    ("tokenreviews.authentication.k8s.io", "", "create"),
}
"""Parts that show metrics (metricsPort)."""

IN_ANY_NAMESPACE = {
    "gpupack-api": ASKS_WHO_CALLS
    | {
        ("gpucohorts.gpupack.dev", "", "list watch"),
        ("gpureservations.gpupack.dev", "", "list watch"),
        ("gpujobs.gpupack.dev", "", "list watch"),
        ("gpujobs.gpupack.dev/costcaller", "", "create"),
        ("gpunodes.gpupack.dev", "", "list watch"),
        ("gpuquotas.gpupack.dev", "", "list watch"),
        ("nodes", "", "list watch"),
        ("pods", "", "list watch"),
        ("priorityclasses.scheduling.k8s.io", "", "list watch"),
    },
    "gpupack-metrics": {("/metrics", "", "get")},
    "gpupack-certificates": set(),
    "gpupack-cost": ASKS_WHO_CALLS
    | {
        ("gpujobs.gpupack.dev", "", "list watch"),
        ("gpunodes.gpupack.dev", "", "list watch"),
        ("gpuquotas.gpupack.dev", "", "list watch"),
        ("nodes", "", "list watch"),
        ("pods", "", "list watch"),
    },
    "gpupack-agent": ASKS_WHO_CALLS
    | {
        ("events.events.k8s.io", "", "create"),
        ("gpunodes.gpupack.dev", "", "create get"),
        ("gpunodes.gpupack.dev/status", "", "update"),
        ("nodes", "", "get"),
        ("pods", "", READ),
    },
    "gpupack-operator": ASKS_WHO_CALLS
    | {
        ("events.events.k8s.io", "", "create"),
        ("gpujobs.gpupack.dev", "", "delete get list watch"),
        ("gpujobs.gpupack.dev/plan", "", "create watch"),
        ("gpucohorts.gpupack.dev", "", "list watch"),
        ("gpujobs.gpupack.dev/status", "", "update"),
        ("gpuquotas.gpupack.dev", "", "list watch"),
        ("gpunodes.gpupack.dev", "", "delete list patch watch"),
        ("gpunodes.gpupack.dev/status", "", "patch"),
        ("nodes", "", "get"),
        ("jobs.batch", "", "create delete get list patch watch"),
        ("configmaps", "", "create delete"),
        ("pods", "", "create list patch watch"),
        ("pods/log", "", "get"),
        ("podtemplates", "", "create delete get"),
        ("provisioningrequests.autoscaling.x-k8s.io", "", "create delete get"),
        ("priorityclasses.scheduling.k8s.io", "", "get"),
        ("secrets", "", "create delete"),
        ("services", "", "create get"),
    },
    "gpupack-scheduler": KUBE_SCHEDULER - {("pods", "", "delete get list watch")}
    | {
        ("gpucohorts.gpupack.dev", "", "create list watch"),
        ("gpucohorts.gpupack.dev/status", "", "update"),
        ("gpureservations.gpupack.dev", "", "list watch"),
        ("gpureservations.gpupack.dev/status", "", "update"),
        ("gpujobs.gpupack.dev", "", "get list watch"),
        ("gpunodes.gpupack.dev", "", "list watch"),
        ("gpunodes.gpupack.dev/status", "", "patch"),
        ("gpuquotas.gpupack.dev", "", "list watch"),
        ("gpuquotas.gpupack.dev/status", "", "update"),
        ("pods", "", "delete get list patch watch"),
        ("pods/eviction", "", "create"),
    },
}

IN_THE_SYSTEM_NAMESPACE = {
    "gpupack-api": set(),
    "gpupack-cost": set(),
    "gpupack-metrics": set(),
    "gpupack-certificates": {
        ("secrets", f"gpupack-{service}-certificate", "get patch")
        for service in ("api", "cost", "extender", "metrics")
    },
    "gpupack-agent": {("leases.coordination.k8s.io", "", "create patch")},
    "gpupack-operator": {
        ("leases.coordination.k8s.io", "", "create get"),
        ("leases.coordination.k8s.io", "gpupack-operator", "get update"),
    },
    "gpupack-scheduler": {
        ("endpointslices.discovery.k8s.io", "", "create"),
        ("endpointslices.discovery.k8s.io", "gpupack-extender", "delete get update"),
        ("leases.coordination.k8s.io", "gpupack-scheduler", "get list update watch"),
        ("configmaps", "gpupack-withheld", "patch"),
    },
}
"""What comes on top there."""

IN_THE_NAMESPACE_OF_KUBELETS = {
    "gpupack-api": set(),
    "gpupack-cost": set(),
    "gpupack-metrics": set(),
    "gpupack-certificates": set(),
    "gpupack-agent": set(),
    "gpupack-operator": {("leases.coordination.k8s.io", "", "get")},
    "gpupack-scheduler": set(),
}
"""What comes on top in kube-node-lease, where the kubelets' Leases are."""

IN_KUBE_SYSTEM = {account: set() for account in IN_ANY_NAMESPACE} | {
    "gpupack-api": {("configmaps", "extension-apiserver-authentication", READ)},
}
"""What comes on top in kube-system: by which CA the API server knows its clients."""

IN_THE_NAMESPACE_OF_BURN_INS = {
    "gpupack-api": set(),
    "gpupack-cost": set(),
    "gpupack-metrics": set(),
    "gpupack-certificates": set(),
    "gpupack-agent": set(),
    "gpupack-operator": {("gpujobs.gpupack.dev", "", "create delete get list watch")},
    "gpupack-scheduler": set(),
}
"""In place of what holds anywhere, in gpupack-acceptance."""
