# SPDX-License-Identifier: Apache-2.0
"""Sums and claims in SQLite, with one writing process and concurrent readers (WAL).

    claims    what is counted of each claim, until no object of it exists any more
    sums      by hour or day, namespace, cohort, model: exactly what `claims` count
    jobs      the same by day and job, for a limited number of jobs a namespace and day
    capacity  GPUs that were not held, by hour and model
    tariffs   price lists, with their start
    meta      until when all objects were seen

`days` are in the order of the summation, so that a query over a year sorts nothing. `hours`, of
which a query reads the few at the ends of its period, are in the order of time.

A claim and its change of the sums are one transaction: a process that is killed in between has
counted it, or not. Counting the same claim again adds nothing.

A second writing process ends at once: a lock next to the file is held for as long as this process
lives. SQLite's own exclusive mode would exclude readers, too.

Parquet is not used: it has no transactions, and every correction would write a whole file.
"""

import contextlib
import fcntl
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

from gpupack_apiserver.accounts.claim import Claim
from gpupack_apiserver.errors import StoreUnusable
from gpupack_cost import (
    SECONDS_PER_HOUR,
    Amounts,
    Holding,
    Key,
    Prices,
    Sums,
    Tariff,
    Tariffs,
)
from gpupack_cost.errors import InvalidPrices

DAY_SECONDS: Final = 24 * SECONDS_PER_HOUR
MAX_JOBS_PER_DAY: Final = 256
"""Jobs of a namespace and day that are kept by name; other hours are only in namespace sums."""

JOB_DAYS: Final = 62
"""Days for which jobs are kept by name."""

VERSION: Final = 1

_AMOUNTS = """allocated REAL NOT NULL, measured REAL NOT NULL, used REAL NOT NULL,
    metered REAL NOT NULL, joules REAL NOT NULL"""
_ADD = """allocated = allocated + excluded.allocated, measured = measured + excluded.measured,
    used = used + excluded.used, metered = metered + excluded.metered,
    joules = joules + excluded.joules"""

