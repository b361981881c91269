# SPDX-License-Identifier: Apache-2.0
"""Cost queries over HTTP: the cost service, and gpupack-api, which forwards them."""

import asyncio
import csv
import datetime as dt
import io
import re
import threading
from unittest.mock import AsyncMock

import httpx
import pytest
from accounts import DAY, bound_pod, when
from extender_builders import part, whole
from fake_api import connected
from listening import listening

import gpupack_cost as accounting
from gpupack_apiserver.accounts.app import application
from gpupack_apiserver.accounts.cost_queries import CostQueries, period_of
from gpupack_apiserver.app import application as api_application
from gpupack_apiserver.caller_header import HEADER, encode
from gpupack_apiserver.errors import CallInvalid
from gpupack_apiserver.rights import Rights
from gpupack_apiserver.routes.cost import BURST, CostQuery, Format
from gpupack_apiserver.settings import CostService
from gpupack_cost import Group
from gpupack_httpserver.server import Server, configured
from gpupack_httpserver.user import User
from gpupack_kubeclient.identity import Identity
from gpupack_kubeclient.kubeconfig.presented import Presented


@pytest.fixture
def used(accounts):
    """Record usage of two namespaces in one cohort, and of a third one outside."""
    accounts.cohorts |= {"team": "research", "others": "research"}
    accounts.at(9000)
    for number, (name, namespace, ended) in enumerate(
        (("mine", "team", 7200), ("secret", "others", 3600), ("third", "third", 3600))
    ):
        more = {"namespace": namespace, "devices": whole("a", number)}
        accounts.show("pods", bound_pod(name, bound=0, ended=ended, **more))
    return accounts


@pytest.fixture
def missing():
    return []


@pytest.fixture
async def desk(used, server, missing):
    """Return the application of the cost service."""
    async with connected(server.app()) as (api, _):
        yield application(
            CostQueries(
                used.recorder,
                Rights(api),
                missing=lambda: "".join(missing),
                now=used.now,
            ),
            lambda: "".join(missing),
        )


@pytest.fixture
async def ask(desk):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(desk), base_url="https://cost"
    ) as client:

        async def get(user="admin", path="cost", **query):
            headers = {"Authorization": f"Bearer {user}-token"} if user else {}
            given = {"since": when(0), "until": when(9000)} if path == "cost" else {}
            url = f"/api/v1/gpu/{path}"
            return await client.get(url, headers=headers, params=given | query)

        yield get


@pytest.mark.parametrize("text", ["0.5", "1700000000", "yesterday", "2026-13-01T00:00:00Z"])
async def test_times_are_written_in_rfc_3339(ask, text):
    answer = await ask(until=text)
    problem = answer.json()
    assert (answer.status_code, problem["field"], problem["value"]) == (400, "until", text)
    assert "2026-11-01T08:00:00Z" in problem["detail"]


async def test_hours_and_costs_of_a_period_by_namespace(ask):
    found = (await ask()).json()
    assert (found["currency"], found["since"], found["until"]) == ("EUR", when(0), when(10_800))
    by_name = {row["namespace"]: row["allocated_gpu_hours"] for row in found["rows"]}
    assert by_name == {"others": 1.0, "team": 2.0, "third": 1.0}
    assert found["total"]["cost"] == 4.0
    row = found["rows"][1]
    assert (row["used_gpu_hours"], row["idle_gpu_hours"], row["energy_kwh"]) == (None, None, None)
    assert (row["unknown_gpu_hours"], row["cohort"], row["cost"]) == (2.0, "research", 2.0)


@pytest.mark.parametrize("by", [str(group) for group in Group])
@pytest.mark.parametrize("form", ["json", "csv"])
async def test_a_tenant_sees_only_its_own_namespace(ask, by, form):
    answer = await ask("tenant", group_by=by, format=form)
    assert answer.status_code == 200
    for name in ("secret", "others", "third"):
        assert name not in answer.text
    if form == "json":
        found = answer.json()
        assert sum(row["allocated_gpu_hours"] for row in found["rows"]) == 2.0
        assert found["total"]["allocated_gpu_hours"] == 2.0
        assert found["unheld"] is None


