# SPDX-License-Identifier: Apache-2.0
"""Answers of the REST API of which a test names the fields that it is about."""

import http

from gpupack_restapi.cost import CostRow
from gpupack_restapi.holders import HolderView
from gpupack_restapi.jobs import QueueRow
from gpupack_restapi.questions import Explanation, Outcome


def problem(status, **fields):
    return {
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": "",
    } | fields


def queue_row(namespace, name, **fields):
    shown = {
        "phase": "Pending",
        "reason": "",
        "message": "",
        "workers": 1,
        "gpus": 1,
        "nodes": "",
        "attempt": 0,
        "priority": 0,
        "preemptions": 0,
        "restarts": 0,
        "workload": "",
        "result": "",
        "created": None,
        "started": None,
    }
    return QueueRow(**shown | {"namespace": namespace, "name": name} | fields)


def explanation(**fields):
    return Explanation(**{"phase": "Pending", "reason": "", "message": ""} | fields)


def outcome(name, **fields):
    shown = {
        "reason": "",
        "message": "",
        "workers": (),
        "position": None,
        "waiting": 0,
        "estimated_wait_seconds": None,
        "preempts": (),
        "preempts_hidden": 0,
        "would_help": (),
    }
    return Outcome(**shown | {"outcome": name} | fields)


def holder(namespace, pod, **fields):
    shown = {
        "job": "",
        "worker": None,
        "node": "a",
        "uuid": "GPU-1",
        "index": 0,
        "percent": 100,
        "memory_mib": 80_000,
        "isolation": "strict",
    }
    return HolderView(**shown | {"namespace": namespace, "pod": pod} | fields)


def cost_row(**fields):
    shown = {
        "namespace": "",
        "cohort": "",
        "job": "",
        "model": "",
        "allocated_gpu_hours": 0.0,
        "used_gpu_hours": None,
        "idle_gpu_hours": None,
        "unknown_gpu_hours": 0.0,
        "energy_kwh": None,
        "cost": None,
    }
    return CostRow(**shown | fields)
