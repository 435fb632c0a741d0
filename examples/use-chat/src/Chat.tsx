import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";
import { type SubmitEvent, useEffect, useRef, useState } from "react";
import { MessagePart } from "./MessagePart";
import { API, type ChatMessage, cancelTurn, readMessages, setTheme, tools } from "./service";

const transport = new DefaultChatTransport<ChatMessage>({ api: API, body: { tools } });
const SECOND = 1000;

export function Chat({ id, stored }: { id: string; stored: ChatMessage[] }) {
  const [isCut, setCut] = useState(false);
  const chat = useChat<ChatMessage>({
    id,
    messages: stored,
    transport,
    resume: true, // an answer that is being written is shown from its beginning
    sendAutomaticallyWhen: (given) =>
      lastAssistantMessageIsCompleteWithToolCalls(given) || lastAssistantMessageIsCompleteWithApprovalResponses(given),
    onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
      setCut(isDisconnect || (!isAbort && !isError && !finishReason)),
  });
  const { messages, status, error } = chat;
  const isBusy = status === "submitted" || status === "streaming";

  // The stream was cut: the turn goes on in the service, so the page comes back to it once the service answers.
  useEffect(() => {
    if (!isCut) return;
    const comeBack = async () => {
      const found = await readMessages(id).catch(() => undefined);
      if (!found) return;
      clearInterval(timer);
      setCut(false);
      const asked = messages.findLast((message) => message.role === "user");
      chat.setMessages(found);
      if (asked && !found.some((message) => message.id === asked.id)) await chat.sendMessage(asked);
      else await chat.resumeStream();
    };
    const timer = setInterval(comeBack, SECOND);
    return () => clearInterval(timer);
  }, [isCut]);

  // Calls of the page's tools are run here, also those that a reload finds open.
  useEffect(() => {
    if (isBusy) return;
    for (const part of messages.at(-1)?.parts ?? [])
      if (part.type === "tool-set_theme" && part.state === "input-available")
        chat.addToolOutput({ tool: "set_theme", toolCallId: part.toolCallId, output: setTheme(part.input.theme) });
  }, [messages, isBusy]);

  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  }, [messages]);

  return (
    <main>
      <header>
        <h1>useChat on Throughline</h1>
        <a href={location.pathname}>New chat</a>
        <ContextBar messages={messages} />
      </header>
      <ol>
        {messages.map((message) => (
          <li key={message.id} className={message.role}>
            {message.parts.map((part, index) => (
              <MessagePart key={index} part={part} chat={chat} />
            ))}
          </li>
        ))}
        {status === "submitted" && <li className="assistant waiting">…</li>}
      </ol>
      {isCut && <p role="status">The connection was lost. Coming back …</p>}
      {error && !isCut && <p role="alert">{error.message}</p>}
      {!isBusy && messages.at(-1)?.role === "assistant" && (
        <button className="again" onClick={() => chat.regenerate()}>
          Answer again
        </button>
      )}
      <Composer
        isBusy={isBusy}
        onSend={(text) => chat.sendMessage({ text })}
        onStop={() => Promise.all([cancelTurn(id), chat.stop()])}
      />
      <div ref={end} />
    </main>
  );
}

function Composer(given: { isBusy: boolean; onSend: (text: string) => void; onStop: () => void }) {
  const [text, setText] = useState("");
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    if (given.isBusy || !text.trim()) return;
    given.onSend(text);
    setText("");
  };
  return (
    <form className="composer" onSubmit={send}>
      <input aria-label="Message" autoFocus value={text} onChange={(event) => setText(event.target.value)} />
      {given.isBusy ? (
        <button type="button" onClick={given.onStop}>
          Stop
        </button>
      ) : (
        <button>Send</button>
      )}
    </form>
  );
}

/** How full the model's context window is, as the newest answer says. */
function ContextBar({ messages }: { messages: ChatMessage[] }) {
  const told = messages.flatMap((message) => message.parts).findLast((part) => part.type === "data-context");
  if (!told) return null;
  const { total_tokens: used, context_window: window } = told.data;
  return <meter aria-label="Context" title={`${used} of ${window} tokens`} max={window} value={used} />;
}