async def test_a_query_for_a_forbidden_namespace_is_refused(ask):
    answer = await ask("tenant", namespace="others")
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("user", ["", "unknown"])
async def test_callers_without_permissions_see_no_rows(ask, user):
    answer = await ask(user)
    assert answer.status_code == 401
    assert "2.0" not in answer.text


async def test_callers_that_see_all_namespaces_see_unheld_gpus(used, ask):
    for _ in range(3):
        used.look()
    (row,) = (await ask(until=when(20_000))).json()["unheld"]
    assert row["model"] == "NVIDIA H100 80GB HBM3"
    assert row["unheld_gpu_hours"] == pytest.approx(2 * 30 * 8 / 3600, abs=1e-5)


async def test_jobs_are_listed_by_name_for_whole_days(ask):
    found = (await ask(group_by="job", namespace="team")).json()
    assert (found["since"], found["until"]) == (when(0), when(86_400))
    (row,) = found["rows"]
    assert (row["job"], row["namespace"]) == ("Pod/mine", "team")


async def test_hours_of_jobs_that_are_not_kept_by_name_are_one_row(used, ask):
    for number in range(300):
        name = f"p{number}"
        devices = part("b", 0, percent=1)
        used.show("pods", bound_pod(name, on="b", devices=devices, bound=8000, ended=8060))
    rows = []
    after = ""
    while True:
        found = (await ask(group_by="job", namespace="team", limit=100, after=after)).json()
        rows += found["rows"]
        after = found["next"]
        if not after:
            break
    nameless = [row for row in rows if not row["job"]]
    assert len(rows) == 257
    assert len(nameless) == 1
    whole = sum(row["allocated_gpu_hours"] for row in rows)
    hours = (await ask(namespace="team")).json()["total"]["allocated_gpu_hours"]
    assert whole == pytest.approx(hours, abs=1e-3)
    assert found["total"]["allocated_gpu_hours"] == pytest.approx(hours, abs=1e-5)


async def test_a_query_for_too_many_jobs_is_refused(ask, monkeypatch):
    monkeypatch.setattr("gpupack_apiserver.accounts.cost_queries.MAX_JOBS", 2)
    answer = await ask(group_by="job")
    assert (answer.status_code, answer.json()["field"]) == (400, "namespace")
    assert (await ask(group_by="job", namespace="team")).status_code == 200


