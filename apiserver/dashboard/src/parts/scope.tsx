// SPDX-License-Identifier: Apache-2.0
/** Namespace whose jobs, quotas and costs are shown. Empty: all that the user may see. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

const NAMESPACE = /^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$/;

export const scope = signal("");

export function Scope() {
  const [text, setText] = useState(scope.value);
  const wrong = !NAMESPACE.test(text);
  const apply = () => {
    if (!wrong) scope.value = text;
  };
  return (
    <form
      class="scope"
      onSubmit={(event) => {
        event.preventDefault();
        apply();
      }}
    >
      <label>
        Namespace
        <input
          value={text}
          placeholder="all"
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          maxLength={63}
          aria-invalid={wrong}
          onInput={(event) => setText(event.currentTarget.value.trim())}
          onBlur={apply}
        />
      </label>
    </form>
  );
}
