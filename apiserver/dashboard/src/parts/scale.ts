// SPDX-License-Identifier: Apache-2.0
/** Round numbers for axes. */

/** Ticks from 0 to the first round number that is at least `max`. If `max` is 0, to 1. */
export function ticks(max: number, wanted = 4): number[] {
  const step = roundStep(Math.max(max, 0) / wanted || 1 / wanted);
  const last = Math.max(Math.ceil(max / step - 1e-9), 1);
  return Array.from({ length: last + 1 }, (_, at) => Number((at * step).toPrecision(12)));
}

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
];

/** Ticks between two times in milliseconds, at round times of the clock, at most `wanted`. */
export function timeTicks(from: number, to: number, wanted: number): number[] {
  const seconds = Math.max((to - from) / 1000, 1);
  const days = Math.ceil(seconds / wanted / 86_400) * 86_400;
  const step = (TIME_STEPS.find((each) => seconds / each <= wanted) ?? days) * 1000;
  const first = Math.ceil(from / step) * step;
  const number = Math.max(Math.floor((to - first) / step) + 1, 0);
  return Array.from({ length: number }, (_, at) => first + at * step);
}

function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 2.5, 5, 10].find((each) => each * power >= least * (1 - 1e-9)) ?? 10;
  return factor * power;
}
