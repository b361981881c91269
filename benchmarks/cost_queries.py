# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of GPU-hour accounting and the time of queries about a year.

Two parts, each in a file of its own on this machine's disk:

* a year of --namespaces namespaces, one row per hour, queried by namespace and by model, over
  periods that begin and end within a day, so that both hours and days are read;
* --pods pods that start and end within an hour, each with the four events of its watch (bound,
  running, ended, deleted), decoded from JSON as they arrive and written every half second.

    python benchmarks/cost_queries.py [--namespaces 200] [--pods 20000]
"""

import argparse
import pathlib
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/helpers"))

import msgspec  # noqa: E402
from accounts import DAY, Accounts, bound_pod  # noqa: E402
from extender_builders import gpu_node, node, whole  # noqa: E402

from gpupack_apiserver.accounts.usage_recorder import FLUSH_SECONDS  # noqa: E402
from gpupack_cost import Group, statement, total  # noqa: E402
from gpupack_scheduler.ledger.watched_pod import WatchedPod  # noqa: E402

HOUR = 3600
YEAR = 365 * 24
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
NODES = 64


def year(namespaces: int, repeats: int) -> None:
    """Fill the tables and time the queries."""
    with tempfile.TemporaryDirectory() as folder:
        accounts = Accounts(pathlib.Path(folder) / "cost.sqlite")
        rows = fill(accounts.path, namespaces)
        size = accounts.path.stat().st_size / 1e6
        print(f"{namespaces} namespaces, {YEAR} hours: {rows:,} rows, {size:,.0f} MB")
        since, until = DAY - YEAR * HOUR + 5 * HOUR, DAY - 3 * HOUR
        for by in (Group.NAMESPACE, Group.MODEL):
            for name, wanted in (("all namespaces", None), ("one", frozenset({"team-7"}))):
                taken = []
                for _ in range(repeats):
                    began = time.perf_counter()
                    reader = accounts.store.reader()
                    sums = reader.sums(since, until, wanted)
                    lines = statement(sums, by, accounts.recorder.tariffs)
                    reader.close()
                    taken.append((time.perf_counter() - began) * 1000)
                hours = total(lines).amounts.allocated_hours
                print(
                    f"  by {by}, {name}: {len(lines)} rows, {hours:,.0f} GPU-hours: "
                    f"median {statistics.median(taken):.1f} ms, longest {max(taken):.1f} ms"
                )
        accounts.kill()


def fill(path: pathlib.Path, namespaces: int) -> int:
    """Write a row for each hour and namespace, and the rows of their days; return their number."""
    db = sqlite3.connect(path, isolation_level=None)
    first = DAY - YEAR * HOUR
    half = HOUR * 1000 * 0.5
    db.execute("BEGIN")
    for table, step in (("hours", HOUR), ("days", 24 * HOUR)):
        part = step / HOUR * half
        db.executemany(
            f"INSERT INTO {table} VALUES (?, 0, 'team-' || ?, 'research', ?, ?, ?, ?, ?, ?)",  # noqa: S608 - ours
            (
                (start, number, MODELS[number % 2], 2 * part, part, part / 2, part, part)
                for start in range(first, DAY, step)
                for number in range(namespaces)
            ),
        )
    db.execute("COMMIT")
    row: tuple[int] = db.execute(
        "SELECT (SELECT count(*) FROM hours) + (SELECT count(*) FROM days)"
    ).fetchone()
    db.close()
    return row[0]


def hour(pods: int) -> None:
    """Feed an hour of pod events as fast as they are processed, and print the cost."""
    with tempfile.TemporaryDirectory() as folder:
        accounts = Accounts(pathlib.Path(folder) / "cost.sqlite")
        for number in range(NODES):
            accounts.stores["nodes"].upsert(node(f"n{number}"))
            accounts.stores["gpus"].upsert(gpu_node(f"n{number}", gpus=8))
        events = sorted(shown(pods), key=lambda event: event[0])
        store, decoder = accounts.stores["pods"], msgspec.json.Decoder(WatchedPod)
        flushed, flushes, began = 0.0, 0, time.process_time()
        for moment, body, deleted in events:
            accounts.time = moment
            pod = decoder.decode(body)
            store.remove(pod) if deleted else store.upsert(pod)
            if moment - flushed >= FLUSH_SECONDS:
                accounts.recorder.flush()
                flushed, flushes = moment, flushes + 1
        accounts.at(HOUR + 600)
        spent = time.process_time() - began
        gpu_seconds = sum(accounts.seconds(Group.NAMESPACE).values())
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = accounts.path.stat().st_size / 1e6
        print(
            f"{pods:,} pods in an hour, {len(events):,} events, {flushes:,} writes: {spent:.1f} s "
            f"of CPU, {100 * spent / HOUR:.2f}% of a core; {gpu_seconds:,.0f} GPU-seconds counted; "
            f"{most:.0f} MiB at most, file of {size:.1f} MB, "
            f"{len(accounts.tracker.claims)} claims left in memory"
        )
        accounts.kill()


def shown(pods: int) -> Iterator[tuple[float, bytes, bool]]:
    """Yield each event: time, JSON, and whether it is the pod's last."""
    for number in range(pods):
        start = float(number * HOUR // pods)
        where, gpu = f"n{number % NODES}", number // NODES % 8
        given = {"on": where, "devices": whole(where, gpu), "namespace": f"team-{number % 40}"}
        name, lasts = f"pod-{number}", 20.0 + number % 60
        running = msgspec.json.encode(bound_pod(name, bound=start, **given))
        ended = msgspec.json.encode(bound_pod(name, bound=start, ended=start + lasts, **given))
        yield start, running, False
        yield start + 2, running, False
        yield start + lasts + 1, ended, False
        yield start + lasts + 3, ended, True


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=200)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    hour(options.pods)
    year(options.namespaces, options.repeats)


if __name__ == "__main__":
    main()
