// Reads streams with AG-UI's own client, which checks every event, and prints what it has then.
import { HttpAgent } from "@ag-ui/client";
import { readFileSync } from "node:fs";

const cases = JSON.parse(readFileSync(process.argv[2], "utf8"));
console.debug = console.warn = console.error = () => {};
const read = [];
for (const { streams } of cases) {
  const waiting = [...streams];
  const fetch = async () => new Response(waiting.shift(), { headers: { "Content-Type": "text/event-stream" } });
  const agent = new HttpAgent({ url: "http://double", threadId: "t", fetch });
  const errors = [];
  let ended = "";
  const subscriber = {
    onRunFinishedEvent: ({ event }) => { ended = event.outcome.type; },
    onRunErrorEvent: ({ event }) => { ended = event.code; },
  };
  for (const stream of streams) {
    try {
      await agent.runAgent({ runId: "r" }, subscriber);
    } catch (error) {
      if (stream === streams.at(-1)) errors.push(error.message);
    }
  }
  const interrupts = agent.pendingInterrupts.map((interrupt) => interrupt.id);
  const messages = agent.messages.filter((message) => message.role !== "reasoning");
  read.push({ messages, errors, ended, interrupts });
}
process.stdout.write(JSON.stringify(read));
