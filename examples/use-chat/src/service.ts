import type { UIMessage } from "ai";

const SERVICE = import.meta.env.VITE_SERVICE_URL ?? "http://127.0.0.1:8000";

export const API = `${SERVICE}/ai-sdk/helper`;

export type ChatMessage = UIMessage<
  unknown,
  { context: { total_tokens: number; context_window: number } },
  {
    set_theme: { input: { theme: "light" | "dark" }; output: string };
    ask_user: { input: { question: string; options?: string[] }; output: string };
  }
>;
export type Part = ChatMessage["parts"][number];

/** Tools that run in the page. The service gets them with each message. */
export const tools = {
  set_theme: {
    description: "Make the page light or dark.",
    inputSchema: {
      type: "object",
      properties: { theme: { type: "string", enum: ["light", "dark"] } },
      required: ["theme"],
    },
  },
};

export function setTheme(theme: string): string {
  document.documentElement.dataset.theme = theme;
  return `The page is ${theme} now.`;
}

/** Return the stored messages of a chat; none of one that has not begun. */
export async function readMessages(id: string): Promise<ChatMessage[]> {
  const response = await fetch(`${API}/${id}/messages`);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

/** Stop the turn in the service. Ending the stream alone would not: a turn goes on without its page. */
export async function cancelTurn(id: string): Promise<void> {
  await fetch(`${API}/${id}/stream`, { method: "DELETE" });
}
