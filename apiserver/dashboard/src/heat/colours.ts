// SPDX-License-Identifier: Apache-2.0
/**
 * Colours of figures.
 *
 * The lightness of scales changes in one direction, so that they are readable with any colour vision
 * and in print. Tenants have the eight colours of Okabe and Ito. Health is shown by the shape of a
 * mark; the colour only repeats it.
 */

type Health = "Healthy" | "Degraded" | "Cordoned" | "Failed" | "Maintenance";

export type Theme = "light" | "dark";

type Rgb = readonly [number, number, number];

const STEPS = 64;

const STOPS: Readonly<Record<"cool" | "warm", Readonly<Record<Theme, readonly Rgb[]>>>> = {
  cool: {
    light: [
      [226, 233, 241],
      [158, 196, 228],
      [74, 144, 200],
      [21, 96, 161],
      [8, 48, 96],
    ],
    dark: [
      [38, 48, 60],
      [36, 84, 128],
      [50, 125, 186],
      [116, 175, 226],
      [205, 230, 252],
    ],
  },
  warm: {
    light: [
      [240, 232, 222],
      [245, 205, 150],
      [232, 146, 60],
      [184, 86, 16],
      [104, 38, 4],
    ],
    dark: [
      [52, 44, 36],
      [110, 62, 20],
      [176, 98, 26],
      [230, 150, 72],
      [254, 224, 178],
    ],
  },
};

const TENANTS: Readonly<Record<Theme, readonly string[]>> = {
  light: ["#0072b2", "#d98200", "#008a63", "#b85a92", "#4da3d9", "#c24e00", "#a79b00", "#5b5b5b"],
  dark: ["#4aa8e0", "#e69f00", "#1fb58a", "#d98bb8", "#8fd0f5", "#f0793a", "#e4d84a", "#b9b9b9"],
};

const OTHER: Readonly<Record<Theme, string>> = { light: "#8b95a1", dark: "#6d7782" };

export const EMPTY: Readonly<Record<Theme, string>> = { light: "#e2e9f1", dark: "#26303c" };

export const MARKS: Readonly<Record<Theme, string>> = { light: "#15202b", dark: "#f4f7fa" };

const HEALTH: Readonly<Record<Theme, Readonly<Record<Health, string>>>> = {
  light: {
    Healthy: "#c6d5e3",
    Degraded: "#f2c14e",
    Cordoned: "#d48fbb",
    Failed: "#d6602a",
    Maintenance: "#7fa8c9",
  },
  dark: {
    Healthy: "#33475a",
    Degraded: "#b8860b",
    Cordoned: "#a3568a",
    Failed: "#cf5a24",
    Maintenance: "#3f7ea8",
  },
};

export const HEALTHS: readonly Health[] = [
  "Healthy",
  "Degraded",
  "Cordoned",
  "Maintenance",
  "Failed",
];

const tables = new Map<string, readonly string[]>();

/** @param part 0 to 1. */
export function shade(scale: "cool" | "warm", part: number, theme: Theme): string {
  const key = scale + theme;
  let table = tables.get(key);
  if (!table) {
    table = Array.from({ length: STEPS }, (_, step) => mixed(STOPS[scale][theme], step));
    tables.set(key, table);
  }
  const step = Math.round(Math.min(Math.max(part, 0), 1) * (STEPS - 1));
  return table[step] ?? EMPTY[theme];
}

/** @param rank of the tenant. 0: the tenant with most GPUs. */
export function tenantColour(rank: number, theme: Theme): string {
  return TENANTS[theme][rank] ?? OTHER[theme];
}

export const COLOURED_TENANTS = TENANTS.light.length;

export function healthColour(health: string, theme: Theme): string {
  return HEALTH[theme][health as Health] ?? OTHER[theme];
}

/** Whether a dark mark is visible on a colour, `#rrggbb` or `rgb(r g b)`. */
export function isLight(colour: string): boolean {
  const parts = colour.startsWith("#")
    ? [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16))
    : (colour.match(/\d+/g) ?? []).map(Number);
  const [red = 0, green = 0, blue = 0] = parts;
  return 0.3 * red + 0.59 * green + 0.11 * blue > 127;
}

function mixed(stops: readonly Rgb[], step: number): string {
  const place = (step / (STEPS - 1)) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [stops[index], stops[index + 1]];
  if (!from || !to) return "#000";
  const part = place - index;
  const [red, green, blue] = from.map((value, at) =>
    Math.round(value + ((to[at] ?? value) - value) * part),
  );
  return `rgb(${red} ${green} ${blue})`;
}
