// SPDX-License-Identifier: Apache-2.0
/** The sign-in form. If a token has expired, the form is shown over the view. */

import { useEffect, useRef, useState } from "preact/hooks";
import { refusal, signIn, signOut, token } from "../session.ts";
import { cleaned, fault } from "../token.ts";

const COMMAND = "kubectl create token ACCOUNT --namespace NAMESPACE --duration 8h";

const HOST_COMMAND = "python -m gpupack_apiserver.host token";

export function Login() {
  const again = token.value !== "";
  return again ? (
    <Dialog />
  ) : (
    <main class="login">
      <h1>gpupack</h1>
      <Form />
    </main>
  );
}

function Dialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="login"
      aria-labelledby="again"
      onCancel={(event) => event.preventDefault()}
    >
      <h2 id="again">Sign in again</h2>
      <p>The view behind this dialog stays as it is.</p>
      <Form />
      <button type="button" class="quiet" onClick={signOut}>
        Forget everything instead
      </button>
    </dialog>
  );
}

function Form() {
  const [text, setText] = useState("");
  const [said, setSaid] = useState("");
  const wrong = said || refusal.value;
  const submit = (event: Event) => {
    event.preventDefault();
    const given = cleaned(text);
    const found = fault(given);
    setSaid(found);
    if (!found) signIn(given);
  };
  return (
    <form onSubmit={submit} autocomplete="off">
      <label for="token">Token of the Kubernetes API server, or of this machine's server</label>
      <textarea
        id="token"
        rows={4}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        aria-invalid={wrong !== ""}
        aria-describedby="token-wrong token-help"
        value={text}
        autofocus
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey) submit(event);
        }}
      />
      <p id="token-wrong" class="wrong" role="alert">
        {wrong}
      </p>
      <button type="submit" class="primary">
        Sign in
      </button>
      <div id="token-help" class="muted">
        <p>For a service account. Its permissions decide what is shown:</p>
        <pre>{COMMAND}</pre>
        <p>For the server of a single machine, without a cluster:</p>
        <pre>{HOST_COMMAND}</pre>
        <p>
          The token stays in this tab until the tab is closed. It is not part of an address, and is
          sent only to this server.
        </p>
      </div>
    </form>
  );
}
