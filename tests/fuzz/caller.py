# SPDX-License-Identifier: Apache-2.0
"""Sends calls to a running extender and judges what comes back.

Runs inside the network namespace of the extender's pod, where its loopback port is reachable:
`python caller.py`, with a Task as JSON on standard input and a Findings as JSON on standard output.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import pathlib
import ssl
import sys
import time

import calls

ANSWER_SECONDS = 30.0
CALLERS = 4
LORISES = 6
SHOWN = 20
"""Number of faults that are printed in full."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What to do."""

    seed: str
    seconds: float
    pid: int
    """The extender's process, for its memory."""
    nodes: list[str]
    tokens: list[str]
    only: int | None = None
    """Send this one call and show what comes back."""
    ports: dict[str, int] = dataclasses.field(
        default_factory=lambda: {calls.VERBS: 8888, calls.PLANS: 8443}
    )


@dataclasses.dataclass
class Findings:
    """What came back."""

    calls: int = 0
    statuses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    kinds: dict = dataclasses.field(default_factory=dict)
    faults: list = dataclasses.field(default_factory=list)
    fault_count: int = 0
    slowest_ms: float = 0.0
    rss_kib: list = dataclasses.field(default_factory=list)
    """Seconds since the start and KiB."""


class Caller:
    """Makes the calls of one run, several at a time."""

    def __init__(self, task):
        self.task = task
        self.world = calls.World(nodes=task.nodes, tokens=task.tokens)
        self.findings = Findings()
        self.numbers = iter(range(1 << 60))
        self.ends = time.monotonic() + task.seconds
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    async def run(self):
        began = time.monotonic()
        memory = asyncio.create_task(self.watch_memory(began))
        lorises = [asyncio.create_task(self.be_slow(number)) for number in range(LORISES)]
        await asyncio.gather(*(self.call_until_the_end() for _ in range(CALLERS)))
        for task in (memory, *lorises):
            task.cancel()
        await asyncio.gather(memory, *lorises, return_exceptions=True)
        return self.findings

    async def call_until_the_end(self):
        connections = {}
        while time.monotonic() < self.ends:
            call = calls.call(self.task.seed, next(self.numbers), self.world)
            if call.server not in connections:
                connections[call.server] = await self.connect(call.server)
            if not await self.judged(call, connections[call.server]):
                connections.pop(call.server)[1].close()
        for _, writer in connections.values():
            writer.close()

    async def judged(self, call, connection):
        """Make a call; whether its connection can be used again."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await exchange(call, *connection)
        except TimeoutError:
            answer = None
            self.fault(call, f"no answer within {ANSWER_SECONDS:g} s")
        took = time.monotonic() - began
        self.findings.slowest_ms = max(self.findings.slowest_ms, round(took * 1000, 1))
        self.findings.calls += 1
        self.count(call, answer)
        for text in complaints(call, answer):
            self.fault(call, text)
        return answer is not None and answer.reusable and call.expected != calls.RAW

    def count(self, call, answer):
        self.findings.statuses[status_class(answer)] += 1
        kinds = self.findings.kinds.setdefault(call.kind, collections.Counter())
        kinds[str(answer.status) if answer else "none"] += 1

    def fault(self, call, text):
        self.findings.fault_count += 1
        if len(self.findings.faults) < SHOWN:
            sent = call.sent[:300].decode("latin-1")
            fault = {"number": call.number, "kind": call.kind, "fault": text, "sent": sent}
            self.findings.faults.append(fault)

    async def connect(self, server):
        tls = self.tls if server == calls.PLANS else None
        return await asyncio.open_connection(
            "127.0.0.1", self.task.ports[server], ssl=tls, limit=1 << 26
        )

    async def be_slow(self, number):
        """Send a byte a second, again and again; the server must end it, not wait."""
        server = calls.PLANS if number % 2 else calls.VERBS
        while True:
            reader, writer = await self.connect(server)
            began = time.monotonic()
            answer = asyncio.create_task(reader.read())
            for byte in b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100:
                with contextlib.suppress(ConnectionError):
                    writer.write(bytes([byte]))
                await asyncio.wait([answer], timeout=1)
                if answer.done():
                    break
            said = b"" if answer.exception() else answer.result()
            writer.close()
            slow = calls.Call(-1, "slow", server, b"", calls.MALFORMED)
            self.findings.kinds.setdefault("slow", collections.Counter())[said[9:12].decode()] += 1
            if b" 408 " not in said[:20]:
                self.fault(slow, f"{time.monotonic() - began:.1f} s: {said[:200]!r}")

    async def watch_memory(self, began):
        while True:
            kib = rss_kib(self.task.pid)
            self.findings.rss_kib.append((round(time.monotonic() - began), kib))
            await asyncio.sleep(5)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back for one call."""

    status: int
    headers: dict
    body: bytes
    came_after_all_was_sent: bool = True

    @property
    def reusable(self):
        return self.came_after_all_was_sent and self.headers.get("connection") != "close"


