# SPDX-License-Identifier: Apache-2.0
"""Lists of any length are complete on every surface, and totals are the sums of their rows.

Seeded: pages of a few rows and lists around their multiples, and once the pages that are used.
"""

import asyncio
import csv
import dataclasses
import io
import json
import math
import os
import pathlib
import random
import ssl
import sys

import pytest
from accounts import when
from extender_builders import gpu_node, node
from fake_api import connected
from listening import listening
from self_signed import self_signed

from gpupack.cluster import backend, jobs
from gpupack.cluster.calls import Calls
from gpupack.cluster.endpoint import Endpoint
from gpupack_apiserver.accounts.app import application as accounts_application
from gpupack_apiserver.accounts.cost_queries import CostQueries
from gpupack_apiserver.app import application
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.settings import CostService
from gpupack_cli import main, rest_nodes
from gpupack_cli.commands import cost, queue
from gpupack_cost import Amounts, Line, total
from gpupack_httpserver.server import Server, configured
from gpupack_restapi.jobs import Queue

ROOT = pathlib.Path(__file__).parents[3]
MODULES, NODE = (
    ROOT / "apiserver/dashboard/node_modules",
    pathlib.Path(sys.executable).with_name("node"),
)
PERIOD = {"since": when(0), "until": when(86_400)}
OPTIONS = tuple(word for name, at in PERIOD.items() for word in (f"--{name}", at))
OFTEN = 10**6


@dataclasses.dataclass
class Surfaces:
    """All surfaces of one server that show lists."""

    address: str
    certificate: str
    kubeconfig: str
    capsys: pytest.CaptureFixture

    async def cli(self, *arguments):
        where = ("--server", self.address, "--ca", self.certificate)
        given = [*arguments, *where, "--kubeconfig", self.kubeconfig]
        status = await asyncio.to_thread(main.run_command, given)
        shown, said = self.capsys.readouterr()
        assert status == 0, said
        return shown

    async def python_api(self, ask):
        trusted = ssl.create_default_context(cafile=self.certificate)
        endpoint = Endpoint(
            address=lambda: self.address,
            trusted=lambda: trusted,
            token=lambda: "admin-token",
            namespace="",
            close=lambda: None,
            direct=True,
        )
        made = backend.ClusterBackend(Calls(endpoint), namespace="")
        try:
            return await asyncio.to_thread(ask, made)
        finally:
            made.close()

    async def page(self):
        started = await asyncio.create_subprocess_exec(
            str(NODE),
            str(ROOT / "tests/helpers/page_lists.ts"),
            f"{self.address}/",
            "admin-token",
            json.dumps(PERIOD | {"group_by": "job"}),
            env=os.environ | {"NODE_EXTRA_CA_CERTS": self.certificate},
            stdout=asyncio.subprocess.PIPE,
        )
        shown, _ = await started.communicate()
        return json.loads(shown)


@pytest.fixture
def lines(monkeypatch):
    """Set the usage that the cost service has recorded."""
    held = []
    monkeypatch.setattr(CostQueries, "_lines", lambda *_: list(held))
    return held


