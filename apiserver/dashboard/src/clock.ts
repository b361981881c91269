// SPDX-License-Identifier: Apache-2.0
/** The time as the page shows it: moves once a second where seconds are shown, else slowly. */

import { signal } from "@preact/signals";

export const seconds = signal(Date.now());
export const minutes = signal(Date.now());

setInterval(() => {
  seconds.value = Date.now();
}, 1000);
setInterval(() => {
  minutes.value = Date.now();
}, 10_000);
