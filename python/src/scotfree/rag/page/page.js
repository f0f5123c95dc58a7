// Asks this machine's own server, and shows what it says; all of it is text, never markup.
(() => {
  "use strict";
  const at = (id) => document.getElementById(id);
  const made = (kind, text, name) => {
    const element = document.createElement(kind);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
  const time = (ns) => {
    const [step, unit] = ns >= 0.9995e9 ? [1e9, "s"] : ns >= 0.9995e6 ? [1e6, "ms"] : [1e3, "µs"];
    return `${(ns / step).toLocaleString("en", { maximumSignificantDigits: 3 })}\u202f${unit}`;
  };
  const state = (said) => {
    at("status").textContent = said;
  };
  const fail = (problem) => {
    at("error").textContent = problem;
    at("error").hidden = false;
    state("");
  };

  const describe = (about) => {
    at("folder").textContent = about.folder;
    at("where").replaceChildren();
    at("extent").textContent =
      `${counted(about.passages, "passage")} of ${counted(about.documents, "document")}, on this machine.`;
    for (const [key, values] of Object.entries(about.metadata)) {
      const label = made("label", `${key} `);
      const select = made("select");
      select.dataset.key = key;
      // The values are kept as they are: a number is no text.
      select.append(new Option("any", ""), ...values.map((value) => new Option(value, JSON.stringify(value))));
      label.append(select);
      at("where").append(label);
    }
    if (about.model) {
      at("model").hidden = false;
      at("model-name").textContent = `let ${about.model.name} answer (${about.model.place})`;
    }
  };

  const question = () => {
    const chosen = [...document.querySelectorAll("#where select")].filter((select) => select.value);
    return {
      question: at("question").value,
      count: at("count").valueAsNumber,
      words: at("words").checked,
      where: Object.fromEntries(chosen.map((select) => [select.dataset.key, JSON.parse(select.value)])),
      model: !at("model").hidden && at("with-model").checked,
    };
  };

  // Of a text that stands in several places so many others are named.
  const COPIES_SHOWN = 3;
  const stands = ({ letter, place, section }) => {
    const known = [place, section].filter(Boolean);
    return known.length ? known : [`letter ${letter.toLocaleString("en")}`];
  };

  const passage = (hit, place) => {
    const item = made("li");
    item.id = `passage-${place + 1}`;
    const said = Object.entries(hit.metadata).map(([key, value]) => `${key}: ${value}`);
    const score = hit.score === undefined ? [] : [`score ${hit.score.toFixed(2)}`];
    const where = [`similarity ${hit.similarity.toFixed(2)}`, ...score, ...stands(hit.location), ...said];
    item.append(made("p", hit.document, "name"), made("p", where.join(" · "), "source"));
    const text = made("p", hit.text, "passage");
    text.dir = "auto";
    item.append(text);
    if (hit.copies.length) {
      const more = hit.copies.length > COPIES_SHOWN ? ` and ${hit.copies.length - COPIES_SHOWN} more` : "";
      const shown = hit.copies.slice(0, COPIES_SHOWN);
      const places = shown.map(({ document, location }) => `${document}, ${stands(location).join(", ")}`);
      item.append(made("p", `also in: ${places.join("; ")}${more}`, "source copies"));
    }
    return item;
  };

  const showStages = (stages) => {
    const rows = Object.entries(stages);
    const whole = rows.reduce((sum, [, ns]) => sum + ns, 0);
    at("stages").tBodies[0].replaceChildren(...rows.map(([name, ns]) => {
      const row = made("tr");
      const head = made("th", name);
      head.scope = "row";
      const bar = made("td", undefined, "bar");
      const drawn = made("span");
      drawn.style.width = `${(100 * ns) / (whole || 1)}%`;
      bar.append(drawn);
      row.append(head, made("td", time(ns), "number"), bar);
      return row;
    }));
    const sum = made("tr");
    const head = made("th", "together");
    head.scope = "row";
    sum.append(head, made("td", time(whole), "number"), made("td"));
    at("stages").tFoot.replaceChildren(sum);
  };

  // Whether a model answers.
  let isWriting = false;
  const showFound = (found) => {
    at("hits").replaceChildren(...found.hits.map(passage));
    at("found").hidden = false;
    showStages(found.stages_ns);
    at("counts").replaceChildren(...[
      ["estimated from their codes", found.estimated],
      ["embeddings at hand", found.cached],
      ["embedded again", found.regenerated],
    ].flatMap(([name, count]) => [made("dt", name), made("dd", count.toLocaleString("en"))]));
    const count = counted(found.hits.length, "passage");
    state(!found.hits.length ? "Nothing found." : isWriting ? `${count}; the model reads them…` : `${count}.`);
  };

  // Numbers of passages become links to them; the letters stay as they are.
  const cite = (text) => {
    const parts = text.split(/\[(\d+)\]/);
    return parts.map((part, place) => {
      if (place % 2 === 0) return part;
      if (!at(`passage-${part}`)) return `[${part}]`;
      const link = made("a", `[${part}]`);
      link.href = `#passage-${part}`;
      return link;
    });
  };

  const showWritten = (written) => {
    at("text").replaceChildren(...cite(written.text));
    at("ended").textContent = written.model + (written.ended === "length" ? "; cut at its limit of tokens" : "");
    state(`Answered from ${counted(written.shown, "passage")}.`);
    at("first").textContent =
      `First token after ${time(written.retrieval_ns + written.prefill_ns)}: ` +
      `retrieval ${time(written.retrieval_ns)}, prefill ${time(written.prefill_ns)}.`;
  };

  const clear = () => {
    at("error").hidden = true;
    for (const id of ["text", "ended", "first"]) at(id).replaceChildren();
  };

  const shows = {
    found: showFound,
    text: (piece) => {
      at("written").hidden = false;
      at("text").append(piece);
    },
    error: fail,
    done: ({ stages_ns, written }) => {
      showStages(stages_ns);
      if (written) showWritten(written);
    },
  };

  // The lines of an answer, as they come.
  const read = async (response) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let last = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const [[kind, said]] = Object.entries(JSON.parse(line));
        last = kind;
        shows[kind](said);
      }
    }
    if (last !== "done" && last !== "error") throw new Error("the answer broke off");
  };

  // What this tab says with each request, if the server wants it: in its own store, never in an address.
  const TOKEN = "token";
  let token = sessionStorage.getItem(TOKEN) || "";

  const asked = async (path, options = {}) => {
    const said = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...said } });
    if (response.status === 401) askForToken();
    if (!response.ok) throw new Error((await response.json()).error);
    return response;
  };

  const askForToken = () => {
    const problem = token ? "This is not the token." : "This server wants a token.";
    sessionStorage.removeItem(TOKEN);
    token = "";
    at("form").hidden = true;
    at("token-form").hidden = false;
    at("token").focus();
    throw new Error(problem);
  };

  let running = new AbortController();
  const search = async () => {
    running.abort();
    const own = (running = new AbortController());
    clear();
    at("written").hidden = at("found").hidden = true;
    state("Searching…");
    document.body.setAttribute("aria-busy", "true");
    try {
      const headers = { "Content-Type": "application/json" };
      const said = question();
      isWriting = said.model;
      const body = JSON.stringify(said);
      await read(await asked("/ask", { method: "POST", headers, body, signal: own.signal }));
    } catch (error) {
      if (!own.signal.aborted) fail(error.message);
    } finally {
      if (!own.signal.aborted) document.body.setAttribute("aria-busy", "false");
    }
  };

  const begin = async () => {
    try {
      const about = await (await asked("/about")).json();
      // One that is known to be right.
      if (token) sessionStorage.setItem(TOKEN, token);
      at("token-form").hidden = true;
      at("form").hidden = false;
      describe(about);
      at("question").focus();
    } catch (error) {
      fail(error.message);
    }
  };

  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  at("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    clear();
    token = at("token").value.trim();
    at("token").value = "";
    // No header says other letters, and no token has any.
    if (/^[\x21-\x7e]+$/.test(token)) begin();
    else {
      token = "";
      fail("This is not the token.");
    }
  });
  begin();
})();