async def test_csv_has_a_line_for_each_row(ask):
    answer = await ask(format="csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    first, *_ = csv.DictReader(io.StringIO(answer.text))
    assert (first["namespace"], first["used_gpu_hours"], first["cost"]) == ("others", "", "1.0")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
async def test_csv_cells_are_not_formulas(used, ask, name):
    used.cohorts["evil"] = name
    more = {"namespace": "evil", "devices": whole("b", 0), "on": "b"}
    used.show("pods", bound_pod("evil", bound=0, ended=60, **more))
    answer = await ask(format="csv", group_by="cohort", namespace="evil")
    (row,) = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert row["cohort"] == f"'{name}"


async def test_a_csv_page_links_to_the_next_page(used, ask):
    used.cohorts["evil"] = "research & development"
    more = {"namespace": "evil", "devices": whole("b", 0), "on": "b"}
    used.show("pods", bound_pod("evil", bound=0, ended=60, **more))
    rows, query = [], {"format": "csv", "limit": 1, "group_by": "cohort"}
    while query:
        answer = await ask(**query)
        rows += [row["cohort"] for row in csv.DictReader(io.StringIO(answer.text))]
        query = dict(httpx.URL(answer.links["next"]["url"]).params) if answer.links else {}
    assert sorted(rows) == ["", "research", "research & development"]


async def test_a_link_to_the_next_page_keeps_the_period(ask):
    answer = await ask(format="csv", limit=1, since=when(1800), until=when(1801))
    query = dict(httpx.URL(answer.links["next"]["url"]).params)
    assert (query["since"], query["until"]) == (when(0), when(3600))


async def test_pages_are_complete_where_one_name_is_a_prefix_of_another(used, ask):
    more = {"namespace": "team-a", "devices": whole("b", 0), "on": "b"}
    used.show("pods", bound_pod("more", bound=0, ended=60, **more))
    rows, after = [], ""
    while found := (await ask(limit=1, after=after)).json():
        rows += [row["namespace"] for row in found["rows"]]
        if not (after := found["next"]):
            break
    assert sorted(rows) == ["others", "team", "team-a", "third"]


async def test_queries_are_refused_while_data_is_missing(ask, missing):
    missing.append("pods are not read yet")
    answer = await ask()
    assert answer.status_code == 503
    assert answer.json()["detail"].endswith("pods are not read yet")
    assert (await ask(path="health")).json()["status"] == "stale"
    assert (await ask(path="health/ready")).status_code == 503


async def test_too_many_queries_are_refused(ask):
    answers = [(await ask()).status_code for _ in range(15)]
    assert answers[:10] == [200] * 10
    assert 429 in answers[10:]


def asked(**given):
    whole = {"since": None, "until": None, "namespace": "", "limit": 1, "after": ""}
    form = {"format": Format.JSON, "group_by": Group.NAMESPACE}
    return CostQuery(**(whole | form | given))


def test_the_default_period_is_the_last_thirty_days():
    period = period_of(asked(), DAY + 1800)
    assert (period.since, period.until) == (DAY - 30 * 86_400, DAY + 3600)


@pytest.mark.parametrize("zone", [None, dt.UTC, dt.timezone(-dt.timedelta(hours=23))])
def test_extreme_times_are_handled(zone):
    first = dt.datetime(1, 1, 1, tzinfo=zone)
    last = dt.datetime(9999, 12, 31, 23, 59, tzinfo=zone)
    period = period_of(asked(since=first, until=last), DAY)
    assert (period.since, period.until) == (0, DAY)
    with pytest.raises(CallInvalid, match=re.escape(f"since is '{last.isoformat()}'")):
        period_of(asked(since=last, until=first), DAY)
    with pytest.raises(CallInvalid, match="until is '0001-01-01"):
        period_of(asked(until=first), DAY)


@pytest.fixture
async def through_api(desk, parts):
    """Return a gpupack-api that forwards queries to the cost service over HTTP."""
    config = configured(desk, host="127.0.0.1", port=0)
    async with listening(Server(config)) as port:

        def client(url=f"http://127.0.0.1:{port}"):
            app = api_application(parts, CostService(url) if url else None)
            return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://api")

        yield client


BEARER = {"Authorization": "Bearer tenant-token"}
QUERY = {"since": when(0), "until": when(9000)}


async def test_the_api_forwards_a_query_with_the_callers_token(through_api):
    async with through_api() as client:
        answer = await client.get("/api/v1/gpu/cost", headers=BEARER, params=QUERY)
        assert answer.json()["total"]["allocated_gpu_hours"] == 2.0
        form = await client.get(
            "/api/v1/gpu/cost", headers=BEARER, params=QUERY | {"format": "csv"}
        )
        assert form.headers["content-type"] == "text/csv; charset=utf-8"
        assert form.text.count("\n") == 2
        refused = await client.get(
            "/api/v1/gpu/cost", headers=BEARER, params={"namespace": "others"}
        )
        assert (refused.status_code, refused.headers["content-type"]) == (
            403,
            "application/problem+json",
        )
        assert (await client.get("/api/v1/gpu/cost")).status_code == 401
        wrong = await client.get("/api/v1/gpu/cost", headers=BEARER, params={"limit": "many"})
        assert (wrong.status_code, wrong.json()["field"]) == (400, "limit")


async def test_a_caller_without_a_token_is_named_to_the_cost_service(
    through_api, parts, server, monkeypatch
):
    server.users["api-token"] = ("api", [])
    server.rights |= {("api", "create gpujobs/costcaller", "")}
    own = Identity(presented=Presented(authorization="Bearer api-token"))
    monkeypatch.setattr(type(parts.api), "identity", lambda _: asyncio.sleep(0, own))
    by_certificate = AsyncMock(return_value=User("tenant", groups=("größe",)))
    monkeypatch.setattr(parts.rights, "authenticate", by_certificate)
    async with through_api() as client:
        answer = await client.get("/api/v1/gpu/cost", params=QUERY)
        assert answer.json()["total"]["allocated_gpu_hours"] == 2.0, answer.text
        refused = await client.get("/api/v1/gpu/cost", params={"namespace": "others"})
        assert refused.status_code == 403
        assert "tenant may not list" in refused.text
    asked = {(spec["user"], *spec["groups"]) for spec in server.asked_about}
    assert asked == {("api", "system:authenticated"), ("tenant", "größe")}


async def test_only_the_api_may_name_another_user_to_the_cost_service(desk, server):
    server.rights |= {("tenant", "create gpujobs/costcaller", "team")}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(desk), base_url="https://cost"
    ) as client:
        for header in (encode(User("admin")), "", "x"):
            headers = BEARER | {HEADER: header}
            answer = await client.get("/api/v1/gpu/cost", headers=headers, params=QUERY)
            shown = answer.json().get("total", {}).get("allocated_gpu_hours")
            assert (answer.status_code, shown) == ((403, None) if header else (200, 2.0))


