// Draws each chart when it comes near the view, the others when nothing else is to do; lists its data on demand.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("data").textContent);
  const places = [...document.querySelectorAll(".chart")];
  const views = new Map();
  const tables = new Map();

  // The data sets stand in the page as columns, which is a third of the bytes of rows.
  const rows = (name) => {
    if (!tables.has(name)) {
      const columns = Object.entries(page.sets[name]);
      const length = columns.length ? columns[0][1].length : 0;
      const found = new Array(length);
      for (let at = 0; at < length; at += 1) {
        found[at] = {};
        for (const [key, values] of columns) found[at][key] = values[at];
      }
      tables.set(name, found);
    }
    return tables.get(name);
  };

  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  };

  const SCALES = {
    ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
    bytes: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
  };
  const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  // A value with its unit, for tooltips.
  const quantity = (value, unit) => {
    if (typeof value !== "number" || Number.isNaN(value)) return "–";
    if (unit === "share") return digits(value * 100) + " %";
    if (unit === "count") return value.toLocaleString("en", { maximumFractionDigits: 1 });
    if (!(unit in SCALES)) return digits(value);
    const [step, name] = SCALES[unit].find(([least]) => Math.abs(value) >= least * 0.9995) || SCALES[unit].at(-1);
    return digits(value / step) + " " + name;
  };

  const draw = async (place) => {
    const theme = isDark() ? "dark" : "light";
    if (place.dataset.drawn === theme || place.dataset.drawing === theme) return;
    place.dataset.drawing = theme;
    const { spec, sets } = page.specs[place.dataset.chart];
    const width = place.clientWidth;
    const narrow = width < 480;
    const given = {
      ...spec,
      width: "container",
      autosize: { type: "fit-x", contains: "padding" },
      // Vega writes into its rows: each chart has its own.
      datasets: Object.fromEntries(sets.map((name) => [name, rows(name).map((row) => ({ ...row }))])),
    };
    const config = structuredClone(page.themes[theme]);
    config.legend.columns = narrow ? 2 : width < 720 ? 3 : 4;
    if (narrow) {
      Object.assign(config.legend, { labelFontSize: 10, columnPadding: 4 });
      Object.assign(config.axis, { labelLimit: 125, labelFontSize: 10 });
    }
    const old = views.get(place);
    try {
      const made = await window.vegaEmbed(place, given, {
        mode: "vega-lite", renderer: "svg", actions: false, ast: true, config, defaultStyle: false,
        expressionFunctions: { quantity },
        tooltip: { disableDefaultStyle: true, theme: "custom" },
      });
      views.set(place, made);
      if (old) old.finalize();
      place.style.minHeight = "";
      place.dataset.drawn = theme;
    } catch (error) {
      place.textContent = "This chart could not be drawn: " + error.message;
      place.dataset.drawn = "failed";
      console.error(place.dataset.chart, error);
    }
    const isDrawn = (each) => each.dataset.drawn;
    const inView = (each) => each.getBoundingClientRect().top < window.innerHeight;
    const root = document.documentElement.dataset;
    // For who measures: what can be seen is there; all is there.
    if (!root.charts && places.filter(inView).every(isDrawn)) { root.charts = "seen"; performance.mark("charts-seen"); }
    if (root.charts !== "all" && places.every(isDrawn)) { root.charts = "all"; performance.mark("charts-all"); }
  };

  for (const place of places) place.style.minHeight = Number(place.dataset.height) + 60 + "px";
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) draw(target);
  }, { rootMargin: "300px" });
  for (const place of places) near.observe(place);

  const idle = window.requestIdleCallback || ((then) => setTimeout(then, 50));
  const rest = async () => {
    const next = places.find((place) => !place.dataset.drawn && !place.dataset.drawing);
    if (!next) return;
    await draw(next);
    idle(rest);
  };
  window.addEventListener("load", () => idle(rest));
  // Paper has no scrolling.
  window.addEventListener("beforeprint", () => places.forEach(draw));

  const redraw = () => {
    for (const place of places) {
      if (!place.dataset.drawn) continue;
      delete place.dataset.drawing;
      draw(place);
    }
  };
  system.addEventListener("change", redraw);
  const names = { "": "as the system", light: "light", dark: "dark" };
  const button = document.getElementById("theme");
  const choose = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = "Theme: " + names[theme];
  };
  // A browser may refuse a file its storage.
  const stored = { get: () => { try { return localStorage.getItem("theme") || ""; } catch { return ""; } },
    set: (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not kept */ } } };
  choose(stored.get() in names ? stored.get() : "");
  button.addEventListener("click", () => {
    const order = Object.keys(names);
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length];
    choose(next);
    stored.set(next);
    redraw();
  });

  const shown = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    return size && (size < 1e-3 || size >= 1e7) ? value.toExponential(3) : String(value);
  };
  const cell = (kind, value, isNumber) => {
    const made = document.createElement(kind);
    made.textContent = shown(value);
    if (isNumber) made.className = "number";
    return made;
  };
  const list = (name) => {
    const columns = Object.entries(page.sets[name]);
    const length = columns.length ? columns[0][1].length : 0;
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    const isNumber = columns.map(([, values]) => values.some((value) => typeof value === "number"));
    columns.forEach(([key], at) => {
      const made = cell("th", key, isNumber[at]);
      made.scope = "col";
      head.append(made);
    });
    const body = table.createTBody();
    for (let at = 0; at < Math.min(length, page.listed_max); at += 1) {
      const row = body.insertRow();
      columns.forEach(([, values], column) => row.append(cell("td", values[at], isNumber[column])));
    }
    if (length > page.listed_max) {
      table.createCaption().textContent = `The first ${page.listed_max} of ${length} rows; all are in the Parquet beside this page.`;
    }
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Data of this chart");
    scroll.append(table);
    return scroll;
  };
  for (const place of document.querySelectorAll("details.data")) {
    place.addEventListener("toggle", () => {
      if (!place.open || place.dataset.listed) return;
      place.dataset.listed = "yes";
      for (const name of page.specs[place.dataset.chart].listed) place.append(list(name));
    });
  }

  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const reading = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      const link = links.get(target.id);
      if (link && isIntersecting) {
        for (const other of links.values()) other.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
      }
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main section")) reading.observe(section);
})();
