// Sends a message with a client that openapi-typescript has made, and prints the answer and its events.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type RunEvent = components["schemas"]["RunEvent"];
declare const process: { argv: string[] };

const [baseUrl = "", key = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

function readEvents(stream: string): RunEvent[] {
  return stream.split("\n\n").flatMap((frame) => {
    const fields = Object.fromEntries(frame.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    return fields.data ? [{ ...fields, data: JSON.parse(fields.data) } as RunEvent] : [];
  });
}

function textOf(event: RunEvent): string {
  switch (event.event) {
    case "message.delta":
      return event.data.text;
    case "tool.call":
      return event.data.name;
    case "run.failed":
      return event.data.error.detail;
    case "run.completed":
      // @ts-expect-error: the data of this event has no text
      return event.data.text ?? "";
    default:
      return "";
  }
}

const opened = await client.POST("/v1/sessions", { body: { agent: "assistant" } });
if (opened.error) throw new Error(opened.error.detail);

const sent = await client.POST("/v1/sessions/{session_id}/messages", {
  params: { path: { session_id: opened.data.id }, header: { "Idempotency-Key": "once" } },
  body: { content: "Say hello." },
});
if (sent.error) throw new Error(sent.error.detail);
if (typeof sent.data === "string" || !("message" in sent.data)) throw new Error("not the answer as JSON");
const turn = sent.data;

const followed = await client.GET("/v1/runs/{run_id}/events", {
  params: { path: { run_id: turn.run.id } },
  parseAs: "text",
});
if (followed.error) throw new Error(followed.error.detail);

const missing = await client.GET("/v1/runs/{run_id}", { params: { path: { run_id: opened.data.id } } });

console.log(
  JSON.stringify({
    answer: turn.message?.content,
    streamed: readEvents(followed.data ?? "").map(textOf).join(""),
    problem: missing.error?.type,
  }),
);
