// Sends the changes that buttons and forms describe, and in a chat the messages; shows answers while they are written.

const BLOCK = 4000; // characters of one block of a written answer: the browser lays out only the last one again
const POLL_MILLISECONDS = 5000; // between two questions for what another tab has done
const MOST_SHOWN = 600; // messages in the page: with some thousands, browsers become slow
const notices = document.getElementById("notices");
const at = (address) => new URL(address, document.baseURI);
const say = (text) => { if (notices.textContent !== text) notices.textContent = text; };

async function fetchPage(address, asked) {
  try {
    const response = await fetch(at(address), asked);
    if (response.status < 500 && notices.textContent === notices.dataset.unreachable) say("");
    return response;
  } catch {
    throw new Error(notices.dataset.unreachable);
  }
}

async function callRest(method, address, body, headers = {}) {
  const sent = { "X-Client": "web", Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const response = await fetchPage(address, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body) });
  if (response.status === 401) throw new Error(notices.dataset.signedOut);
  const text = await response.text();
  const found = text ? JSON.parse(text) : {};
  if (!response.ok) throw new Error(found.detail || found.title || String(response.status));
  return found;
}

// Buttons and forms that describe a change: data-rest (method), data-url, data-json or the form's fields, data-sure (a
// question before), and data-then (where to go afterwards; empty: the page is loaded again).

async function change(element, body) {
  const { rest, url, sure, then } = element.dataset;
  if (element.ariaBusy || (sure && !confirm(sure))) return;
  element.ariaBusy = "true";
  say(element.dataset.busy ?? "");
  try {
    const found = await callRest(rest, url, body);
    if (element.dataset.shows) {
      const shown = element.querySelector(".shown");
      shown.hidden = false;
      shown.querySelector("code").textContent = found[element.dataset.shows];
    } else if (found.detail && found.outcome !== "adopted") say(found.detail);
    else if (then) location.assign(at(then.replace("{id}", found.id)));
    else {
      sessionStorage.setItem("changed", JSON.stringify([url, changing(url).indexOf(element), element.dataset.done ?? ""]));
      location.reload();
    }
  } catch (error) { say(error.message); }
  element.ariaBusy = null;
}

// After the page was loaded again, the focus is where it was: on the button, in the form, or on the menu that has closed.
const changing = (url) => [...document.querySelectorAll("[data-url]")].filter((one) => one.dataset.url === url);
addEventListener("load", () => {
  const [url, index, done] = JSON.parse(sessionStorage.getItem("changed") ?? "[]"), found = changing(url)[index];
  sessionStorage.removeItem("changed");
  if (done) say(done);
  for (let one = found?.closest("details:not(.menu)"); one; one = one.parentElement.closest("details")) one.open = true;
  found?.closest(".message")?.querySelector("a").focus(); // which shows its buttons
  (found?.closest(".menu")?.firstElementChild ?? found?.querySelector("input, textarea, select") ?? found)?.focus();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-rest]");
  if (button) change(button, button.dataset.json ? JSON.parse(button.dataset.json) : undefined);
});
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-rest]");
  if (!form) return;
  event.preventDefault();
  const given = new FormData(form), isNumber = (name) => form.elements[name].type === "number";
  const fields = [...given].filter(([name, value]) => value !== "" || form.dataset.rest === "PATCH");
  const read = ([name, value]) => name.endsWith("[]") ? [name.slice(0, -2), given.getAll(name)] : [name, isNumber(name) ? Number(value) : value];
  change(form, Object.fromEntries(fields.map(read)));
});

// Who signs out leaves no drafts in the browser.
document.addEventListener("submit", (event) => {
  if (!event.target.matches('form[action="sign-out"]')) return;
  for (const key of Object.keys(localStorage)) if (key.startsWith("draft ")) localStorage.removeItem(key);
});

// A menu closes by Escape and by a click elsewhere.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector("details.menu[open]");
  if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
});

