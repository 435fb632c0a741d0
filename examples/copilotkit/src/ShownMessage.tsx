import type { AssistantMessage, Message, ToolMessage } from "@ag-ui/client";

type Call = NonNullable<AssistantMessage["toolCalls"]>[number];

export function ShownMessage({ message, messages }: { message: Message; messages: Message[] }) {
  if (message.role === "user") return <li className="user">{<Text content={message.content} />}</li>;
  if (message.role === "reasoning")
    return (
      <li className="assistant">
        <details>
          <summary>Reasoning</summary>
          <p className="text">{message.content}</p>
        </details>
      </li>
    );
  if (message.role !== "assistant") return null;
  return (
    <li className="assistant">
      <Text content={message.content} />
      {message.toolCalls?.map((call) => (
        <ToolCall key={call.id} call={call} result={resultOf(call, messages)} />
      ))}
    </li>
  );
}

function Text({ content }: { content: unknown }) {
  return typeof content === "string" && content ? <p className="text">{content}</p> : null;
}

function ToolCall({ call, result }: { call: Call; result?: ToolMessage }) {
  return (
    <details className="call">
      <summary>
        {call.function.name} <small>{result ? "answered" : "running or waiting"}</small>
      </summary>
      <pre>{call.function.arguments}</pre>
      {result && <pre>{result.content}</pre>}
    </details>
  );
}

/** Return the call's result. Until a reload CopilotKit keeps a person's decision as that of a call that needs approval. */
function resultOf(call: Call, messages: Message[]): ToolMessage | undefined {
  return messages.find((one): one is ToolMessage => one.role === "tool" && one.toolCallId === call.id);
}
