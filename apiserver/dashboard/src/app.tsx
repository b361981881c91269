// SPDX-License-Identifier: Apache-2.0
/** The page around the views: navigation, state of the connection, and sign-in. */

import { effect, signal, untracked } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { seconds } from "./clock.ts";
import { duration } from "./format.ts";
import { cluster } from "./live/cluster.ts";
import { follow, lastDataAt, link, singleMachine } from "./live/feed.ts";
import { Empty } from "./parts/notice.tsx";
import { scope } from "./parts/scope.tsx";
import { format, parse, VIEWS, type View } from "./route.ts";
import { refusal, signOut, token } from "./session.ts";
import { type Choice, choice, choose } from "./theme.ts";
import { expiry, subject } from "./token.ts";
import { ClusterView } from "./views/cluster.tsx";
import { CostView } from "./views/cost.tsx";
import { JobView } from "./views/job.tsx";
import { JobsView, QueueView } from "./views/jobs.tsx";
import { Login } from "./views/login.tsx";
import { NodeView } from "./views/node.tsx";
import { NodesView } from "./views/nodes.tsx";
import { PackingView } from "./views/packing.tsx";
import { QuotasView } from "./views/quotas.tsx";
import { WhatIfView } from "./views/whatif.tsx";

const route = signal(parse(location.hash));
const WITHOUT_CLUSTER: ReadonlySet<View> = new Set(["cluster", "nodes", "packing"]);
const EXPIRES_SOON_MS = 5 * 60 * 1000;

export function App() {
  useEffect(listen, []);
  useEffect(() => effect(keepFollowing), []);
  if (token.value === "") return <Login />;
  return (
    <>
      <button type="button" class="skip" onClick={skip}>
        Skip to the content
      </button>
      <Header />
      <Shown />
      {refusal.value && <Login />}
    </>
  );
}

function listen() {
  const changed = () => {
    route.value = parse(location.hash);
    document.title = titleOf();
    document.getElementById("main")?.focus({ preventScroll: true });
  };
  addEventListener("hashchange", changed);
  return () => removeEventListener("hashchange", changed);
}

function titleOf(): string {
  const { view, of } = route.value;
  const known = VIEWS.find((each) => each.view === view)?.title ?? "";
  return [...of, known, "gpupack"].filter(Boolean).join(" · ");
}

let shownUser = "";

/** Follows the cluster for a token and a namespace. The view is kept only for the same user. */
function keepFollowing() {
  const [used, namespace] = [token.value, scope.value];
  const user = subject(used);
  const stop = new AbortController();
  untracked(() => {
    if (user === "" || user !== shownUser) cluster.clear();
    shownUser = user;
    if (used !== "") void follow(namespace, stop.signal);
  });
  return () => stop.abort();
}

function skip() {
  document.getElementById("main")?.focus();
}

function Header() {
  return (
    <header>
      <a class="brand" href={format("cluster")}>
        gpupack
      </a>
      <nav aria-label="Views">
        <ul>
          {VIEWS.filter(({ view }) => !singleMachine.value || WITHOUT_CLUSTER.has(view)).map(
            ({ view, title }) => (
              <li key={view}>
                <a
                  href={format(view)}
                  aria-current={route.value.view === view ? "page" : undefined}
                >
                  {title}
                </a>
              </li>
            ),
          )}
        </ul>
      </nav>
      <Link />
      <select
        class="theme"
        aria-label="Colours"
        value={choice.value}
        onChange={(event) => choose(event.currentTarget.value as Choice)}
      >
        <option value="system">system</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
      <button type="button" class="quiet" onClick={signOut}>
        Sign out
      </button>
    </header>
  );
}

/** Shows whether figures are current. If not, it shows their age and the next attempt. */
function Link() {
  const now = seconds.value;
  const state = link.value;
  const old = lastDataAt.value ? duration((now - lastDataAt.value) / 1000) : "";
  const ends = expiry(token.value);
  const soon = ends !== null && ends - now < EXPIRES_SOON_MS && ends > now;
  const text = {
    live: "Live",
    connecting: "Connecting",
    polling: "Every 10s",
    off: "Not connected",
    waiting:
      state.state === "waiting"
        ? `${old ? `${old} old` : "No answer"} · again in ${duration(Math.ceil((state.until - now) / 1000))}`
        : "",
  }[state.state];
  const why = state.state === "waiting" || state.state === "polling" ? state.why : "";
  return (
    <p class={`link link-${state.state}`} title={why}>
      <span class="link-dot" aria-hidden="true" />
      <span>{text}</span>
      {soon && <span class="muted"> · token expires in {duration((ends - now) / 1000)}</span>}
    </p>
  );
}

function Shown() {
  const { view, of } = route.value;
  const [first = "", second = ""] = of;
  if (view === "nodes") return first ? <NodeView name={first} /> : <NodesView />;
  if (view === "jobs") {
    return second ? (
      <JobView namespace={first} name={second} key={`${first}/${second}`} />
    ) : (
      <JobsView />
    );
  }
  if (view === "queue") return <QueueView />;
  if (view === "quotas") return <QuotasView />;
  if (view === "packing") return <PackingView />;
  if (view === "what-if") return <WhatIfView />;
  if (view === "cost") return <CostView />;
  if (view === "cluster") return <ClusterView />;
  return (
    <main class="view" id="main" tabIndex={-1}>
      <Empty title="This view does not exist">
        <a href={format("cluster")}>Go to the cluster</a>
      </Empty>
    </main>
  );
}
