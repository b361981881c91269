// SPDX-License-Identifier: Apache-2.0
/** Current time, updated every second for views that show seconds, and every ten seconds for others. */

import { signal } from "@preact/signals";

export const seconds = signal(Date.now());
export const minutes = signal(Date.now());

setInterval(() => {
  seconds.value = Date.now();
}, 1000);
setInterval(() => {
  minutes.value = Date.now();
}, 10_000);
