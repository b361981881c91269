// SPDX-License-Identifier: Apache-2.0
/** Light or dark: the system's setting, until the user chooses. */

import { computed, signal } from "@preact/signals";
import type { Theme } from "./heat/colours.ts";

export type Choice = "system" | Theme;

const KEY = "gpupack.theme";
const media = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(media.matches);
media.addEventListener("change", () => {
  systemIsDark.value = media.matches;
});

export const choice = signal<Choice>(read());

export const theme = computed<Theme>(() => {
  if (choice.value !== "system") return choice.value;
  return systemIsDark.value ? "dark" : "light";
});

choice.subscribe((chosen) => {
  const root = document.documentElement;
  if (chosen === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = chosen;
});

export function choose(chosen: Choice): void {
  choice.value = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Storage is not allowed: the choice applies until the page is closed.
  }
}

function read(): Choice {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}
