// Uses OpenAI's client for JavaScript on the address of a service, and prints what it got as JSON.

import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const model = "assistant";
const said = {};
const message = { role: "user", content: "hi" };
const parameters = { type: "object", properties: { town: { type: "string" } }, required: ["town"], additionalProperties: false };
const schema = { ...parameters };

const chat = await client.chat.completions.create({ model, messages: [message] });
said.chat = chat.choices[0].message.content;

const chunks = client.chat.completions.stream({ model, messages: [message], stream_options: { include_usage: true } });
said.chatStream = await chunks.finalContent();
said.chatUsage = (await chunks.totalUsage()).total_tokens > 0;

const towns = [];
const weather = (given) => {
  towns.push(given.town);
  return "sun";
};
const runner = client.chat.completions.runTools({
  model,
  messages: [message],
  tools: [{ type: "function", function: { name: "weather", description: "Tell the weather.", parameters, parse: JSON.parse, function: weather } }],
});
said.chatTools = [await runner.finalContent(), ...towns];

const shaped = await client.chat.completions.parse({
  model,
  messages: [message],
  response_format: { type: "json_schema", json_schema: { name: "town", strict: true, schema } },
});
said.chatFormat = JSON.parse(shaped.choices[0].message.content).town;

const first = await client.responses.create({ model, input: "I am Alice." });
const second = await client.responses.create({ model, input: "Who am I?", previous_response_id: first.id });
said.previous = [first.output_text, second.output_text];
said.inputItems = (await client.responses.inputItems.list(second.id)).data.length;

const tool = { type: "function", name: "weather", description: "Tell the weather.", parameters, strict: true };
const asks = await client.responses.create({ model, input: "hi", tools: [tool] });
const call = asks.output.find((item) => item.type === "function_call");
const told = await client.responses.create({
  model,
  previous_response_id: asks.id,
  tools: [tool],
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sun" }],
});
said.tools = [JSON.parse(call.arguments).town, told.output_text];

const parsed = await client.responses.parse({ model, input: "hi", text: { format: { type: "json_schema", name: "town", strict: true, schema } } });
said.format = parsed.output_parsed.town;

const conversation = await client.conversations.create({ metadata: { order: "7" } });
await client.responses.create({ model, input: "hi", conversation: conversation.id });
const items = await client.conversations.items.list(conversation.id, { order: "asc" });
said.conversation = items.data.map((item) => item.role);
said.deleted = (await client.conversations.delete(conversation.id)).deleted;

let background = await client.responses.create({ model, input: "hi", background: true });
while (["queued", "in_progress"].includes(background.status)) {
  await new Promise((resolve) => setTimeout(resolve, 20));
  background = await client.responses.retrieve(background.id);
}
const rest = await client.responses.retrieve(background.id, { stream: true, starting_after: 2 });
const numbers = [];
for await (const event of rest) numbers.push(event.sequence_number);
said.background = [background.output_text, numbers[0]];

const waits = await client.responses.create({ model, input: "hang", background: true });
said.cancelled = (await client.responses.cancel(waits.id)).status;

try {
  await client.responses.create({ model: "nobody", input: "hi" });
} catch (error) {
  said.error = [error.constructor.name, error.status, error.code, error.param];
}
console.log(JSON.stringify(said));
