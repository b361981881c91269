// SPDX-License-Identifier: Apache-2.0
/** Names of nodes. Lines break between names and not within a name. */

/** @param of names as in an answer: "n1,n2". */
export function NodeNames({ of }: { of: string }) {
  return of
    .split(",")
    .flatMap((name, at) => [at > 0 && ", ", <span class="name">{name.trim()}</span>]);
}
