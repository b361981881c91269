// SPDX-License-Identifier: Apache-2.0
/** How long to wait before the next try. */

export const FIRST_SECONDS = 1;
export const MAX_SECONDS = 30;

/**
 * Doubles with each failure in a row. By chance up to half of it less, so that many pages do not
 * come back to a new server in the same moment.
 */
export function pauseSeconds(failures: number, chance: number): number {
  const longest = Math.min(FIRST_SECONDS * 2 ** Math.min(failures, 10), MAX_SECONDS);
  return longest * (1 - chance / 2);
}
