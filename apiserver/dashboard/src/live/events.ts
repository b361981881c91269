// SPDX-License-Identifier: Apache-2.0
/**
 * Server-sent events from a stream of text. EventSource is not used, because it cannot send a header
 * with the token.
 */

export interface ServerEvent {
  readonly kind: string;
  readonly data: string;
}

/** Parses events that arrive in pieces. Each character of a large event is read once. */
export class EventReader {
  #line = "";
  #kind = "";
  #data: string[] = [];

  /** Returns the events that end in this piece. */
  read(piece: string): ServerEvent[] {
    const found: ServerEvent[] = [];
    const lines = piece.split("\n");
    const rest = lines.pop() ?? "";
    for (const line of lines) {
      const all = this.#line + line;
      const event = this.#take(all.endsWith("\r") ? all.slice(0, -1) : all);
      this.#line = "";
      if (event) found.push(event);
    }
    this.#line += rest;
    return found;
  }

  #take(line: string): ServerEvent | null {
    if (line === "") return this.#end();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "event") this.#kind = value;
    if (field === "data") this.#data.push(value);
    return null;
  }

  #end(): ServerEvent | null {
    const event = { kind: this.#kind || "message", data: this.#data.join("\n") };
    const empty = this.#data.length === 0;
    this.#kind = "";
    this.#data = [];
    return empty ? null : event;
  }
}