function localTimes(inside) {
  const language = document.documentElement.lang, today = new Date().toDateString();
  for (const time of inside.querySelectorAll("time:not([title])")) {
    const date = new Date(time.dateTime), isToday = date.toDateString() === today, isShort = time.closest(".list");
    time.title = time.dateTime;
    time.textContent = date.toLocaleString(language, { dateStyle: isShort && isToday ? undefined : "medium", timeStyle: isShort && !isToday ? undefined : "short" });
  }
}
localTimes(document);
document.body.addEventListener("htmx:afterSettle", (event) => localTimes(event.detail.elt.parentElement ?? document));

const chat = document.getElementById("chat");
if (chat) openChat(chat.dataset.session);

function openChat(session) {
  const main = document.getElementById("main"), messages = document.getElementById("messages");
  const live = document.getElementById("live"), composer = document.getElementById("composer");
  const box = document.getElementById("text"), stop = document.getElementById("stop");
  const edited = document.getElementById("edited"), pictures = document.getElementById("pictures");
  const draft = `draft ${session}`, unsent = `send ${session}`;
  const followed = new Map();
  let editing = 0, images = [], syncing = Promise.resolve(), shownLive = "";

  const isAtEnd = () => main.scrollHeight - main.scrollTop - main.clientHeight < 120;
  const toEnd = () => { main.scrollTop = main.scrollHeight; };
  const copyOf = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);
  const last = () => Number([...messages.querySelectorAll("li[data-position]")].at(-1)?.dataset.position ?? 0);
  const hasLater = () => messages.querySelector("li[data-position] ~ .more") !== null;
  const gauge = () => document.getElementById("gauge");

  // What is stored is shown as the service renders it.
  const part = async (address) => {
    const response = await fetchPage(address, { headers: { "HX-Request": "true" } });
    if (response.headers.has("HX-Redirect")) throw new Error(notices.dataset.signedOut);
    if (response.status === 404) clearInterval(polling);
    if (!response.ok) throw new Error(response.status === 404 ? notices.dataset.gone : notices.dataset.unreachable);
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    return template.content;
  };
  const sync = () => (syncing = syncing.then(async () => {
    const from = last(), after = hasLater() ? "" : `after=${from}&`;
    const updates = await part(`sessions/${session}/updates?${after}gauge=${gauge().dataset.at}`);
    const stays = isAtEnd(), isAtHand = !hasLater() && last() === from; // else the reader has scrolled meanwhile
    for (const item of isAtHand ? [...updates.querySelectorAll("li[data-position]")] : []) {
      for (const temporary of messages.querySelectorAll(`li[data-of="${item.dataset.id}"]`)) temporary.remove();
      if (document.getElementById(item.id)) continue;
      messages.insertBefore(item, messages.querySelector("li:not([data-position]):not(.more)"));
      window.htmx.process(item);
    }
    const counted = updates.getElementById("gauge");
    if (counted) gauge().replaceWith(counted);
    showLive(updates.getElementById("live"));
    localTimes(messages);
    const count = document.getElementById("message-count");
    if (isAtHand && last()) count.textContent = count.dataset.form.replace("{n}", last());
    if (stays) toEnd();
  }).catch((error) => say(error.message)));
  // What runs or waits is shown again only if it has changed, and never while the reader writes in it.
  const showLive = (found) => {
    const active = document.activeElement, html = found.innerHTML;
    if (html === shownLive || (live.contains(active) && active.matches("textarea, input"))) return;
    const isTyped = [...live.querySelectorAll("textarea, input")].some((one) => one.value !== one.defaultValue);
    if (isTyped && waitingCalls(live) === waitingCalls(found)) return; // the text would be lost
    live.replaceChildren(...found.childNodes);
    shownLive = html;
    localTimes(live);
    attach();
  };
  const waitingCalls = (inside) => [...inside.querySelectorAll("form[data-call]")].map((form) => form.dataset.call).join();
  const attach = () => {
    const running = [...live.querySelectorAll('[data-run]:not([data-status="waiting"])')];
    for (const one of running) if (!followed.has(one.dataset.run)) follow(one.dataset.run);
    if (stop) stop.hidden = running.length === 0 && followed.size === 0;
  };

  function follow(run) {
    const source = new EventSource(at(`../v1/runs/${run}/events`));
    const written = new Map();
    followed.set(run, source);
    if (stop) stop.hidden = false;
    const end = async () => {
      source.close();
      followed.delete(run);
      for (const writer of written.values()) writer.finish();
      await sync();
      for (const writer of written.values()) writer.item.remove();
      attach();
    };
    const writer = (id) => {
      if (!written.has(id)) written.set(id, makeWriter(id));
      return written.get(id);
    };
    const on = (name, handle) => source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    on("run.started", sync);
    on("reasoning.delta", (data) => writer(data.message_id).addReasoning(data.text));
    on("message.delta", (data) => writer(data.message_id).addText(data.text));
    on("tool.call", (data) => writer(data.message_id).showCall(data));
    const showProgress = async (call, text) => {
      await syncing; // the message with the call may still be loading
      const shown = [...messages.querySelectorAll(`details[data-of="${CSS.escape(call)}"] > summary > span`)].at(-1);
      if (shown) shown.textContent = text;
    };
    on("tool.progress", ({ call_id, progress, total, message }) =>
      showProgress(call_id, ` ${progress}${total === null ? "" : ` / ${total}`} ${message}`));
    on("tool.result", (data) => { showProgress(data.id, ""); sync(); });
    on("message.completed", (data) => { written.get(data.message.id)?.finish(); sync(); });
    on("reset", () => { for (const one of written.values()) one.item.remove(); written.clear(); });
    on("run.waiting", end);
    on("run.completed", end);
    on("run.cancelled", end);
    on("run.failed", (data) => { end().then(() => showFailure(data.error.detail)); });
    source.onerror = () => {
      say(notices.dataset.unreachable);
      if (source.readyState === EventSource.CLOSED) setTimeout(end, 1500);
    };
    source.onopen = () => say("");
  }

  function makeWriter(id) {
    const item = copyOf("answer"), body = item.querySelector(".body"), reasoning = item.querySelector(".reasoning");
    let block = body.firstElementChild, waiting = "", thought = "", frame = 0;
    item.dataset.of = id;
    const show = () => {
      frame = 0;
      const stays = isAtEnd();
      if (thought) { reasoning.hidden = false; reasoning.lastElementChild.append(thought); thought = ""; }
      while (waiting) {
        const free = Math.max(BLOCK - block.textContent.length, 1);
        block.append(waiting.slice(0, free));
        waiting = waiting.slice(free);
        const line = block.textContent.length >= BLOCK ? block.textContent.lastIndexOf("\n") : -1;
        if (line < 0 && block.textContent.length < 4 * BLOCK) { block.append(waiting.slice(0, BLOCK)); waiting = waiting.slice(BLOCK); }
        if (line >= 0 || block.textContent.length >= 4 * BLOCK) {
          const rest = line >= 0 ? block.textContent.slice(line + 1) : "";
          if (line >= 0) block.textContent = block.textContent.slice(0, line + 1);
          block = body.appendChild(document.createElement("div"));
          block.className = "plain";
          block.append(rest);
        }
      }
      if (stays) toEnd();
    };
    const soon = () => { frame ||= requestAnimationFrame(show); };
    const attachItem = () => { if (!item.isConnected && !hasLater()) messages.append(item); };
    return {
      item,
      addReasoning(text) { attachItem(); thought += text; soon(); },
      addText(text) { attachItem(); waiting += text; soon(); },
      showCall(data) {
        attachItem();
        const shown = copyOf("call");
        shown.querySelector("code").textContent = data.name;
        shown.querySelector("pre").textContent = data.arguments;
        item.append(shown);
      },
      finish() { cancelAnimationFrame(frame); show(); item.classList.remove("writing"); },
    };
  }

  function showFailure(detail) {
    const shown = copyOf("failed");
    shown.querySelector("p").textContent = detail;
    live.prepend(shown);
    toEnd();
  }

  async function send(content) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    const key = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    const headers = { Prefer: "respond-async", "Idempotency-Key": key };
    const { run } = await callRest("POST", `../v1/sessions/${session}/messages`, { content }, headers);
    if (hasLater()) { location.assign(at(`sessions/${session}`)); return; }
    const item = copyOf("asked");
    item.dataset.of = run.user_message_id ?? "";
    item.querySelector(".plain").textContent = typeof content === "string" ? content : content.find((one) => one.type === "text")?.text ?? "";
    nameAfter(item.querySelector(".plain").textContent.trim());
    messages.append(item);
    toEnd();
    follow(run.id);
  }

  // A chat without a title gets the beginning of its first message.
  function nameAfter(text) {
    if (chat.dataset.title || last() || !text) return;
    const line = text.split("\n", 1)[0], title = line.length > 60 ? `${line.slice(0, 59)}…` : line;
    chat.dataset.title = title;
    document.getElementById("session-title").textContent = title;
    callRest("PATCH", `../v1/sessions/${session}`, { title }).catch((error) => say(error.message));
  }

  async function sendAgain(position, content) {
    const copy = await callRest("POST", `../v1/sessions/${session}/branch`, { at: position - 1, ...(chat.dataset.copy && { title: chat.dataset.copy.slice(0, 200) }) });
    sessionStorage.setItem(`send ${copy.id}`, JSON.stringify(content));
    location.assign(at(`sessions/${copy.id}`));
  }
  const stored = async (position) =>
    (await callRest("GET", `../v1/sessions/${session}/messages?after=${position - 1}&limit=1`)).data[0].content;

  const guarded = (work) => async (...given) => { try { say(""); await work(...given); } catch (error) { say(error.message); } };
  const acts = {
    copy: async (item) => {
      const content = await stored(item.dataset.position);
      await navigator.clipboard.writeText(typeof content === "string" ? content : content.map((one) => one.text ?? "").join("\n"));
    },
    again: async (item) => sendAgain(Number(item.dataset.position), await stored(item.dataset.position)),
    edit: async (item) => {
      editing = Number(item.dataset.position);
      const content = await stored(editing);
      box.value = typeof content === "string" ? content : content.map((one) => one.text ?? "").join("\n");
      edited.hidden = false;
      grow();
      box.focus();
    },
    "leave-edit": async () => { editing = 0; edited.hidden = true; box.value = localStorage.getItem(draft) ?? ""; grow(); },
    stop: async () => { for (const run of followed.keys()) await callRest("POST", `../v1/runs/${run}/cancel`); },
    cancel: async (_, button) => { await callRest("POST", `../v1/runs/${button.dataset.of}/cancel`); await sync(); },
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-act]");
    if (button) guarded(acts[button.dataset.act])(button.closest("li"), button);
  });

  live.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-resume]");
    if (!form) return;
    event.preventDefault();
    const { name, value } = event.submitter ?? { name: "act", value: "answer" };
    const given = { call_id: form.dataset.call };
    const fields = Object.fromEntries(new FormData(form));
    guarded(async () => {
      if (name === "option") given.output = value;
      else if (value === "answer") given.output = fields.output;
      else if (value === "reject") { given.decision = "reject"; given.reason = fields.reason; }
      else if (fields.arguments === form.elements.arguments.dataset.before) given.decision = "approve";
      else { given.decision = "edit"; given.arguments = JSON.parse(fields.arguments); }
      await callRest("POST", `../v1/runs/${form.dataset.resume}/resume`, { calls: [given] });
      document.activeElement?.blur();
      await sync();
    })();
  });

  const grow = () => { box.rows = Math.min(12, box.value.split("\n").length); };
  if (composer) {
    const showPictures = () => {
      pictures.hidden = images.length === 0;
      pictures.replaceChildren(...images.map((url) => {
        const item = document.createElement("li"), image = new Image(), button = document.createElement("button");
        image.src = url;
        button.type = "button";
        button.textContent = "×";
        button.onclick = () => { images = images.filter((one) => one !== url); showPictures(); };
        item.append(image, button);
        return item;
      }));
    };
    const take = async (files) => {
      for (const file of files) {
        const reader = new FileReader();
        await new Promise((done) => { reader.onload = done; reader.readAsDataURL(file); });
        images.push(reader.result);
      }
      showPictures();
    };
    document.getElementById("files").addEventListener("change", (event) => { take(event.target.files); event.target.value = ""; });
    box.addEventListener("paste", (event) => { if (event.clipboardData.files.length) take(event.clipboardData.files); });
    box.value = localStorage.getItem(draft) ?? "";
    grow();
    box.addEventListener("input", () => { grow(); if (!editing) localStorage.setItem(draft, box.value); });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); composer.requestSubmit(); }
    });
    composer.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = box.value.trim(), sent = images;
      if (!text && !sent.length) return;
      const shown = sent.map((url) => ({ type: "image", url }));
      const content = sent.length ? [...(text ? [{ type: "text", text }] : []), ...shown] : text;
      guarded(async () => {
        if (editing) return sendAgain(editing, content);
        box.value = "";
        images = [];
        showPictures();
        grow();
        try { await send(content); localStorage.removeItem(draft); } catch (error) {
          if (!box.value) { box.value = text; images = sent; showPictures(); grow(); }
          throw error;
        }
      })();
    });
  }

  // The message in view stays at its height while others are added or removed before it, also in browsers that do not
  // see to that.
  let held, top;
  const hold = (item) => { held = item; top = item?.getBoundingClientRect().top; };
  const keep = () => { if (held) main.scrollTop += held.getBoundingClientRect().top - top; };
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    hold(detail.elt.matches("#messages > .more") ? messages.querySelector("li[data-position]") : null);
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    if (!held) return; // the event comes once for each new item
    const isEarlier = messages.querySelector("li[data-position]") !== held;
    keep();
    unloadFar(isEarlier);
    held = null;
  });

  // The page keeps MOST_SHOWN messages. Those at the far end are removed, and loaded again when the reader scrolls there.
  function unloadFar(isEnd) {
    const shown = [...messages.querySelectorAll("li[data-position]")];
    const far = isEnd ? shown.slice(MOST_SHOWN) : shown.slice(0, -MOST_SHOWN);
    if (!far.length || followed.size) return;
    const more = copyOf(isEnd ? "later" : "earlier"), edge = isEnd ? messages.lastElementChild : messages.firstElementChild;
    const next = isEnd ? `after=${shown[MOST_SHOWN - 1].dataset.position}` : `before=${shown.at(-MOST_SHOWN).dataset.position}`;
    more.setAttribute("hx-get", `sessions/${session}/messages?${next}`);
    hold(shown.at(isEnd ? 0 : -1));
    edge[isEnd ? "after" : "before"](more);
    if (edge.matches(".more")) edge.remove();
    for (const one of far) one.remove();
    keep();
    window.htmx.process(more);
  }

  const sought = messages.querySelector(".sought");
  const seek = () => sought.scrollIntoView({ block: sought.offsetHeight > main.clientHeight / 2 ? "start" : "center" });
  if (sought) { seek(); requestAnimationFrame(() => requestAnimationFrame(seek)); } // again, with the heights of what stands before
  else toEnd();
  attach();
  const left = sessionStorage.getItem(unsent);
  if (left) { sessionStorage.removeItem(unsent); guarded(send)(JSON.parse(left)); }
  const polling = setInterval(() => {
    if (!document.hidden && !followed.size) sync();
  }, POLL_MILLISECONDS);
}
