import type { useChat } from "@ai-sdk/react";
import { getToolName, isToolUIPart } from "ai";
import type { ReactNode } from "react";
import type { ChatMessage, Part } from "./service";

type Chat = ReturnType<typeof useChat<ChatMessage>>;

export function MessagePart({ part, chat }: { part: Part; chat: Chat }): ReactNode {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "reasoning")
    return (
      <details>
        <summary>Reasoning</summary>
        <p className="text">{part.text}</p>
      </details>
    );
  if (part.type === "tool-ask_user" && part.state === "input-available")
    return (
      <Question
        {...part.input}
        onAnswer={(output) => chat.addToolOutput({ tool: "ask_user", toolCallId: part.toolCallId, output })}
      />
    );
  return isToolUIPart(part) ? <ToolCall part={part} chat={chat} /> : null;
}

function ToolCall({ part, chat }: { part: Extract<Part, { toolCallId: string }>; chat: Chat }) {
  const isAsked = part.state === "approval-requested";
  const decide = (approved: boolean) =>
    isAsked && chat.addToolApprovalResponse({ id: part.approval.id, approved });
  return (
    <div className="call">
      <details open={isAsked}>
        <summary>
          {getToolName(part)} <small>{part.state.replaceAll("-", " ")}</small>
        </summary>
        <pre>{JSON.stringify(part.input, null, 2)}</pre>
        {part.state === "output-available" && <pre>{show(part.output)}</pre>}
        {part.state === "output-error" && <pre>{part.errorText}</pre>}
      </details>
      {isAsked && (
        <div className="choices">
          <button onClick={() => decide(true)}>Approve</button>
          <button onClick={() => decide(false)}>Reject</button>
        </div>
      )}
    </div>
  );
}

function Question(asked: { question: string; options?: string[]; onAnswer: (answer: string) => void }) {
  return (
    <form
      className="call"
      action={(fields) => {
        const answer = String(fields.get("answer")).trim();
        if (answer) asked.onAnswer(answer);
      }}
    >
      <p>{asked.question}</p>
      <div className="choices">
        {asked.options?.map((option) => (
          <button key={option} type="button" onClick={() => asked.onAnswer(option)}>
            {option}
          </button>
        ))}
        <input name="answer" aria-label="Answer" placeholder="Another answer" />
        <button>Answer</button>
      </div>
    </form>
  );
}

function show(output: unknown): string {
  return typeof output === "string" ? output : JSON.stringify(output, null, 2);
}
