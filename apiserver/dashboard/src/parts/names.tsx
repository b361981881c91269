// SPDX-License-Identifier: Apache-2.0
/** Names of nodes, of which a line ends between two and not within one. */

/** @param of as an answer has them: "n1,n2". */
export function NodeNames({ of }: { of: string }) {
  return of
    .split(",")
    .flatMap((name, at) => [at > 0 && ", ", <span class="name">{name.trim()}</span>]);
}
