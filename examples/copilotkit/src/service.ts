import { HttpAgent } from "@ag-ui/client";

export const AGENT = "helper";
const SERVICE = import.meta.env.VITE_SERVICE_URL ?? "http://127.0.0.1:8000";

/** Return the thread's id from the address, to which a new one is written. */
function threadId(): string {
  const address = new URL(location.href);
  const id = address.searchParams.get("thread") ?? crypto.randomUUID();
  address.searchParams.set("thread", id);
  history.replaceState(null, "", address);
  return id;
}

/** The agent in the service, without a runtime of CopilotKit between. */
export const agent = new HttpAgent({ url: `${SERVICE}/ag-ui/${AGENT}`, agentId: AGENT, threadId: threadId() });

/** Stop the turn in the service. Ending the stream alone would not: a turn goes on without its page. */
export async function cancelTurn(): Promise<void> {
  const run = agent.state?.throughline?.run_id;
  if (run) await fetch(`${SERVICE}/v1/runs/${run}/cancel`, { method: "POST" });
}

export function setTheme(theme: string): string {
  document.documentElement.dataset.theme = theme;
  return `The page is ${theme} now.`;
}
