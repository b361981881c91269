# SPDX-License-Identifier: Apache-2.0
"""Measures the dashboard's speed with a large cluster, and its cost for the browser.

The page runs in Chromium on the real REST API, whose Kubernetes API server holds a made-up cluster.
`first view` is the time from the request of the page until the map shows every node, with a
signed-in user. `at rest` and `updates` are CPU time over so many seconds without changes and with
changing nodes every second: of the tab's own process, and of all of Chromium's, which without a
GPU also composes the picture on the CPU.

    make dashboard chromium && python benchmarks/dashboard_page.py [--nodes 5000] [--pods 20000]
"""

import argparse
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

from playwright.sync_api import Browser, CDPSession, Page

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "tests/browser")]

from chromium import launched  # noqa: E402
from server import Server  # noqa: E402
from world import ADMIN  # noqa: E402

DRAWN = """() => new Promise((resolve) => {
    const look = () => {
        const text = document.querySelector(".figures")?.textContent ?? "";
        const canvas = document.querySelector(".heat canvas");
        if (!text.includes("NODES") || !canvas || canvas.width < 400) requestAnimationFrame(look);
        else requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
    };
    look();
})"""
"""Milliseconds since the page was requested."""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--changing", type=int, default=100, help="Nodes that change each second.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--views", type=int, default=5, help="How often the page is opened.")
    options = parser.parse_args()
    print(f"{options.nodes} nodes with 8 GPUs, {options.pods} pods", flush=True)
    large = ("--world", "large", "--nodes", str(options.nodes), "--pods", str(options.pods))
    server = Server(*large)
    try:
        with launched() as browser:
            measure(browser, server, options)
    finally:
        server.kill()


def measure(browser: Browser, server: Server, options: argparse.Namespace) -> None:
    """Print every figure."""
    first = [first_view(browser, server, options.nodes) for _ in range(options.views)]
    print(f"first view     median {statistics.median(first):6.0f} ms  most {max(first):6.0f} ms")
    page = opened(browser, server)
    page.evaluate(DRAWN.replace("NODES", f"{options.nodes:,}"))
    time.sleep(5)
    processes = browser.new_browser_cdp_session()
    rest = spent(processes, options.seconds, lambda: None)
    free = page.locator(".figures").inner_text()
    busy = spent(processes, options.seconds, lambda: server.change("churn", nodes=options.changing))
    if page.locator(".figures").inner_text() == free:
        sys.exit("the page did not follow the cluster")
    for name, (tab, whole) in {"at rest": rest, "updates": busy}.items():
        print(f"{name:14} tab {tab * 100:5.1f} % of a core  all of Chromium {whole * 100:5.1f} %")
    memory = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    print(f"JavaScript's memory {memory:.0f} MB")


def first_view(browser: Browser, server: Server, nodes: int) -> float:
    """Return the milliseconds from the request of the page until it is drawn."""
    page = opened(browser, server)
    drawn: float = page.evaluate(DRAWN.replace("NODES", f"{nodes:,}"))
    page.context.close()
    return drawn


def opened(browser: Browser, server: Server) -> Page:
    """Return the page of a signed-in user in a browser with an empty cache."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1360, "height": 820})
    page = context.new_page()
    page.add_init_script(f"sessionStorage.setItem('gpupack.token', '{ADMIN}')")
    page.goto(server.page, wait_until="commit")
    return page


def spent(
    processes: CDPSession, seconds: int, each_second: Callable[[], None]
) -> tuple[float, float]:
    """Return the fractions of a core that the busiest tab and all processes took."""
    before, began = used(processes), time.monotonic()
    for turn in range(seconds):
        each_second()
        time.sleep(max(began + turn + 1 - time.monotonic(), 0))
    took = time.monotonic() - began
    after = {key: value - before.get(key, 0.0) for key, value in used(processes).items()}
    tabs = [value for (kind, _), value in after.items() if kind == "renderer"]
    return max(tabs) / took, sum(after.values()) / took


def used(processes: CDPSession) -> dict[tuple[str, int], float]:
    """Return the CPU seconds of Chromium's processes by kind and number."""
    found = processes.send("SystemInfo.getProcessInfo")["processInfo"]
    return {(each["type"], each["id"]): each["cpuTime"] for each in found}


if __name__ == "__main__":
    main()