@pytest.mark.parametrize("header", ["x", "{}", "%7B%22username%22%3A%20%22%22%7D", "[" * 5000])
async def test_an_invalid_caller_header_is_refused(desk, server, header):
    server.rights |= {("tenant", "create gpujobs/costcaller", "")}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(desk), base_url="https://cost"
    ) as client:
        headers = BEARER | {HEADER: header}
        answer = await client.get("/api/v1/gpu/cost", headers=headers, params=QUERY)
    assert (answer.status_code, answer.json()["field"]) == (400, HEADER)


async def test_the_api_reports_an_unavailable_cost_service(through_api):
    async with through_api("http://127.0.0.1:1") as client:
        answer = await client.get("/api/v1/gpu/cost", headers=BEARER)
        assert answer.status_code == 503
        assert "cost service unavailable" in answer.json()["detail"]


async def test_open_claims_are_summed_in_a_thread_for_visible_namespaces(used, ask, monkeypatch):
    used.show("pods", bound_pod("lasts", bound=7300, devices=whole("b", 0)))
    used.show("pods", bound_pod("hidden", bound=7300, namespace="others", devices=whole("b", 1)))
    summed = []

    def seen(holding, tariffs, *, sum_=accounting.allocated):
        summed.append((holding.job, threading.current_thread() is threading.main_thread()))
        return sum_(holding, tariffs)

    monkeypatch.setattr(accounting, "allocated", seen)
    assert (await ask("tenant")).json()["total"]["allocated_gpu_hours"] == pytest.approx(
        2 + 1700 / 3600, abs=1e-5
    )
    assert summed == [("Pod/lasts", False)]


async def test_too_many_queries_are_refused_before_they_are_forwarded(through_api):
    async with through_api("http://127.0.0.1:1") as client:
        given = {"headers": BEARER, "params": QUERY}
        statuses = [
            (await client.get("/api/v1/gpu/cost", **given)).status_code for _ in range(BURST)
        ]
        assert statuses == [503] * BURST
        refused = await client.get("/api/v1/gpu/cost", **given)
        assert (refused.status_code, "tenant sends too many requests" in refused.text) == (
            429,
            True,
        )


async def test_the_api_reports_that_the_cost_service_is_off(through_api):
    async with through_api("") as client:
        answer = await client.get("/api/v1/gpu/cost", headers=BEARER)
        assert (answer.status_code, "cost.enabled" in answer.json()["detail"]) == (404, True)
