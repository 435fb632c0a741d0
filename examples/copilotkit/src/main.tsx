import { CopilotKitProvider } from "@copilotkit/react-core/v2";
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat";
import { AGENT, agent } from "./service";
import "./style.css";

createRoot(document.getElementById("root")!).render(
  <CopilotKitProvider agentId={AGENT} agents__unsafe_dev_only={{ [AGENT]: agent }} enableInspector={false}>
    <Chat />
  </CopilotKitProvider>,
);