@pytest.fixture
async def surfaces(accounts, parts, server, lines, *, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("gpupack_apiserver.routes.cost.BURST", OFTEN)
    monkeypatch.setenv("GPUPACK_TOKEN", "admin-token")
    parts.rights.limit(at_once=OFTEN, per_second=OFTEN)
    accounts.at(86_400)
    judge = Rights(parts.api)
    judge.limit(at_once=OFTEN, per_second=OFTEN)
    desk = CostQueries(accounts.recorder, judge, missing=str, now=accounts.now)
    counted = configured(accounts_application(desk, str), host="127.0.0.1", port=0)
    async with listening(Server(counted)) as accountant:
        calls = application(parts, CostService(f"http://127.0.0.1:{accountant}"))
        served = configured(calls, host="127.0.0.1", port=0)
        certificate, key = self_signed(tmp_path)
        served.ssl_certfile, served.ssl_keyfile = str(certificate), str(key)
        async with listening(Server(served)) as port, connected(server.app()) as (_, path):
            yield Surfaces(f"https://localhost:{port}", str(certificate), path, capsys)


def some_lines(chance, number):
    """Return this many jobs, some without a price and some never measured."""
    return [
        Line(
            tenant=f"team-{chance.randrange(3)}",
            job=f"job-{at}",
            amounts=Amounts(
                allocated=(held := chance.randrange(1, 10**9)),
                measured=(measured := held if chance.random() < 0.7 else 0),
                used=measured / 2,
                metered=held,
                joules=chance.randrange(10**7),
            ),
            cost=chance.choice([None, 0.5, chance.random() * 100]),
        )
        for at in range(number)
    ]


def around(chance, page):
    """Draw a length at, or next to, a multiple of a page."""
    return max(page * chance.randrange(4) + chance.choice([-1, 0, 1]), 0)


def hours(rows):
    return math.fsum(float(row["allocated_gpu_hours"]) for row in rows)


def names(rows):
    return sorted(f"{row['namespace']}/{row['job']}" for row in rows)


async def require_all_costs(surfaces, lines):
    """Require that JSON and CSV of the command line have every job with its hours."""
    whole, wanted = total(lines), sorted(f"{line.tenant}/{line.job}" for line in lines)
    allocated = whole.amounts.allocated_hours
    document = json.loads(await surfaces.cli("cost", "--by", "job", "-A", *OPTIONS, "-o", "json"))
    assert names(document["rows"]) == wanted
    assert hours(document["rows"]) == pytest.approx(allocated, abs=1e-4)
    assert document["total"]["allocated_gpu_hours"] == pytest.approx(allocated, abs=1e-4)
    assert document["total"]["cost"] == pytest.approx(whole.cost, abs=1e-4)
    measured = whole.amounts.used_hours
    assert document["total"]["used_gpu_hours"] == pytest.approx(measured, abs=1e-4)
    text = await surfaces.cli("cost", "--by", "job", "-A", *OPTIONS, "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert names(rows) == wanted
    assert hours(rows) == pytest.approx(allocated, abs=1e-4)


async def require_whole_table(surfaces, lines):
    wanted = sorted(f"{line.tenant}/{line.job}" for line in lines)
    table = (await surfaces.cli("cost", "--by", "job", "-A", *OPTIONS)).splitlines()
    assert sorted("/".join(row.split()[:2]) for row in table[1:-1]) == wanted
    assert table[-1].split()[0] == "total"


@pytest.mark.parametrize("seed", range(8))
async def test_costs_of_any_number_of_jobs_are_complete(surfaces, lines, monkeypatch, seed):
    chance = random.Random(seed)
    page = chance.randrange(1, 9)
    monkeypatch.setattr(cost, "PAGE_SIZE", page)
    lines += some_lines(chance, around(chance, page))
    await require_all_costs(surfaces, lines)
    await require_whole_table(surfaces, lines)


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_costs_around_the_page_limit_are_complete(surfaces, lines, more):
    lines += some_lines(random.Random(more), cost.PAGE_SIZE + more)
    await require_all_costs(surfaces, lines)


@pytest.mark.parametrize("seed", range(4))
async def test_any_number_of_nodes_is_listed_completely(surfaces, model, monkeypatch, server, seed):
    chance = random.Random(seed)
    page = chance.randrange(1, 9)
    monkeypatch.setattr(rest_nodes, "PAGE_SIZE", page)
    monkeypatch.setattr(backend, "PAGE_SIZE", page)
    show_nodes(model, around(chance, page))
    there = sorted(map(str, (each.name for each in model.ledger.cluster.nodes())))
    assert (
        sorted(each.node_name for each in await surfaces.python_api(lambda api: api.nodes()))
        == there
    )
    shown = json.loads(await surfaces.cli("top", "--once", "-o", "json"))
    assert sorted(each["name"] for each in shown["nodes"]) == there
    assert shown["status"]["total_nodes"] == len(there)
    assert sum(each["gpus"] for each in shown["nodes"]) == shown["status"]["total_gpus"]


@pytest.mark.parametrize("seed", range(8))
async def test_a_queue_of_any_length_is_paged_while_jobs_change(call, job, seed):
    chance = random.Random(seed)
    page = chance.randrange(1, 9)
    for at in range(around(chance, page)):
        job(f"job-{at}", chance.choice(["team", "others"]), priority=chance.randrange(-2, 3))
    first = (await call("queue", limit=page)).body
    found, answer = list(first["waiting"]), first
    while answer["next"]:
        job(f"new-{len(found)}", priority=9)
        answer = (await call("queue", limit=page, after=answer["next"])).body
        found += answer["waiting"]
    assert len({(each["namespace"], each["name"]) for each in found}) == first["total"]
    assert len(found) == first["total"]
    priorities = [each["priority"] for each in found]
    assert priorities == sorted(priorities, reverse=True)


@pytest.mark.parametrize("seed", range(8))
async def test_a_queue_of_any_length_is_complete_on_every_surface(surfaces, job, monkeypatch, seed):
    chance = random.Random(seed)
    page = chance.randrange(1, 9)
    monkeypatch.setattr(queue, "PAGE_SIZE", page)
    monkeypatch.setattr(jobs, "PAGE_SIZE", page)
    there = [(chance.choice(["team", "others"]), f"job-{at}") for at in range(around(chance, page))]
    for namespace, name in there:
        job(name, namespace, priority=chance.randrange(-2, 3), gpus="2")
    first = await surfaces.python_api(lambda api: api._calls.get("queue", Queue, limit=1))
    total = first.total
    document = json.loads(await surfaces.cli("queue", "-A", "-o", "json"))
    table = (await surfaces.cli("queue", "-A")).splitlines()[1:]
    rows = await surfaces.python_api(lambda api: api.jobs.queue(all_namespaces=True))
    shown = [(each["namespace"], each["name"]) for each in document["waiting"]]
    assert sorted(shown) == sorted(there)
    assert [(each.namespace, each.name) for each in rows] == shown
    assert total == len(there) == len(table) == document["total"]
    assert sum(int(each.gpus) for each in rows) == 2 * total


@pytest.mark.skipif(not (MODULES.exists() and NODE.exists()), reason="run `make dashboard`")
@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_the_page_shows_all_rows_around_its_page_limit(surfaces, lines, model, job, more):
    chance = random.Random(more)
    lines += some_lines(chance, 20_000 + more)
    for at in range(5000 + more):
        job(f"job-{at}", priority=chance.randrange(3))
    show_nodes(model, 40)
    found = await surfaces.page()
    shown = found["cost"]["value"]
    whole = total(lines)
    assert len(shown["rows"]) == len(lines)
    assert hours(shown["rows"]) == pytest.approx(whole.amounts.allocated_hours, abs=1e-4)
    for name in ("allocated_hours", "used_hours", "energy_kwh"):
        figure = shown["total"][name.replace("hours", "gpu_hours")]
        assert figure == pytest.approx(getattr(whole.amounts, name), abs=1e-3)
    assert shown["total"]["cost"] == whole.cost
    rows = list(csv.DictReader(io.StringIO(found["csv"])))
    assert hours(rows) == pytest.approx(whole.amounts.allocated_hours, abs=1e-4)
    assert len(found["queue"]["value"]["waiting"]) == found["queue"]["value"]["total"]
    assert found["queue"]["value"]["total"] == len(found["jobs"]) == 5000 + more
    assert len(found["nodes"]) == len(list(model.ledger.cluster.nodes()))


def show_nodes(model, number):
    for at in range(number):
        model.ledger.nodes.upsert(node(f"n{at}"))
        model.ledger.gpus.upsert(gpu_node(f"n{at}"))


@pytest.mark.parametrize("text", ["x", "1/2/3", "1/2026-11-24T10:00:00Z/team", "a/b/c/d"])
async def test_an_invalid_queue_cursor_is_refused_by_name(call, text):
    found = await call("queue", after=text)
    assert (found.status, found.body["field"]) == (400, "after")
    assert "send `next`" in found.body["detail"]
