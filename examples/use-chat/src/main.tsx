import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat";
import { type ChatMessage, readMessages } from "./service";
import "./style.css";

/** Return the chat's id from the address, to which a new one is written. */
function chatId(): string {
  const address = new URL(location.href);
  const id = address.searchParams.get("chat") ?? crypto.randomUUID();
  address.searchParams.set("chat", id);
  history.replaceState(null, "", address);
  return id;
}

function App({ id }: { id: string }) {
  const [messages, setMessages] = useState<ChatMessage[]>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    readMessages(id).then(setMessages, (error: Error) => setProblem(error.message));
  }, [id]);
  if (problem) return <p role="alert">The chat cannot be read: {problem}</p>;
  return messages && <Chat id={id} stored={messages} />;
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App id={chatId()} />
  </StrictMode>,
);
