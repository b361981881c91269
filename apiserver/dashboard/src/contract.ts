// SPDX-License-Identifier: Apache-2.0
/**
 * Answers of gpupack-api, under the page's names. One GB is 10^9 bytes. `lib/restapi` describes the
 * fields; schema.ts is generated from the OpenAPI document.
 */

import type { components } from "./schema.ts";

type Schemas = components["schemas"];

/** The server sends every field of an answer, also one that has a default. */
type Sent<T> = T extends object ? { readonly [Name in keyof T]-?: Sent<T[Name]> } : T;

export type Problem = Sent<Schemas["Problem"]>;

export type Device = Sent<Schemas["DeviceView"]>;
export type Node = Sent<Schemas["NodeView"]>;
export type Sample = Sent<Schemas["Sample"]>;
export type Monitoring = Sent<Schemas["Monitoring"]>;

export type Job = Sent<Schemas["JobView"]>;
export type Attempt = Sent<Schemas["AttemptView"]>;
export type Worker = Sent<Schemas["WorkerView"]>;
export type JobDetail = Sent<Schemas["JobDetail"]>;
export type Waiting = Sent<Schemas["QueueRow"]>;
export type Queue = Sent<Schemas["Queue"]>;
export type Holder = Sent<Schemas["HolderView"]>;

export type JobName = Pick<Job, "namespace" | "name">;
export type Start = Sent<Schemas["StartView"]>;
export type Explanation = Sent<Schemas["Explanation"]>;
export type WhatIf = Sent<Schemas["Outcome"]>;

export type Quota = Sent<Schemas["QuotaView"]>;
export type QuotaSeries = Sent<Schemas["QuotaSeries"]>;
export type Reservation = Sent<Schemas["ReservationView"]>;
export type QuotaHistory = Sent<Schemas["History"]>;

export type CostRow = Sent<Schemas["CostRow"]>;
export type UnheldRow = Sent<Schemas["UnheldRow"]>;
export type Cost = Sent<Schemas["Costs"]>;
