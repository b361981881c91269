# SPDX-License-Identifier: Apache-2.0
import collections
import contextlib
import sqlite3

import pytest
from accounts import DAY

from gpupack_apiserver.accounts.claim import Claim, HeldGpu
from gpupack_apiserver.accounts.store import MAX_JOBS_PER_DAY, Counted, Store
from gpupack_apiserver.errors import StoreUnusable
from gpupack_cost import Amounts, Key, Prices, allocated


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cost.sqlite"


@pytest.fixture
def store(path):
    made = Store(path)
    yield made
    made.close()


def counted(job, *, start=0.0, end=60.0, namespace="team"):
    claim = Claim(
        key=f"{namespace}/{job}/{start}",
        namespace=namespace,
        job=job,
        held=(HeldGpu("GPU-1", 1000, "H100"),),
        bound=DAY + start,
    )
    return Counted(claim, DAY + start, DAY + end)


def save(store, *each):
    tariffs = store.update_tariffs("EUR", Prices({}), DAY)
    store.save([(one, allocated(one.holding, tariffs)) for one in each])


def sums(store, since=0, until=86_400, namespaces=None):
    reader = store.reader()
    found = list(reader.sums(DAY + since, DAY + until, namespaces))
    reader.close()
    by_tenant = collections.Counter()
    for key, amounts in found:
        by_tenant[key.tenant] += amounts.allocated / 1000
    return by_tenant


def jobs(store):
    reader = store.reader()
    found = list(reader.jobs(DAY, DAY + 86_400, None))
    reader.close()
    return {key.job: amounts.allocated / 1000 for key, amounts in found}


def test_a_second_process_cannot_open_the_file(store, path):
    with pytest.raises(StoreUnusable, match="open in another process"):
        Store(path)


def test_a_file_of_a_newer_release_is_not_changed(path):
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnusable, match="of version 99"):
        Store(path)


def test_a_file_of_another_program_is_refused(path):
    path.write_text("not a database at all, but long enough to look like one " * 20)
    with pytest.raises(StoreUnusable, match="cannot be used"):
        Store(path)


def test_sums_by_hour_and_by_day_are_equal(store):
    save(store, counted("a", start=3600, end=3 * 86_400))
    whole = sums(store, 0, 4 * 86_400)
    parts = sums(store, 0, 5 * 3600)["team"] + sums(store, 5 * 3600, 4 * 86_400)["team"]
    assert whole == {"team": 3 * 86_400 - 3600} == {"team": parts}


def test_only_the_requested_namespaces_are_read(store):
    save(store, counted("a"), counted("b", namespace="other"))
    assert sums(store, namespaces={"team", "absent"}) == {"team": 60}
    assert sums(store, namespaces=()) == {}


def test_jobs_beyond_the_daily_maximum_count_without_a_name(store):
    many = MAX_JOBS_PER_DAY + 50
    save(store, *(counted(f"j{number}") for number in range(many)))
    save(store, counted("other", namespace="other"))
    assert len(jobs(store)) == MAX_JOBS_PER_DAY + 1
    assert "other" in jobs(store)
    assert sums(store)["team"] == many * 60


def test_the_daily_maximum_of_named_jobs_holds_after_a_restart(store, path):
    save(store, *(counted(f"j{number}") for number in range(MAX_JOBS_PER_DAY)))
    store.close()
    again = Store(path)
    save(again, counted("one-more"), counted("j0", start=60, end=100))
    assert len(jobs(again)) == MAX_JOBS_PER_DAY
    assert jobs(again)["j0"] == 100
    again.close()


def test_a_reader_sees_the_file_at_its_creation(store):
    save(store, counted("a"))
    reader = store.reader()
    save(store, counted("b"))
    ((_, amounts),) = reader.sums(DAY, DAY + 86_400, None)
    assert amounts.allocated == 60_000
    reader.close()
    assert sums(store) == {"team": 120}


def test_a_failed_write_is_rolled_back(store):
    key = Key(DAY, 0, "team", "", "", "H100")
    with pytest.raises(sqlite3.Error):
        store.save([], measured={key: Amounts(allocated=1.0)}, settled={"uid": object()})
    assert sums(store) == {}


def test_old_data_is_deleted_from_all_tables(store):
    save(store, counted("a"), counted("b", start=86_400, end=86_500))
    store.drop_jobs_before(DAY + 86_400 + 7)
    assert jobs(store) == {}
    assert sums(store, 0, 2 * 86_400) == {"team": 160}
    store.drop_before(DAY + 86_400 + 7)
    assert sums(store, 0, 2 * 86_400) == {"team": 100}


def test_names_of_jobs_leave_the_memory_before_the_disk(store):
    store.save([], measured={Key(DAY, 0, "team", "", "job", "H100"): Amounts(allocated=1.0)})
    store.drop_jobs_before(DAY)
    assert not store._names
    store.save([], measured={Key(DAY, 0, "team", "", "job", "H100"): Amounts(allocated=-1.0)})
    reader = store.reader()
    assert [amounts.allocated for _, amounts in reader.jobs(DAY, DAY + 86_400, None)] == [0.0]
    reader.close()