async def exchange(call, reader, writer):
    """Send a call and read one answer; None where the other side ended without."""
    sending = asyncio.create_task(send(writer, call))
    try:
        answer = await read_answer(reader, has_body=not call.sent.startswith(b"HEAD "))
        return dataclasses.replace(answer, came_after_all_was_sent=sending.done())
    except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
        return None
    finally:
        sending.cancel()


async def send(writer, call):
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.write(call.sent)
        await writer.drain()
        if call.expected == calls.RAW and writer.can_write_eof():
            writer.write_eof()
        elif call.expected == calls.RAW:
            await asyncio.sleep(1)
            writer.close()


async def read_answer(reader, *, has_body):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    length = int(headers["content-length"]) if has_body else 0
    return Answer(int(head[0].split()[1]), headers, await reader.readexactly(length))


def status_class(answer):
    if answer is None:
        return "none"
    return "not ready" if is_not_ready(answer) else f"{answer.status // 100}xx"


def complaints(call, answer):
    """What is wrong with an answer."""
    if answer is None:
        return [] if call.expected == calls.RAW else ["the connection was closed without an answer"]
    found = []
    if answer.status >= 500 and not is_not_ready(answer):
        found.append(f"{answer.status}: {answer.body[:300]!r}")
    if call.expected == calls.MALFORMED and not 400 <= answer.status < 500:
        found.append(f"{answer.status} for a malformed call: {answer.body[:300]!r}")
    if answer.body and not tells_what_is_wrong(answer):
        found.append(f"{answer.status} does not say why in JSON: {answer.body[:300]!r}")
    return found


def is_not_ready(answer):
    """Whether a plan was refused because the extender does not lead just now.

    Only a well-formed call of an authorized user gets so far, so it says nothing about what
    malformed calls do; a busy machine can cost kube-scheduler its Lease.
    """
    return answer.status == 503 and b'"reason":"NotReady"' in answer.body


def tells_what_is_wrong(answer):
    """Whether a refusal is a Problem; plans that do not fit (409) have a form of their own."""
    if answer.status < 400:
        return True
    try:
        said = json.loads(answer.body)
    except ValueError:
        return False
    return bool(said.get("reason")) and bool(said.get("message"))


def rss_kib(pid):
    """Resident memory of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def show(task):
    """Send one call of the run and print what comes back."""
    caller = Caller(task)
    call = calls.call(task.seed, task.only, caller.world)
    print(call.kind, call.expected, call.sent[:3000], sep="\n", file=sys.stderr)
    print(await exchange(call, *await caller.connect(call.server)), file=sys.stderr)
    return caller.findings


def main():
    task = Task(**json.load(sys.stdin))
    found = asyncio.run(show(task) if task.only is not None else Caller(task).run())
    print(json.dumps(vars(found)))


if __name__ == "__main__":
    main()
