// SPDX-License-Identifier: Apache-2.0
/**
 * Formats figures and times for readers, as the command line does (gpupack_cli/figures.py).
 *
 *     percent        2.3%  13%    allocated part, or part of the time for which a GPU is busy
 *     memory         79.6 GiB     2^30 bytes, as manifests write it; the REST API uses 10^9 (GB)
 *     GPU-hours, kWh 1,234.6      one decimal, cost two; small numbers have two significant digits
 *     power          2,100 W
 *     temperature    71 °C
 *     duration, age  43s 12m 3h20m 5d2h
 *
 * Halves are rounded up. `tests/helpers/figures.json` has the test cases for both languages.
 */

export const UNKNOWN = "unknown";
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SHORT_MS = 5 * MINUTE * 1000;

const MIB_PER_GIB = 2 ** 10;
const MIB_PER_GB = 1e9 / 2 ** 20;
const WHOLE_FROM = 10;

type Known = number | null | undefined;

/** A whole number from 10 on, otherwise one decimal unless it is 0. */
export function percent(value: Known): string {
  if (value === null || value === undefined) return UNKNOWN;
  return `${value >= WHOLE_FROM ? whole(value) : trimmed(figure(value))}%`;
}

/** A rounded number with thousands separators. */
export function whole(value: number): string {
  return fixed(value, 0);
}

/** A number with this many decimals. A number that would round to 0 has two significant digits. */
export function figure(value: Known, digits = 1): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 10 ** -digits) {
    return value.toLocaleString("en", { maximumSignificantDigits: 2 });
  }
  return fixed(value, digits);
}

/** Memory in GiB. */
export function memory(mebibytes: number): string {
  return `${trimmed(fixed(mebibytes / MIB_PER_GIB, 1))} GiB`;
}

/** Converts GB of 10^9 bytes, as in the REST API, to MiB. */
export function mebibytes(gigabytes: number): number {
  return Math.round(gigabytes * MIB_PER_GB);
}

export function temperature(celsius: Known): string {
  return celsius === null || celsius === undefined ? UNKNOWN : `${whole(celsius)} °C`;
}

export function power(watts: Known): string {
  return watts === null || watts === undefined ? UNKNOWN : `${whole(watts)} W`;
}

/** A duration in its largest unit and the next smaller one, rounded down. */
export function duration(seconds: number): string {
  const all = Math.max(Math.floor(seconds), 0);
  if (all < MINUTE) return `${all}s`;
  if (all < HOUR) return `${Math.floor(all / MINUTE)}m`;
  if (all < DAY) return joined(Math.floor(all / HOUR), "h", Math.floor((all % HOUR) / MINUTE), "m");
  return joined(Math.floor(all / DAY), "d", Math.floor((all % DAY) / HOUR), "h");
}

/** Time since a moment. Empty: the moment is unknown. */
export function age(moment: string | null, now: number): string {
  if (moment === null) return "";
  const at = Date.parse(moment);
  return Number.isNaN(at) ? "" : duration((now - at) / 1000);
}

/** The time of day, with seconds if the period shown is a few minutes. */
export function clock(milliseconds: number, shownMilliseconds = Number.POSITIVE_INFINITY): string {
  const digits = "2-digit";
  const short = shownMilliseconds < SHORT_MS ? ({ second: digits } as const) : {};
  const form = { hour: digits, minute: digits, ...short } as const;
  return new Date(milliseconds).toLocaleTimeString("en-GB", form);
}

export function moment(milliseconds: number): string {
  const date = new Date(milliseconds);
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return `${day} ${date.toLocaleTimeString("en-GB")}`;
}

/** A number with its noun: "1 GPU", "1,200 GPUs". */
export function count(number: number, noun: string): string {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Position in the cluster's queue, which includes jobs that the user may not list. */
export function queued(position: number, waiting: number): string {
  const wait = waiting === 1 ? "waits" : "wait";
  return `Number ${whole(position)} of ${whole(waiting)} that ${wait} in the cluster.`;
}

/** Number of pending jobs, with the number that is shown if it is smaller. */
export function shownOf(shown: number, waiting: number): string {
  if (waiting <= shown) return `${count(shown, "job")} waiting`;
  return `${count(shown, "job")} shown, ${whole(waiting)} waiting in the cluster`;
}

/** Order of names in which numbers count by value: n2 before n10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** Parses a number in text, such as a quota's "2.5". 0: there is no number. */
export function amount(text: string): number {
  const found = Number.parseFloat(text);
  return Number.isFinite(found) ? found : 0;
}

function fixed(value: number, digits: number): string {
  const form = { minimumFractionDigits: digits, maximumFractionDigits: digits } as const;
  return value.toLocaleString("en", form);
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function joined(major: number, majorUnit: string, minor: number, minorUnit: string): string {
  return `${major}${majorUnit}${minor ? `${minor}${minorUnit}` : ""}`;
}
