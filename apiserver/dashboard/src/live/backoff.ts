// SPDX-License-Identifier: Apache-2.0
/** Pauses between connection attempts. */

export const FIRST_SECONDS = 1;
export const MAX_SECONDS = 30;

/**
 * The pause doubles with each failure in a row. It is reduced at random by up to a half, so that many
 * pages do not reconnect to a new server at the same time.
 */
export function pauseSeconds(failures: number, chance: number): number {
  const longest = Math.min(FIRST_SECONDS * 2 ** Math.min(failures, 10), MAX_SECONDS);
  return longest * (1 - chance / 2);
}
