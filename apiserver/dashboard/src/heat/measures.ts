// SPDX-License-Identifier: Apache-2.0
/** Measures of GPUs for the heat map: their colours, and descriptions in words. */

import type { Device, Holder } from "../contract.ts";
import { count, mebibytes, memory, percent, temperature } from "../format.ts";
import { EMPTY, healthColour, shade, type Theme, tenantColour } from "./colours.ts";

export type Measure = "allocated" | "holder" | "temperature" | "busy" | "health";

export const MEASURES: readonly { readonly measure: Measure; readonly title: string }[] = [
  { measure: "allocated", title: "Allocated" },
  { measure: "holder", title: "Held by" },
  { measure: "busy", title: "Busy" },
  { measure: "temperature", title: "Temperature" },
  { measure: "health", title: "Health" },
];

/** Degrees Celsius at the ends of the scale. */
export const COLD = 25;
export const HOT = 90;

export type Holders = ReadonlyMap<string, readonly Holder[]>;
export type Ranks = ReadonlyMap<string, number>;

/** Colour of a GPU. null: unknown. */
export function colourOf(
  device: Device,
  measure: Measure,
  theme: Theme,
  holders: Holders,
  ranks: Ranks,
): string | null {
  if (measure === "allocated") return shade("cool", device.given_percent / 100, theme);
  if (measure === "health") return healthColour(device.health, theme);
  if (measure === "busy") return scaled(device.busy_percent, 0, 100, "cool", theme);
  if (measure === "temperature")
    return scaled(device.temperature_celsius, COLD, HOT, "warm", theme);
  const held = holders.get(device.uuid)?.[0];
  if (held) return tenantColour(ranks.get(held.namespace) ?? Number.POSITIVE_INFINITY, theme);
  return device.given_percent === 0 ? EMPTY[theme] : null;
}

/** Namespaces by the GPUs that they hold, the largest first. */
export function ranked(holders: Holders): Ranks {
  const held = new Map<string, number>();
  for (const each of [...holders.values()].flat()) {
    held.set(each.namespace, (held.get(each.namespace) ?? 0) + each.percent);
  }
  const order = [...held].sort(([a, ofA], [b, ofB]) => ofB - ofA || (a < b ? -1 : 1));
  return new Map(order.map(([namespace], rank) => [namespace, rank]));
}

export function modelOf(device: Device): string {
  return [device.gpu_type, device.mig_profile && `slice ${device.mig_profile}`]
    .filter(Boolean)
    .join(", ");
}

export function heldBy(device: Device, holders: Holders): string {
  const held = holders.get(device.uuid) ?? [];
  const [first] = held;
  if (!first) return device.given_percent === 0 ? "no pod" : "not shown to you";
  const name = `${first.namespace}/${first.job || first.pod}`;
  return held.length > 1 ? `${name} and ${count(held.length - 1, "other")}` : name;
}

/** Describes a GPU in a sentence, for screen readers. */
export function described(node: string, device: Device, holders: Holders): string {
  const allocated = device.given_percent;
  return [
    `${node}, GPU ${device.index}${device.simulated ? " (simulated)" : ""}`,
    modelOf(device),
    device.health,
    allocated === 0 ? "free" : `${percent(allocated)} allocated`,
    allocated === 0 ? "" : `held by ${heldBy(device, holders)}`,
    `temperature ${temperature(device.temperature_celsius)}`,
    `busy ${percent(device.busy_percent)}`,
    memory(mebibytes(device.memory_gb)),
  ]
    .filter(Boolean)
    .join(", ");
}

function scaled(
  value: number | null | undefined,
  min: number,
  max: number,
  scale: "cool" | "warm",
  theme: Theme,
): string | null {
  if (value === null || value === undefined) return null;
  return shade(scale, (value - min) / (max - min), theme);
}