_SCHEMA = f"""
CREATE TABLE claims (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE settled (job_uid TEXT PRIMARY KEY, attempt INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE hours (start INTEGER, tariff INTEGER, namespace TEXT, cohort TEXT, model TEXT,
    {_AMOUNTS}, PRIMARY KEY (start, namespace, model, cohort, tariff)) WITHOUT ROWID;
CREATE TABLE days (start INTEGER, tariff INTEGER, namespace TEXT, cohort TEXT, model TEXT,
    {_AMOUNTS}, PRIMARY KEY (namespace, cohort, model, tariff, start)) WITHOUT ROWID;
CREATE TABLE jobs (start INTEGER, tariff INTEGER, namespace TEXT, cohort TEXT, model TEXT, job TEXT,
    {_AMOUNTS}, PRIMARY KEY (namespace, start, job, model, cohort, tariff)) WITHOUT ROWID;
CREATE TABLE capacity (start INTEGER, tariff INTEGER, model TEXT, unheld REAL NOT NULL,
    unusable REAL NOT NULL, metered REAL NOT NULL, joules REAL NOT NULL,
    PRIMARY KEY (start, model, tariff)) WITHOUT ROWID;
CREATE TABLE tariffs (number INTEGER PRIMARY KEY, since REAL NOT NULL, currency TEXT NOT NULL,
    prices TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""


class Counted(msgspec.Struct, frozen=True):
    """A claim with its period in the sums; None: none of it is counted."""

    claim: Claim
    start: float | None = None
    end: float | None = None

    @property
    def holding(self) -> Holding | None:
        """What is counted."""
        if self.start is None or self.end is None:
            return None
        return self.claim.holding(self.start, self.end)


class Unheld(NamedTuple):
    """GPUs of one model that were not held, in milli-GPU times seconds.

    `usable` ones were available; `unusable` ones were not: failed, in maintenance, not ready.
    """

    usable: float = 0.0
    unusable: float = 0.0
    metered: float = 0.0
    joules: float = 0.0


class CapacityKey(NamedTuple):
    """Hour (seconds since the epoch), number of the price list, label of the model."""

    hour: int
    tariff: int
    model: str


class Saved(NamedTuple):
    """The data of a previous process."""

    counted: tuple[Counted, ...]
    settled: dict[str, int]
    last_seen: float | None


class Store:
    """The file, open for writing.

    Raises:
        StoreUnusable: it cannot be opened, another process has it, or a newer release wrote it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as opened:
            try:
                opened.enter_context(_lock(path))
                self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
                opened.callback(self._db.close)
                self._open()
            except (sqlite3.Error, OSError) as error:
                raise StoreUnusable(
                    f"{path} cannot be used: {error}; it has to be a file of this program's on a "
                    "disk of this machine that it may write to"
                ) from error
            self._opened = opened.pop_all()
        self._names: dict[tuple[int, str], set[str]] = {}
        """Jobs that have a row, by day and namespace, for recently written ones."""

    def close(self) -> None:
        """Write the log into the file, and release it."""
        self._opened.close()

    def reader(self) -> "Reader":
        """Return a concurrent reader, also for another thread."""
        return Reader(self.path)

    def saved(self) -> Saved:
        """Return the saved data, for the start."""
        bodies = self._db.execute("SELECT body FROM claims")
        counted = tuple(msgspec.msgpack.decode(body, type=Counted) for (body,) in bodies)
        settled = dict(self._db.execute("SELECT job_uid, attempt FROM settled").fetchall())
        seen = self._db.execute("SELECT value FROM meta WHERE name = 'last_seen'").fetchone()
        return Saved(counted, settled, seen[0] if seen else None)

    def save(
        self,
        counted: Iterable[tuple[Counted, Sums]],
        *,
        forgotten: Collection[str] = (),
        settled: Mapping[str, int] | None = None,
        measured: Mapping[Key, Amounts] | None = None,
        unheld: Mapping[CapacityKey, Unheld] | None = None,
        last_seen: float | None = None,
    ) -> None:
        """Write claims with their changes, and measurements; all or nothing."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for each, sums in counted:
                body = msgspec.msgpack.encode(each)
                db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?)", (each.claim.key, body))
                self._add({key: Amounts(allocated=amount) for key, amount in sums.items()})
            self._add(measured or {})
            self._add_unheld(unheld or {})
            db.executemany("DELETE FROM claims WHERE key = ?", [(key,) for key in forgotten])
            if settled is not None:
                db.execute("DELETE FROM settled")
                db.executemany("INSERT INTO settled VALUES (?, ?)", settled.items())
            if last_seen is not None:
                db.execute("INSERT OR REPLACE INTO meta VALUES ('last_seen', ?)", (last_seen,))
        except BaseException:
            db.execute("ROLLBACK")
            self._names.clear()
            raise
        db.execute("COMMIT")

    def update_tariffs(self, currency: str, prices: Prices, now: float) -> Tariffs:
        """Return all price lists; add this one from now on where it differs from the last one."""
        known = self._tariffs()
        last = known[-1] if known else None
        same = last is not None and (last.currency, last.prices.per_gpu_hour) == (
            currency,
            prices.per_gpu_hour,
        )
        if not same:
            since = max(now, last.since + 1.0) if last else 0.0
            text = msgspec.json.encode(prices.per_gpu_hour).decode()
            row = (len(known), since, currency, text)
            self._db.execute("INSERT INTO tariffs VALUES (?, ?, ?, ?)", row)
            known = self._tariffs()
        return Tariffs.of(known)

    def drop_before(self, moment: float) -> None:
        """Delete older data, except price lists, whose numbers the remaining data uses."""
        day = _day_of(moment)
        for table in ("hours", "days", "capacity"):
            self._db.execute(f"DELETE FROM {table} WHERE start < ?", (day,))  # noqa: S608 - ours

    def drop_jobs_before(self, moment: float) -> None:
        """Delete the names of jobs; their hours remain in the sums of their namespaces."""
        day = _day_of(moment)
        for namespace in _namespaces(self._db):
            self._db.execute("DELETE FROM jobs WHERE namespace = ? AND start < ?", (namespace, day))
        self._names.clear()

    def _open(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in {0, VERSION}:
            raise StoreUnusable(
                f"{self.path} is of version {version}, and this program writes {VERSION}; "
                "run the release that wrote it, or move the file away"
            )
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")

    def _tariffs(self) -> list[Tariff]:
        return _tariffs(self._db)

    def _add(self, sums: Mapping[Key, Amounts]) -> None:
        for key, amounts in sums.items():
            values = _values(amounts)
            day = _day_of(key.hour)
            for table, start in (("hours", key.hour), ("days", day)):
                row = (start, key.tariff, key.tenant, key.cohort, key.model, *values)
                self._db.execute(
                    f"INSERT INTO {table} VALUES (?,?,?,?,?,?,?,?,?,?) "  # noqa: S608 - ours
                    f"ON CONFLICT DO UPDATE SET {_ADD}",
                    row,
                )
            if self._is_named(day, key, adds=amounts.allocated >= 0):
                job = (day, key.tariff, key.tenant, key.cohort, key.model, key.job, *values)
                self._db.execute(
                    f"INSERT INTO jobs VALUES (?,?,?,?,?,?,?,?,?,?,?) "  # noqa: S608 - ours
                    f"ON CONFLICT DO UPDATE SET {_ADD}",
                    job,
                )

    def _is_named(self, day: int, key: Key, *, adds: bool) -> bool:
        """Return whether the job has its own row: the first JOBS_PER_DAY of a day have one."""
        at = (day, key.tenant)
        if at not in self._names:
            rows = self._db.execute(
                "SELECT DISTINCT job FROM jobs WHERE start = ? AND namespace = ?", at
            )
            self._names[at] = {name for (name,) in rows}
        names = self._names[at]
        if key.job in names:
            return True
        if not key.job or not adds or len(names) >= MAX_JOBS_PER_DAY:
            return False
        names.add(key.job)
        return True

    def _add_unheld(self, unheld: Mapping[CapacityKey, Unheld]) -> None:
        self._db.executemany(
            "INSERT INTO capacity VALUES (?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
            "unheld = unheld + excluded.unheld, unusable = unusable + excluded.unusable, "
            "metered = metered + excluded.metered, joules = joules + excluded.joules",
            [(*key, *amounts) for key, amounts in unheld.items()],
        )


class Reader:
    """A reader of the file as it was when this object was created, while it is written.

    It is for one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(
            f"file:{path}?mode=ro", uri=True, check_same_thread=False, isolation_level=None
        )
        # SQLite takes its snapshot at the first read and not at BEGIN.
        self._db.executescript("BEGIN; SELECT value FROM meta;")

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def sums(
        self, since: int, until: int, namespaces: Collection[str] | None
    ) -> Iterator[tuple[Key, Amounts]]:
        """Yield sums of whole hours: `since` and `until` are starts of hours.

        Args:
            since: seconds since the epoch.
            until: seconds since the epoch; that hour is excluded.
            namespaces: namespaces to read; None: all.
        """
        first, last = -_day_of(-since), _day_of(until)
        if first >= last:
            yield from self._read_sums("hours", since, until, namespaces)
            return
        yield from self._read_sums("hours", since, first, namespaces)
        yield from self._read_sums("days", first, last, namespaces)
        yield from self._read_sums("hours", last, until, namespaces)

    def count_jobs(self, since: int, until: int, namespaces: Collection[str] | None) -> int:
        """Return how many rows `jobs` would read."""
        where, given = _namespace_condition(namespaces)
        (number,) = self._db.execute(
            f"SELECT count(*) FROM jobs WHERE start >= ? AND start < ? {where}",  # noqa: S608
            (since, until, *given),
        ).fetchone()
        return int(number)

    def jobs(
        self, since: int, until: int, namespaces: Collection[str] | None
    ) -> Iterator[tuple[Key, Amounts]]:
        """Yield sums of whole days for the jobs that are kept by name."""
        yield from self._read_sums("jobs", since, until, namespaces)

    def unheld(self, since: int, until: int) -> dict[tuple[int, str], Unheld]:
        """Return unheld GPUs of whole hours, by price list and model."""
        rows = self._db.execute(
            "SELECT tariff, model, sum(unheld), sum(unusable), sum(metered), sum(joules) "
            "FROM capacity WHERE start >= ? AND start < ? GROUP BY tariff, model",
            (since, until),
        )
        return {(tariff, model): Unheld(*amounts) for tariff, model, *amounts in rows}

    def namespaces(self) -> list[str]:
        """Return the namespaces that have any sums."""
        return _namespaces(self._db)

    def _read_sums(
        self, table: str, since: int, until: int, namespaces: Collection[str] | None
    ) -> Iterator[tuple[Key, Amounts]]:
        if since >= until:
            return
        job, by = ("job", ", job") if table == "jobs" else ("''", "")
        where, given = _namespace_condition(namespaces)
        rows = self._db.execute(
            f"SELECT tariff, namespace, cohort, {job} AS job, model, "  # noqa: S608 - all ours
            "sum(allocated), sum(measured), sum(used), sum(metered), sum(joules) "
            f"FROM {table} WHERE start >= ? AND start < ? {where} "
            f"GROUP BY namespace, cohort, model, tariff{by}",
            (since, until, *given),
        )
        for tariff, namespace, cohort, name, model, *amounts in rows:
            yield Key(since, tariff, namespace, cohort, name, model), Amounts(*amounts)


def _lock(path: Path) -> TextIO:
    lock = path.with_name(f"{path.name}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise StoreUnusable(f"{path} is open in another process; end that first") from error
    return lock


def _namespaces(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT DISTINCT namespace FROM days")]


def _namespace_condition(namespaces: Collection[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a condition, and its parameters."""
    if namespaces is None:
        return "", ()
    names = msgspec.json.encode(sorted(namespaces)).decode()
    return "AND namespace IN (SELECT value FROM json_each(?))", (names,)


def _day_of(moment: float) -> int:
    return int(moment // DAY_SECONDS) * DAY_SECONDS


def _tariffs(db: sqlite3.Connection) -> list[Tariff]:
    rows = db.execute("SELECT since, currency, prices FROM tariffs ORDER BY number")
    try:
        return [
            Tariff(since, currency, Prices(msgspec.json.decode(text, type=dict[str, float])))
            for since, currency, text in rows
        ]
    except (InvalidPrices, msgspec.MsgspecError) as error:
        raise StoreUnusable(f"its price lists cannot be read: {error}") from error


def _values(amounts: Amounts) -> tuple[float, ...]:
    return amounts.allocated, amounts.measured, amounts.used, amounts.metered, amounts.joules
