// Uses the AI SDK's chat on the address of a service, and prints what it got as JSON.
// With a second argument it also reads the streams in that file: a JSON array of texts.

import { readFileSync } from "node:fs";
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
} from "ai";

const api = `${process.argv[2]}/ai-sdk/assistant`;
const tools = { weather: { description: "Tell the weather.", inputSchema: { type: "object", properties: {} } } };
const said = {};

function shown(message) {
  return message.parts.flatMap((part) => {
    if (part.type === "text") return [part.text];
    return part.toolCallId ? [[part.toolName ?? part.type.slice(5), part.state, part.output ?? part.errorText ?? null]] : [];
  });
}

function open(id, transport = {}) {
  return new Chat({
    id,
    transport: new DefaultChatTransport({ api, body: { tools }, ...transport }),
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithToolCalls(chat) || lastAssistantMessageIsCompleteWithApprovalResponses(chat),
  });
}

async function settled(chat) {
  do await new Promise((resolve) => setTimeout(resolve, 20));
  while (chat.status === "submitted" || chat.status === "streaming");
  return chat.messages.map(shown);
}

const chat = open("a");
await chat.sendMessage({ text: "hi" });
said.send = await settled(chat);

await chat.sendMessage({ text: "delete" });
said.approvalAsked = shown(chat.lastMessage);
await chat.addToolApprovalResponse({ id: "delete", approved: true });
said.approved = (await settled(chat)).at(-1);

await chat.sendMessage({ text: "delete" });
await chat.addToolApprovalResponse({ id: "delete", approved: false });
said.rejected = (await settled(chat)).at(-1);

await chat.sendMessage({ text: "weather" });
await chat.addToolOutput({ tool: "weather", toolCallId: "weather", output: { sky: "clear" } });
said.clientTool = (await settled(chat)).at(-1);

const stored = await (await fetch(`${api}/a/messages`)).json();
said.storedAlike = JSON.stringify(stored.map(shown)) === JSON.stringify(chat.messages.map(shown));

await chat.regenerate({ messageId: chat.messages[1].id });
said.regenerated = await settled(chat);

const newest = open("b", { prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, message: messages.at(-1) } }) });
await newest.sendMessage({ text: "hi" });
await newest.sendMessage({ text: "hi again" });
said.newestOnly = (await settled(newest)).length;

const hanging = open("c");
const sending = hanging.sendMessage({ text: "hang" });
while (hanging.status !== "streaming") await new Promise((resolve) => setTimeout(resolve, 20));
await hanging.stop();
await sending;
const back = open("c");
back.messages = await (await fetch(`${api}/c/messages`)).json();
const resuming = back.resumeStream();
while (back.status !== "streaming") await new Promise((resolve) => setTimeout(resolve, 20));
said.stopped = (await fetch(`${api}/c/stream`, { method: "DELETE" })).status;
await resuming;
said.resumed = await settled(back);

const refused = open("d");
await refused.sendMessage({ text: "see", files: [{ type: "file", mediaType: "text/plain", url: "data:text/plain,a" }] });
said.error = refused.error.message;

class Parser extends DefaultChatTransport {
  read(text) {
    return this.processResponseStream(new Response(text).body);
  }
}

said.streams = [];
for (const text of JSON.parse(readFileSync(process.argv[3]))) {
  let last;
  const found = { error: "" };
  const stream = readUIMessageStream({ stream: new Parser().read(text), onError: (error) => (found.error = error.message) });
  for await (const message of stream) last = message;
  said.streams.push([last ? shown(last) : [], found.error]);
}

console.log(JSON.stringify(said));
