import type { Interrupt, Message, UserMessage } from "@ag-ui/client";
import { useAgent, useCopilotKit, useFrontendTool, useInterrupt } from "@copilotkit/react-core/v2";
import { type SubmitEvent, useEffect, useRef, useState } from "react";
import { z } from "zod";
import { ShownMessage } from "./ShownMessage";
import { cancelTurn, setTheme } from "./service";

const SECOND = 1000;

export function Chat() {
  const { copilotkit } = useCopilotKit();
  const { agent } = useAgent();
  const [problem, setProblem] = useState("");
  const [isShown, setShown] = useState(false);
  const [isCut, setCut] = useState(false);
  const isReached = useRef(false);

  useFrontendTool({
    name: "set_theme",
    description: "Make the page light or dark.",
    parameters: z.object({ theme: z.enum(["light", "dark"]) }),
    handler: async ({ theme }) => setTheme(theme),
  });

  const questions = useInterrupt<never, false>({
    renderInChat: false,
    render: ({ interrupts, resolve }) => (
      <>
        {interrupts.map((asked) => (
          <Question key={asked.id} asked={asked} onAnswer={(payload) => resolve(payload, asked.id)} />
        ))}
      </>
    ),
  });

  // A run without its end was cut: the turn goes on in the service, so the page comes back to it.
  useEffect(() => {
    let hasEnded = false;
    const subscription = agent.subscribe({
      onRunInitialized: () => {
        hasEnded = isReached.current = false;
        setProblem("");
      },
      onRunFinishedEvent: () => {
        hasEnded = isReached.current = true;
        setCut(false);
      },
      onRunErrorEvent: ({ event }) => {
        hasEnded = isReached.current = true;
        setCut(false);
        setProblem(event.message);
      },
      onRunFailed: ({ error }) => {
        hasEnded = true;
        if (error instanceof TypeError) setCut(true);
        else setProblem(error.message);
      },
      onRunFinalized: () => {
        if (!hasEnded) setCut(true);
      },
    });
    return () => subscription.unsubscribe();
  }, [agent]);

  /** Show the stored thread, and go on with what is not finished: a run without messages does both. */
  const showThread = async () => {
    const asked = agent.messages.findLast((message): message is UserMessage => message.role === "user");
    agent.setMessages([]);
    await copilotkit.runAgent({ agent });
    if (!asked || agent.messages.some((message) => message.id === asked.id)) return;
    if (isReached.current) await send(asked);
    else agent.setMessages([asked]);
  };
  useEffect(() => void showThread().then(() => setShown(true)), [agent]);
  useEffect(() => {
    if (!isCut) return;
    const timer = setInterval(() => agent.isRunning || showThread(), SECOND);
    return () => clearInterval(timer);
  }, [isCut]);

  const send = async (message: Message) => {
    agent.addMessage(message);
    await copilotkit.runAgent({ agent });
  };

  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  });

  return (
    <main>
      <header>
        <h1>CopilotKit on Throughline</h1>
        <a href={location.pathname}>New chat</a>
        <ContextBar context={agent.state?.throughline?.context} />
      </header>
      <ol>
        {agent.messages.map((message) => (
          <ShownMessage key={message.id} message={message} messages={agent.messages} />
        ))}
        {questions && <li className="assistant">{questions}</li>}
      </ol>
      {isCut && <p role="status">The connection was lost. Coming back …</p>}
      {problem && <p role="alert">{problem}</p>}
      <Composer
        isBusy={agent.isRunning || isCut || !isShown}
        isWaiting={questions !== null}
        onSend={(content) => send({ id: crypto.randomUUID(), role: "user", content })}
      />
      <div ref={end} />
    </main>
  );
}

/** What the agent waits for: an approval of a call, or an answer. */
function Question({ asked, onAnswer }: { asked: Interrupt; onAnswer: (payload: unknown) => void }) {
  const options = asked.responseSchema?.enum as string[] | undefined;
  const answer = (fields: FormData) => {
    const text = String(fields.get("answer")).trim();
    if (text) onAnswer(text);
  };
  return (
    <form className="call" action={answer}>
      <p>{asked.message}</p>
      {asked.reason === "tool_call" ? (
        <div className="choices">
          <button type="button" onClick={() => onAnswer({ approved: true })}>
            Approve
          </button>
          <button type="button" onClick={() => onAnswer({ approved: false })}>
            Reject
          </button>
        </div>
      ) : (
        <div className="choices">
          {options?.map((option) => (
            <button key={option} type="button" onClick={() => onAnswer(option)}>
              {option}
            </button>
          ))}
          <input name="answer" aria-label="Answer" placeholder="Another answer" />
          <button>Answer</button>
        </div>
      )}
    </form>
  );
}

function Composer(given: { isBusy: boolean; isWaiting: boolean; onSend: (text: string) => void }) {
  const [text, setText] = useState("");
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    if (given.isBusy || given.isWaiting || !text.trim()) return;
    given.onSend(text);
    setText("");
  };
  return (
    <form className="composer" onSubmit={send}>
      <input aria-label="Message" autoFocus value={text} onChange={(event) => setText(event.target.value)} />
      {given.isBusy ? (
        <button type="button" onClick={cancelTurn}>
          Stop
        </button>
      ) : (
        <button disabled={given.isWaiting}>Send</button>
      )}
    </form>
  );
}

/** How full the model's context window is, as the thread's state says. */
function ContextBar({ context }: { context?: { total_tokens: number; context_window: number } }) {
  if (!context) return null;
  const { total_tokens: used, context_window: window } = context;
  return <meter aria-label="Context" title={`${used} of ${window} tokens`} max={window} value={used} />;
}
