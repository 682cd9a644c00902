"use strict";
// Values of the sweep become text nodes, attributes of text, and numbers: never markup, a script or a colour.
{
/** Shows the data below the summary. Returns what is to be kept when newer data come, what to do at last, and how all is drawn at once. */
const show = (data) => {
  const figures = document.getElementById("figures");
  const live = document.getElementById("live");
  const metric = data.metric;

  // ---- elements

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  const say = (text) => { live.textContent = text; };
  const byTheme = (name) => `var(--${name})`;

  // ---- numbers

  function figure(n, digits = 4) {
    if (n === null || n === undefined || Number.isNaN(n)) return "–";
    if (Number.isInteger(n) && Math.abs(n) < 1e6) return String(n);
    const size = Math.abs(n);
    if (size >= 1e6 || size < 1e-3) return n.toExponential(Math.max(digits - 2, 1)).replace(/\.?0+e/, "e").replace("e+", "e");
    return String(Number(n.toPrecision(digits)));
  }
  const thousands = (n) => n.toLocaleString("en-US");
  /** A value beside other words: marks that turn the direction of writing are spelt out, and letters from right to left turn nothing but themselves. */
  function isolated(text) {
    const spelt = text.replace(/[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
    return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(spelt) ? `\u2068${spelt}\u2069` : spelt;
  }
  function ago(seconds) {
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.round(seconds)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(Math.round(seconds) % 60).padStart(2, "0")} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${String(Math.floor(seconds / 60) % 60).padStart(2, "0")} min`;
    return `${Math.floor(seconds / 86400)} d ${String(Math.floor(seconds / 3600) % 24).padStart(2, "0")} h`;
  }
  /** The unit in which a time is drawn: its name and its seconds. */
  function clock(span) {
    if (span < 180) return ["s", 1];
    if (span < 3 * 3600) return ["min", 60];
    return span < 3 * 86400 ? ["h", 3600] : ["d", 86400];
  }

  // ---- trials

  const table = data.trials;
  const columns = table.columns.map((column) => ({
    ...column,
    isNumber: Boolean(column.n),
    get: column.n ? (i) => column.n[i] : (i) => (column.v[i] === null ? null : column.d[column.v[i]]),
  }));
  const count = table.shown;
  const one = (role) => columns.find((column) => column.role === role);
  const trialColumn = one("trial");
  const stateColumn = one("state");
  const metricColumn = metric && columns.find((column) => column.role === "metric" && column.name === metric.name)
    || (metric && columns.find((column) => column.name === metric.name));
  const swept = columns.filter((column) => column.swept);
  const everyTrial = d3.range(count);
  const isDone = (i) => stateColumn.get(i) === "done";
  const titled = (column) => (column.unit ? `${isolated(column.name)} (${column.unit})` : isolated(column.name));
  const shown = (column, i) => {
    const value = column.get(i);
    return value === null ? "–" : column.isNumber ? figure(value, 6) : isolated(String(value));
  };
  /** Whether numbers are better seen by their logarithm. */
  function isLog(values) {
    const least = d3.min(values), greatest = d3.max(values);
    if (!(least > 0) || greatest / least < 50) return false;
    // Powers or random draws, and not a few large values among many small ones.
    const middle = d3.median(values);
    return middle / least > 3 && greatest / middle > 3;
  }
  /** Of each of these values its rank, from 0, the worst, to 1, the best: an outlier takes no colour from the others, and equal values have one. */
  function ranks(values) {
    const distinct = Array.from(new Set(values)).sort(metric.max ? d3.ascending : d3.descending);
    const known = new Map(distinct.map((value, i) => [value, distinct.length > 1 ? i / (distinct.length - 1) : 1]));
    return (value) => known.get(value) ?? null;
  }
  const goodness = metricColumn && metricColumn.isNumber
    ? ranks(everyTrial.filter(isDone).map(metricColumn.get).filter((value) => value !== null)) : () => null;
  const mixed = (share) => (share === null ? byTheme("rest") : `color-mix(in oklab, var(--hot) ${Math.round(share * 100)}%, var(--cold))`);
  const stateColour = (state) => (["done", "failed", "timeout", "interrupted", "running"].includes(state)
    ? byTheme(state) : byTheme("faint"));
  const goal = metric ? (metric.max ? "greatest is best" : "least is best") : "";
  const nameOf = (i) => {
    const lines = [`trial ${shown(trialColumn, i)}`];
    for (const column of swept.slice(0, 8)) lines.push(`${isolated(column.name)}: ${shown(column, i)}`);
    if (metricColumn) lines.push(`${metricColumn.name}: ${shown(metricColumn, i)}`);
    return lines.join("\n");
  };

  // ---- sections

  const sections = [["summary", "Summary"]];
  const SHORT = { curves: "Curves", effects: "Effects", map: "Heat map", pareto: "Cost", parallel: "Parameters", resources: "Resources", origin: "Origin" };
  const charts = [];
  function section(id, title, words, parent = figures) {
    const heading = `h-${id}`;
    const body = make("section", { id, "aria-labelledby": heading }, make("h2", { id: heading }, title));
    if (words) body.append(make("p", { class: "note" }, words));
    parent.append(body);
    sections.push([id, SHORT[id] || title]);
    return body;
  }
  /** A chart that is drawn anew whenever its width changes. `draw` gets the width and returns an element. */
  function chart(parent, label, draw) {
    const frame = make("div", { class: "chart", role: "img", "aria-label": label });
    parent.append(frame);
    const own = {
      frame, width: 0,
      draw(wanted) {
        const width = Math.floor(wanted || frame.clientWidth);
        if (width < 40 || width === own.width) return;
        own.width = width;
        frame.replaceChildren(draw(width));
      },
      again() { const width = own.width; own.width = 0; if (width) own.draw(width); },
    };
    charts.push(own);
    return own;
  }
  const style = { background: "transparent", color: "var(--soft)", fontSize: "12px", fontFamily: "inherit", overflow: "visible" };
  const grid = { stroke: byTheme("grid"), strokeOpacity: 1 };
  const legend = (items) => make("ul", { class: "legend" }, ...items.map(([colour, text, square]) => {
    const mark = make("i", square ? { class: "square" } : {});
    mark.style.background = colour;
    return make("li", {}, mark, text);
  }));
  const ramp = (words) => make("p", { class: "ramp" }, make("span", {}, "worst"), make("i", {}), make("span", {}, `best ${words}`));
  const wrapped = (text, most) => isolated(text.length > most ? `${text.slice(0, most - 1)}…` : text);
  function choice(label, options, value, change) {
    const select = make("select", { on: { change: () => change(select.value) } },
      ...options.map(([key, text]) => make("option", { value: key, selected: key === value }, text)));
    return make("label", {}, label, select);
  }

  // ---- settings

  if (data.settings) {
    const { names, costs, notes, rows } = data.settings;
    const body = section("settings", "Settings", notes.join(" "));
    const PLACES = { best: ["c1", "the best"], tied: ["accent", "cannot be told from it"], worse: ["rest", "worse"], untested: ["faint", "not tested"], failed: ["failed", "with trials that failed"] };
    const used = Object.keys(PLACES).filter((place) => rows.some((row) => row.place === place));
    const dots = rows.map((row, i) => ({ ...row, i, low: row.ends && row.ends[0], high: row.ends && row.ends[1] })).filter((row) => row.at !== null);
    if (dots.length) {
      const card = make("figure", { class: "card" }, legend(used.map((place) => [byTheme(PLACES[place][0]), PLACES[place][1], true])));
      body.append(card);
      const colour = (row) => byTheme(PLACES[row.place][0]);
      const longest = d3.max(rows, (row) => row.label.length);
      chart(card, `Mean ${metric.name} of settings, the best first: ${rows.map((row) => `${row.label} ${row.value} ${row.interval}`).join("; ")}`, (width) => {
        const left = Math.min(Math.round(width * 0.42), 16 + longest * 6.8);
        const ends = dots.flatMap((row) => [row.at, row.low, row.high]).filter((end) => end !== null);
        return Plot.plot({
          width, height: rows.length * 20 + 56, marginLeft: left, marginRight: 16, marginTop: 6, marginBottom: 40, style,
          x: { label: `${isolated(metric.name)} (${goal}) →`, labelArrow: "none", nice: true, type: isLog(ends) ? "log" : "linear", ticks: Math.max(3, Math.round(width / 130)), tickFormat: (x) => figure(x) },
          y: { type: "band", domain: d3.range(rows.length), label: null, tickSize: 0, tickFormat: (i) => wrapped(rows[i].label, Math.max(6, Math.floor((left - 10) / 6.6))) },
          marks: [
            Plot.gridX({ ...grid, ticks: 6 }),
            Plot.ruleY(dots.filter((row) => row.low !== null && row.high !== null), { y: "i", x1: "low", x2: "high", stroke: colour, strokeWidth: 2, strokeOpacity: 0.6 }),
            Plot.dot(dots, { x: "at", y: "i", r: 4, fill: colour }),
            Plot.tip(dots, Plot.pointer({ x: "at", y: "i", title: (row) => `${isolated(row.label)}\n${isolated(metric.name)} ${row.value} ${row.interval}\n${row.n} trials${row.failed ? `, failed ${row.failed}` : ""}${row.p ? `\np = ${row.p}` : ""}` })),
          ],
        });
      });
    }
    const hasFailed = rows.some((row) => row.failed);
    const heads = [...names.map((name) => [isolated(name), null]), [`Mean ${isolated(metric.name)}`, "n"], ["95 % interval", "n"], ["sd", "n"], ["n", "n"],
      ...(hasFailed ? [["failed", "n"]] : []), ["p", "n"], ...costs.map((cost) => [`Mean ${cost}`, "n"])];
    const cell = (text, kind) => make("td", { class: kind, title: text.length > 30 ? text : null }, text);
    body.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings" }, make("table", { id: "settings-table" },
      make("thead", {}, make("tr", {}, ...heads.map(([text, kind]) => make("th", { scope: "col", class: kind }, text)))),
      make("tbody", {}, ...rows.map((row) => make("tr", { class: row.place },
        ...row.cells.map((text) => cell(isolated(text), "t")),
        ...[row.value, row.interval, row.sd, row.n, ...(hasFailed ? [row.failed] : []),
          row.place === "tied" ? `≈ ${row.p}` : row.place === "best" ? "best" : row.p].map((text) => cell(text, "n")),
        ...row.costs.map((cost) => cell(figure(cost), "n"))))))));
  }

  // ---- learning curves

  if (data.curves) {
    const { curves } = data;
    const bands = curves.settings.some((setting) => setting.trials > 1);
    const words = `${curves.metric} by ${curves.x}. `
      + (bands ? "Lines are means over trials of a setting, bands reach from the least to the greatest of them. " : "")
      + (curves.note || "");
    const body = section("curves", "Learning curves", words);
    const card = make("figure", { class: "card" });
    body.append(card);
    const best = curves.settings.slice(0, curves.best);
    const items = best.map((setting, i) => [byTheme(`c${i}`), setting.label]);
    if (curves.settings.length > best.length) items.push([byTheme("rest"), "other settings"]);
    const view = { part: "all" };
    card.append(make("div", { class: "controls" }, choice("Scale", [["all", "all values"], ["best", "the better half"]], "all", (value) => { view.part = value; lines.again(); })), legend(items));
    const points = (setting, z) => setting.points.map(([x, mean, low, high]) => ({ x, mean, low, high, z, label: setting.label }));
    const others = curves.settings.slice(curves.best).flatMap((setting, i) => points(setting, `o${i}`));
    const own = best.map((setting, i) => points(setting, `b${i}`));
    const flat = own.flat();
    const lines = chart(card, `Learning curves of ${curves.settings.length} settings. Best: ${best.map((setting) => setting.label).join("; ")}`, (width) => {
      const ys = flat.concat(others).map((point) => point.mean).filter((y) => y !== null);
      const sorted = ys.slice().sort(d3.ascending);
      const log = isLog(sorted);
      const middle = d3.quantileSorted(sorted, 0.5);
      const ends = view.part === "all" ? {} : { domain: metric.max ? [middle, d3.max(flat, (point) => point.high)] : [d3.min(flat, (point) => point.low), middle], clamp: false };
      const clip = view.part !== "all";
      return Plot.plot({
        width, height: Math.round(Math.min(420, Math.max(260, width * 0.42))), marginLeft: 52, marginBottom: 40, marginRight: 14, style,
        x: { label: `${curves.x} →`, labelAnchor: "right", labelArrow: "none", ticks: Math.max(3, Math.round(width / 110)), tickFormat: (x) => (Number.isInteger(x) ? figure(x) : "") },
        y: { label: `↑ ${curves.metric}`, labelArrow: "none", type: log ? "log" : "linear", nice: true, ...ends, ticks: 6, tickFormat: (y) => figure(y) },
        marks: [
          Plot.gridY({ ...grid, ticks: 6 }),
          Plot.line(others, { x: "x", y: "mean", z: "z", stroke: byTheme("rest"), strokeWidth: 1, strokeOpacity: 0.55, clip }),
          ...own.slice().reverse().flatMap((line, k) => {
            const colour = byTheme(`c${own.length - 1 - k}`);
            return [
              Plot.areaY(line, { x: "x", y1: "low", y2: "high", fill: colour, fillOpacity: 0.14, clip }),
              Plot.line(line, { x: "x", y: "mean", stroke: colour, strokeWidth: 2, clip }),
            ];
          }),
          Plot.tip(flat, Plot.pointer({ x: "x", y: "mean", title: (point) => `${point.label}\n${curves.x} ${figure(point.x)}: ${figure(point.mean)}`
            + (point.low !== point.high ? ` (${figure(point.low)} to ${figure(point.high)})` : "") })),
        ],
      });
    });
  }

  // ---- what matters

  if (data.effects.axes.length) {
    const body = section("effects", "What matters", `Mean ${metric.name} by the values of each parameter, with intervals of 95 % (of a forest, the middle 95 % of its trees, which is no interval). `
      + `The share is that of the variance which the parameter explains on its own (${data.effects.method}).`
      + (data.effects.pairs.some((pair) => pair.share >= 0.01) ? ` Beyond that, together: ${data.effects.pairs.filter((pair) => pair.share >= 0.01).map((pair) => `${pair.names.join(" with ")} ${Math.round(pair.share * 100)} %`).join(", ")}.` : ""));
    const cards = make("div", { class: "small" });
    body.append(cards);
    const all = data.effects.axes.slice(0, 12).flatMap((effect) => effect.levels);
    const ends = [d3.min(all, (level) => level.low ?? level.mean), d3.max(all, (level) => level.high ?? level.mean)];
    for (const effect of data.effects.axes.slice(0, 12)) {
      const share = effect.share * 100;
      const bar = make("i", {});
      bar.style.width = `${share}%`;
      const card = make("figure", { class: "card" },
        make("h3", {}, make("span", {}, isolated(effect.name)), make("span", {}, effect.is_shown ? `${share < 1 ? "< 1" : Math.round(share)} %` : "no effect shown")),
        make("div", { class: "bar", "aria-hidden": "true" }, bar));
      cards.append(card);
      const levels = effect.levels.map((level, i) => ({ ...level, i }));
      // A range is named by its beginning; the tip has its ends, too.
      const every = Math.ceil(levels.length / 8);
      const tick = (level) => (level.i % every ? "" : wrapped(level.label.split(" to ")[0], 14));
      const longest = d3.max(levels, (level) => tick(level).length) * 6.8;
      chart(card, `Mean ${metric.name} by ${effect.name}: ${levels.map((level) => `${level.label} ${figure(level.mean)}`).join(", ")}`, (width) => {
        const long = longest + 6 > (width - 58) / Math.ceil(levels.length / every);
        const bottom = long ? Math.min(66, 18 + longest * 0.62) : 28;
        return Plot.plot({
        width, height: 142 + bottom, marginLeft: 48, marginRight: 10, marginTop: 10, marginBottom: bottom, style,
        x: { type: "point", domain: levels.map((level) => level.i), label: null, padding: 0.5, tickFormat: (i) => tick(levels[i]), tickRotate: long ? -35 : 0, tickSize: 0 },
        y: { domain: ends, nice: true, label: null, ticks: 4, tickSize: 0, tickFormat: (y) => figure(y, 3) },
        marks: [
          Plot.gridY({ ...grid, ticks: 4 }),
          Plot.line(levels, { x: "i", y: "mean", stroke: byTheme("rest"), strokeWidth: 1.5 }),
          Plot.link(levels, { x: "i", y1: (level) => level.low ?? level.mean, y2: (level) => level.high ?? level.mean, stroke: byTheme("accent"), strokeWidth: 2, strokeOpacity: 0.55 }),
          Plot.dot(levels, { x: "i", y: "mean", r: levels.length > 12 ? 2.5 : 4, fill: byTheme("accent") }),
          Plot.tip(levels, Plot.pointerX({ x: "i", y: "mean", title: (level) => `${isolated(effect.name)} ${isolated(level.label)}\n${metric.name} ${figure(level.mean)}`
            + (level.low !== null ? ` (${figure(level.low)} to ${figure(level.high)})` : "") + `\n${thousands(level.n)} trials` })),
        ],
        });
      });
    }
  }

  // ---- levels of a parameter, for axes that are made of places

  /** The places of a parameter's values: texts or few numbers as they are, many numbers as ranges. */
  function levelsOf(column, most = 12) {
    const values = everyTrial.map(column.get).filter((value) => value !== null);
    if (!column.isNumber) {
      const texts = Array.from(new Set(values)).sort(d3.ascending);
      const known = new Map(texts.slice(0, most).map((text, i) => [text, i]));
      const labels = texts.slice(0, most).map((text) => wrapped(text, 22));
      if (texts.length > most) labels.push("others");
      return { labels, of: (value) => (value === null ? null : known.get(value) ?? most) };
    }
    const numbers = Array.from(new Set(values)).sort(d3.ascending);
    if (numbers.length <= most) {
      const known = new Map(numbers.map((number, i) => [number, i]));
      return { labels: numbers.map((number) => figure(number)), of: (value) => (value === null ? null : known.get(value)) };
    }
    const scale = (isLog(numbers) ? d3.scaleLog() : d3.scaleLinear()).domain([numbers[0], numbers[numbers.length - 1]]).range([0, 10]);
    const labels = d3.range(10).map((i) => `${figure(scale.invert(i), 2)} to ${figure(scale.invert(i + 1), 2)}`);
    return { labels, of: (value) => (value === null ? null : Math.min(9, Math.max(0, Math.floor(scale(value))))) };
  }

  // ---- heat map, and metric against cost

  const pair = make("div", { class: "pair" });
  if (metricColumn && metricColumn.isNumber && swept.length > 1) figures.append(pair);

  if (metricColumn && metricColumn.isNumber && swept.length > 1) {
    const pairs = data.effects.pairs.filter((pair) => pair.share >= 0.02);
    const byEffect = (pairs.length ? pairs[0].names : []).concat(data.effects.axes.map((effect) => effect.name));
    const order = swept.slice().sort((a, b) => (byEffect.indexOf(a.name) + 1 || 99) - (byEffect.indexOf(b.name) + 1 || 99));
    const chosen = { x: order[0].name, y: order[1].name, what: "mean" };
    const body = section("map", "Two parameters", `Finished trials by two parameters, over all others.`, pair);
    const card = make("figure", { class: "card" });
    const controls = make("div", { class: "controls" });
    const options = swept.map((column) => [column.name, wrapped(column.name, 28)]);
    body.append(card);
    card.append(controls, ramp(`by rank (${goal}, outlined)`));
    const map = chart(card, "", (width) => {
      const xs = columns.find((column) => column.swept && column.name === chosen.x);
      const ys = columns.find((column) => column.swept && column.name === chosen.y);
      const across = levelsOf(xs), down = levelsOf(ys);
      const cells = d3.rollups(
        everyTrial.filter((i) => isDone(i) && metricColumn.get(i) !== null && xs.get(i) !== null && ys.get(i) !== null),
        (trials) => {
          const values = trials.map(metricColumn.get);
          const value = chosen.what === "mean" ? d3.mean(values) : metric.max ? d3.max(values) : d3.min(values);
          return { x: across.of(xs.get(trials[0])), y: down.of(ys.get(trials[0])), n: trials.length, value };
        },
        (i) => across.of(xs.get(i)) * 1000 + down.of(ys.get(i))).map(([, cell]) => cell);
      const rank = ranks(cells.map((cell) => cell.value));
      const share = (cell) => rank(cell.value);
      const longest = d3.max(down.labels, (label) => label.length) || 1;
      const left = Math.min(Math.round(width * 0.38), 20 + longest * 6.6);
      const size = (width - left) / across.labels.length;
      const rotated = d3.max(across.labels, (label) => label.length) * 6.6 > size;
      const bottom = rotated ? Math.min(96, 22 + d3.max(across.labels, (label) => label.length) * 4.2) : 28;
      const row = Math.max(26, Math.min(46, size));
      map.frame.setAttribute("aria-label", `${chosen.what} of ${metric.name} by ${chosen.x} and ${chosen.y}: `
        + cells.map((cell) => `${across.labels[cell.x]}, ${down.labels[cell.y]}: ${figure(cell.value, 3)}`).slice(0, 60).join("; "));
      return Plot.plot({
        width, height: down.labels.length * row + bottom + 30, marginLeft: left, marginBottom: bottom + 16, marginTop: 24, marginRight: 2, style, padding: 0.04,
        x: { type: "band", domain: d3.range(across.labels.length), label: wrapped(chosen.x, 40), labelArrow: "none", labelAnchor: "center", labelOffset: bottom + 10, tickFormat: (i) => across.labels[i], tickRotate: rotated ? -40 : 0, tickSize: 0 },
        y: { type: "band", domain: d3.range(down.labels.length).reverse(), label: wrapped(chosen.y, 40), labelArrow: "none", labelAnchor: "top", tickFormat: (i) => down.labels[i], tickSize: 0 },
        marks: [
          Plot.cell(cells, { x: "x", y: "y", fill: (cell) => mixed(share(cell)), rx: 3, title: (cell) => `${isolated(chosen.x)}: ${across.labels[cell.x]}\n${isolated(chosen.y)}: ${down.labels[cell.y]}\n${chosen.what} of ${metric.name}: ${figure(cell.value)}\n${thousands(cell.n)} trials`, tip: true }),
          Plot.cell(cells.filter((cell) => share(cell) === 1), { x: "x", y: "y", fill: "none", stroke: byTheme("c1"), strokeWidth: 2.5, rx: 3, pointerEvents: "none" }),
          size > 40 ? Plot.text(cells, { x: "x", y: "y", text: (cell) => figure(cell.value, size > 56 ? 3 : 2), fill: (cell) => (share(cell) > 0.55 ? byTheme("on-hot") : byTheme("on-cold")), pointerEvents: "none" }) : null,
        ],
        color: { type: "identity" },
      });
    });
    const change = (name) => (value) => { chosen[name] = value; map.again(); };
    controls.append(
      choice("Across", options, chosen.x, change("x")), choice("Down", options, chosen.y, change("y")),
      choice("Show", [["mean", "mean"], ["best", "best"]], "mean", change("what")));
  }

  const costs = columns.filter((column) => column.role === "cost");
  if (metricColumn && metricColumn.isNumber && costs.length) {
    const wanted = ["energy", "GPU time", "core time", "duration"].map((name) => costs.find((column) => column.name === name)).find(Boolean) || costs[0];
    const chosen = { cost: wanted.name };
    const body = section("pareto", "Metric and cost", "Each dot is a finished trial. No trial is better and cheaper than those on the line.",
      pair.parentNode ? pair : figures);
    const card = make("figure", { class: "card" });
    body.append(card);
    const scatter = chart(card, "", (width) => {
      const cost = costs.find((column) => column.name === chosen.cost);
      const dots = everyTrial.filter((i) => isDone(i) && metricColumn.get(i) !== null && cost.get(i) !== null)
        .map((i) => ({ i, x: cost.get(i), y: metricColumn.get(i) }));
      const sorted = dots.slice().sort((a, b) => d3.ascending(a.x, b.x) || (metric.max ? d3.descending(a.y, b.y) : d3.ascending(a.y, b.y)));
      const front = [];
      for (const dot of sorted) {
        const last = front[front.length - 1];
        if (!last || (metric.max ? dot.y > last.y : dot.y < last.y)) front.push(dot);
      }
      scatter.frame.setAttribute("aria-label", `${metric.name} against ${titled(cost)} of ${dots.length} finished trials. On the front: `
        + front.slice(0, 20).map((dot) => `trial ${shown(trialColumn, dot.i)}, ${figure(dot.x)} ${cost.unit || ""}, ${figure(dot.y)}`).join("; "));
      // Many dots are drawn as one image's worth: every so many of those that are far from the front.
      const most = 3000;
      const drawn = dots.length > most ? dots.filter((dot, k) => k % Math.ceil(dots.length / most) === 0).concat(front) : dots;
      return Plot.plot({
        width, height: Math.round(Math.min(400, Math.max(280, width * 0.72))), marginLeft: 52, marginBottom: 42, marginTop: 26, marginRight: 14, style,
        x: { label: `${titled(cost)} →`, labelArrow: "none", nice: true, type: isLog(dots.map((dot) => dot.x)) ? "log" : "linear", ticks: Math.max(3, Math.round(width / 110)), tickFormat: (x) => figure(x, 3) },
        y: { label: `↑ ${metric.name} (${goal})`, labelArrow: "none", nice: true, type: isLog(dots.map((dot) => dot.y)) ? "log" : "linear", ticks: 6, tickFormat: (y) => figure(y, 3) },
        marks: [
          Plot.gridY({ ...grid, ticks: 6 }),
          Plot.dot(drawn, { x: "x", y: "y", r: dots.length > 500 ? 2.5 : 3.5, fill: byTheme("accent"), fillOpacity: dots.length > 500 ? 0.35 : 0.5 }),
          Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: byTheme("c1"), strokeWidth: 1.75 }),
          Plot.dot(front, { x: "x", y: "y", r: 4.5, fill: byTheme("c1"), stroke: byTheme("card"), strokeWidth: 1.5 }),
          Plot.tip(drawn, Plot.pointer({ x: "x", y: "y", title: (dot) => `${nameOf(dot.i)}\n${titled(cost)}: ${figure(dot.x)}` })),
        ],
      });
    });
    if (costs.length > 1) {
      scatter.frame.before(make("div", { class: "controls" }, choice("Cost", costs.map((column) => [column.name, titled(column)]), chosen.cost, (value) => { chosen.cost = value; scatter.again(); })));
    }
    scatter.frame.before(legend([[byTheme("accent"), "trial", true], [byTheme("c1"), "on the Pareto front"]]));
  }

  // ---- parallel coordinates

  const limits = new Map();
  let filtered = everyTrial;
  /** The ranges as values, where an axis has numbers, and back. */
  const ranges = { get: () => [], set: () => {} };
  if (swept.length > 1 && count > 1) {
    const axes = swept.slice(0, 9);
    if (metricColumn && metricColumn.isNumber) axes.push(metricColumn);
    const words = `Each line is a trial${metric ? `, from its parameters to its ${metric.name}` : ""}. Drag along an axis to choose a range, or move its ends with the arrow keys: the table below follows.`;
    const body = section("parallel", "All parameters", words);
    const card = make("figure", { class: "card" });
    body.append(card);
    const clear = make("button", { type: "button", disabled: true, on: { click: () => { limits.clear(); narrowed(); } } }, "Clear ranges");
    card.append(make("div", { class: "controls" }, metricColumn ? ramp(`by rank (${goal}, on top)`) : null, clear));
    const scales = axes.map((column) => {
      const values = everyTrial.map(column.get).filter((value) => value !== null);
      if (!column.isNumber) {
        const texts = Array.from(new Set(values)).sort(d3.ascending);
        const known = new Map(texts.map((text, i) => [text, texts.length > 1 ? i / (texts.length - 1) : 0.5]));
        const step = Math.ceil(texts.length / 14);
        return { few: texts.length <= 12, of: (value) => known.get(value), texts: texts.join("\n"), stops: texts.map((text) => known.get(text)), word: (at) => isolated(d3.least(texts, (text) => Math.abs(known.get(text) - at))), ticks: texts.filter((text, i) => i % step === 0).map((text) => [known.get(text), wrapped(text, 14)]) };
      }
      const distinct = Array.from(new Set(values)).sort(d3.ascending);
      const log = isLog(distinct);
      const scale = (log ? d3.scaleLog() : d3.scaleLinear()).domain(distinct.length > 1 ? d3.extent(distinct) : [distinct[0] - 1, distinct[0] + 1]);
      const marks = distinct.length <= 8 ? distinct : log ? [distinct[0], ...scale.ticks(4), distinct[distinct.length - 1]] : scale.ticks(5);
      const ticks = [];
      for (const mark of marks) {
        const at = scale(mark);
        if (ticks.every(([other]) => Math.abs(other - at) > 0.06)) ticks.push([at, figure(mark, 3)]);
      }
      const stops = distinct.length <= 50 ? distinct.map((value) => scale(value)) : d3.range(51).map((i) => i / 50);
      return { few: distinct.length <= 12, of: (value) => scale(value), stops, word: (at) => figure(scale.invert(at)), back: (share) => scale.invert(share), ticks };
    });
    const most = 1000;
    const parallel = chart(card, `Parallel coordinates of ${axes.map((column) => column.name).join(", ")}`, (width) => {
      const candidates = everyTrial.filter((i) => !metricColumn || (isDone(i) && metricColumn.get(i) !== null));
      const step = Math.ceil(candidates.length / most);
      const drawn = candidates.filter((i, k) => k % step === 0);
      const inside = new Set(filtered);
      const isNarrow = width < 560;
      const height = isNarrow ? 60 + axes.length * 76 : 380;
      const points = [];
      // The best are drawn last, over the others; lines outside of the ranges lie below all.
      const layer = (i) => Number(inside.has(i)) + (goodness(metricColumn ? metricColumn.get(i) : null) ?? 0);
      drawn.sort((a, b) => layer(a) - layer(b));
      for (const i of drawn) {
        const on = inside.has(i);
        axes.forEach((column, k) => {
          const value = column.get(i);
          // Lines of equal values stand side by side.
          const aside = scales[k].few ? (((i * 7919 + k * 104729) % 1000) / 1000 - 0.5) * 0.026 : 0;
          points.push({ k, v: value === null ? NaN : scales[k].of(value) + aside, i, on });
        });
      }
      const colour = (point) => (point.on ? mixed(goodness(metricColumn ? metricColumn.get(point.i) : null)) : byTheme("grid"));
      const ticks = axes.flatMap((column, k) => scales[k].ticks.map(([v, text]) => ({ k, v, text })));
      const across = { type: "point", domain: axes.map((column, k) => k), padding: 0, axis: null };
      const along = { domain: [0, 1], axis: null };
      const names = axes.map((column, k) => ({ k, text: wrapped(titled(column), Math.max(8, Math.floor(width / axes.length / 7))) }));
      const [cx, cy] = isNarrow ? ["v", "k"] : ["k", "v"];
      // Where the values of an axis stand: beside the outer axes, above the lines of the inner ones.
      const last = axes.length - 1;
      const beside = isNarrow ? [[() => true, "middle", 0, 11]]
        : [[(k) => k === 0, "end", -7, 0], [(k) => k > 0 && k < last, "start", 7, -9], [(k) => k === last, "start", 7, 0]];
      const opacity = drawn.length > 400 ? 0.35 : 0.6;
      const plot = Plot.plot({
        width, height, style,
        marginLeft: isNarrow ? 14 : 30 + 6.6 * d3.max(scales[0].ticks, ([, text]) => text.length), marginRight: isNarrow ? 22 : 62, marginTop: isNarrow ? 40 : 42, marginBottom: isNarrow ? 30 : 16,
        x: isNarrow ? along : across, y: isNarrow ? across : along, color: { type: "identity" },
        marks: [
          Plot.line(points, { x: cx, y: cy, z: "i", stroke: colour, strokeWidth: drawn.length > 400 ? 1 : 1.4, strokeOpacity: opacity, curve: isNarrow ? "bump-y" : "bump-x" }),
          isNarrow ? Plot.ruleY(names, { y: "k", stroke: byTheme("faint") }) : Plot.ruleX(names, { x: "k", stroke: byTheme("faint") }),
          ...beside.map(([is, textAnchor, dx, dy]) => Plot.text(ticks.filter((tick) => is(tick.k)), {
            x: cx, y: cy, text: "text", dx, dy, textAnchor, fill: byTheme("fg"), stroke: byTheme("card"), strokeWidth: 4 })),
          isNarrow
            ? Plot.text(names, { x: () => 0, y: "k", text: "text", dy: -10, textAnchor: "start", fill: byTheme("fg"), fontWeight: 600, stroke: byTheme("card"), strokeWidth: 4 })
            : Plot.text(names, { x: "k", y: () => 1, text: "text", dy: -28, textAnchor: "middle", fill: byTheme("fg"), fontWeight: 600 }),
        ],
      });
      // Ranges are D3's brushes, one for each axis.
      const sx = plot.scale("x"), sy = plot.scale("y");
      axes.forEach((column, k) => {
        const at = isNarrow ? sy.apply(k) : sx.apply(k);
        const [a, b] = isNarrow ? sx.range : sy.range.slice().reverse();
        const brush = isNarrow
          ? d3.brushX().extent([[a, at - 12], [b, at + 12]])
          : d3.brushY().extent([[at - 14, a], [at + 14, b]]);
        const toShare = (pixel) => (isNarrow ? sx : sy).invert(pixel);
        const group = d3.select(plot).append("g").attr("aria-hidden", "true");
        brush.on("end", (event) => {
          if (!event.sourceEvent) return;
          if (!event.selection) limits.delete(k);
          else {
            const [from, to] = event.selection.map(toShare).sort(d3.ascending);
            limits.set(k, [from - 1e-6, to + 1e-6]);
          }
          narrowed();
        });
        group.call(brush);
        const apply = (share) => (isNarrow ? sx : sy).apply(share);
        if (limits.has(k)) group.call(brush.move, endsOf(k).map(apply).sort(d3.ascending));
        // Both ends can be moved by keys.
        endsOf(k).forEach((share, end) => {
          const [x, y] = isNarrow ? [apply(share), at] : [at, apply(share)];
          const [width, height] = isNarrow ? [5, 22] : [22, 5];
          d3.select(plot).append("rect").attr("class", "end").attr("data-end", `${k}-${end}`)
            .attr("x", x - width / 2).attr("y", y - height / 2).attr("width", width).attr("height", height).attr("rx", 2.5)
            .attr("tabindex", 0).attr("role", "slider").attr("aria-label", `${column.name}: ${end ? "to" : "from"}`)
            .attr("aria-orientation", isNarrow ? "horizontal" : "vertical").attr("aria-valuemin", 0).attr("aria-valuemax", 100)
            .attr("aria-valuenow", Math.round(share * 100)).attr("aria-valuetext", scales[k].word(share))
            .on("keydown", (event) => { if (moved(k, end, event.key)) event.preventDefault(); });
        });
      });
      return plot;
    });
    // What is in an image is hidden from readers of screens.
    parallel.frame.setAttribute("role", "group");
    function endsOf(k) { return (limits.get(k) || [0, 1]).map((share) => Math.max(0, Math.min(1, share))); }
    const KEYS = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5, Home: -Infinity, End: Infinity };
    /** Moves an end of a range from value to value, or clears the range; whether the key does that. */
    function moved(k, end, key) {
      const clears = ["Escape", "Delete", "Backspace"].includes(key);
      if (!clears && !(key in KEYS)) return false;
      const ends = endsOf(k), { stops } = scales[k], last = stops.length - 1;
      const next = Math.max(0, Math.min(last, d3.leastIndex(stops, (stop) => Math.abs(stop - ends[end])) + (KEYS[key] || 0)));
      const at = next === 0 ? 0 : next === last ? 1 : stops[next];
      ends[end] = end ? Math.max(at, ends[0]) : Math.min(at, ends[1]);
      if (clears || (ends[0] <= 0 && ends[1] >= 1)) limits.delete(k);
      else limits.set(k, [ends[0] - 1e-6, ends[1] + 1e-6]);
      narrowed();
      parallel.frame.querySelector(`[data-end="${k}-${end}"]`).focus({ preventScroll: true });
      return true;
    }
    function narrowed() { narrow(); parallel.again(); }
    ranges.get = () => Array.from(limits, ([k, ends]) => ({ axis: axes[k].name, texts: scales[k].texts, ends: scales[k].back ? ends.map(scales[k].back) : ends }));
    ranges.set = (kept) => {
      for (const { axis, texts, ends } of kept) {
        const k = axes.findIndex((column) => column.name === axis);
        // Of texts the places are kept, which mean something else once there are more of them.
        if (k >= 0 && texts === scales[k].texts) limits.set(k, scales[k].back ? ends.map(scales[k].of) : ends);
      }
      if (limits.size) narrow();
    };
    function narrow() {
      clear.disabled = limits.size === 0;
      filtered = limits.size === 0 ? everyTrial : everyTrial.filter((i) => Array.from(limits).every(([k, [from, to]]) => {
        const value = axes[k].get(i);
        if (value === null) return false;
        const at = scales[k].of(value);
        return at >= from && at <= to;
      }));
      refresh(true);
    }
    if (everyTrial.length > most) card.append(make("p", { class: "note" }, `Of ${thousands(count)} trials one in ${Math.ceil(count / most)} is drawn.`));
  }

  // ---- timeline

  if (data.timeline) {
    const { timeline } = data;
    const [unit, seconds] = clock(timeline.span);
    const body = section("timeline", "Timeline", timeline.notes.join(" "));
    const card = make("figure", { class: "card" });
    body.append(card);
    const used = Array.from(new Set(timeline.bars.map((bar) => bar[3]))).sort();
    card.append(legend(used.map((state) => [stateColour(timeline.states[state]), timeline.states[state], true])));
    const bars = timeline.bars.map(([lane, begin, end, state, trial, n]) => ({ lane, x1: begin / seconds, x2: Math.max(end, begin + timeline.span / 1000) / seconds, state: timeline.states[state], begin, end, trial, n }));
    const step = timeline.span / timeline.running.length / seconds;
    const steps = timeline.running.flatMap((n, i) => [{ x: i * step, n }, { x: (i + 1) * step, n }]);
    const longest = d3.max(timeline.lanes, (lane) => lane.length);
    chart(card, `When trials ran on ${timeline.lanes.length} places. ${timeline.notes.join(" ")}`, (width) => {
      const left = Math.min(Math.round(width * 0.3), Math.max(40, 14 + longest * 6.6));
      const row = timeline.lanes.length > 24 ? 12 : 20;
      const x = { domain: [0, timeline.span / seconds], label: null, ticks: Math.max(3, Math.round(width / 110)), tickFormat: (t) => figure(t, 3) };
      const skip = row < 14 ? 2 : 1;
      return make("div", {},
        Plot.plot({
          width, height: 110, marginLeft: left, marginRight: 14, marginBottom: 6, marginTop: 24, style,
          x: { ...x, axis: null }, y: { label: "↑ trials running", labelArrow: "none", ticks: 3, nice: true, domain: [0, Math.max(1, d3.max(timeline.running) || 1)], tickFormat: (n) => (Number.isInteger(n) ? figure(n) : "") },
          marks: [Plot.gridY({ ...grid, ticks: 3 }), Plot.areaY(steps, { x: "x", y1: 0, y2: "n", fill: byTheme("accent"), fillOpacity: 0.18 }), Plot.lineY(steps, { x: "x", y: "n", stroke: byTheme("accent"), strokeWidth: 1.5 })],
        }),
        Plot.plot({
          width, height: timeline.lanes.length * row + 52, marginLeft: left, marginRight: 14, marginBottom: 40, marginTop: 6, style,
          x: { ...x, label: `${unit} since the first start →`, labelArrow: "none" },
          y: { type: "band", domain: d3.range(timeline.lanes.length), padding: 0.16, label: null, tickSize: 0, tickFormat: (lane) => (lane % skip ? "" : wrapped(timeline.lanes[lane], 24)) },
          color: { type: "identity" },
          marks: [
            Plot.barX(bars, { x1: "x1", x2: "x2", y: "lane", fill: (bar) => stateColour(bar.state), insetRight: bars.length > 1500 ? 0 : 0.75, rx: bars.length > 600 ? 0 : 1.5 }),
            Plot.tip(bars, Plot.pointer({ x: (bar) => (bar.x1 + bar.x2) / 2, y: "lane", title: (bar) => `${bar.n > 1 ? `${bar.n} attempts, from trial ${bar.trial} on` : `trial ${bar.trial}`}: ${bar.state}\n${ago(bar.begin)} to ${ago(bar.end)} (${ago(bar.end - bar.begin)})` })),
          ],
        }));
    });
  }

  // ---- failures

  if (data.failures.length) {
    const total = d3.sum(data.failures, (failure) => failure.count);
    const body = section("failures", "Failures", `${thousands(total)} ${total === 1 ? "trial" : "trials"} ended without success.`);
    const causes = d3.rollups(data.failures, (own) => d3.sum(own, (failure) => failure.count), (failure) => failure.cause)
      .map(([cause, n]) => ({ cause, n })).sort((a, b) => b.n - a.n);
    if (causes.length > 1) {
      const card = make("figure", { class: "card" });
      body.append(card);
      const longest = d3.max(causes, (own) => own.cause.length);
      chart(card, `Failures by cause: ${causes.map((own) => `${own.cause} ${own.n}`).join(", ")}`, (width) => Plot.plot({
        width, height: causes.length * 28 + 12, marginLeft: 16 + longest * 6.8, marginRight: 48, marginTop: 4, marginBottom: 6, style,
        x: { axis: null, domain: [0, d3.max(causes, (own) => own.n)] },
        y: { domain: causes.map((own) => own.cause), label: null, tickSize: 0, padding: 0.3 },
        marks: [
          Plot.barX(causes, { x: "n", y: "cause", fill: byTheme("failed"), rx: 2 }),
          Plot.text(causes, { x: "n", y: "cause", text: (own) => thousands(own.n), dx: 6, textAnchor: "start", fill: byTheme("fg") }),
        ],
      }));
    }
    body.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Failures" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "n" }, "Trials"), make("th", { scope: "col" }, "Cause"), make("th", { scope: "col" }, "Why"), make("th", { scope: "col" }, "Which, and what they printed"))),
      make("tbody", {}, ...data.failures.map((failure) => make("tr", {},
        make("td", { class: "n" }, thousands(failure.count)), make("td", {}, failure.cause), make("td", { class: "words" }, isolated(failure.words)),
        make("td", {}, failure.trials, make("br"), make("code", {}, failure.command))))))));
  }

  // ---- resources

  if (data.cost.shapes.length) {
    const body = section("resources", "Requested and used", "Shares of the request: median, 95th percentile and maximum, from dark to light. They are of trials that are done, or of all if none is.");
    if (data.cost.hours.length) {
      body.append(make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...["Hours", "Requested", "Used", "Wasted", "Share used"].map((text, i) => make("th", { scope: "col", class: i ? "n" : null }, text)))),
        make("tbody", {}, ...data.cost.hours.map((hours) => make("tr", {}, make("th", { scope: "row" }, hours.what),
          ...[hours.requested, hours.used, hours.wasted, `${Math.round(hours.share * 100)} %`].map((text) => make("td", { class: "n" }, text))))))));
    }
    for (const shape of data.cost.shapes) {
      const card = make("div", { class: "card" }, make("h3", {}, shape.title));
      body.append(card);
      const rows = shape.rows.filter((row) => row.shares).map((row) => ({ what: row.what, median: row.shares[0], p95: row.shares[1], largest: row.shares[2] }));
      if (rows.length) {
        const end = Math.max(1, d3.max(rows, (row) => row.largest));
        chart(card, rows.map((row) => `${row.what}: median ${Math.round(row.median * 100)} %, most ${Math.round(row.largest * 100)} % of the request`).join("; "), (width) => Plot.plot({
          width, height: rows.length * 34 + 40, marginLeft: 92, marginRight: 20, marginTop: 8, marginBottom: 30, style,
          x: { domain: [0, end], label: null, tickFormat: (share) => `${Math.round(share * 100)} %`, ticks: Math.max(3, Math.round(width / 140)) },
          y: { domain: rows.map((row) => row.what), label: null, tickSize: 0, padding: 0.45 },
          marks: [
            Plot.barX(rows, { x1: 0, x2: 1, y: "what", fill: byTheme("grid"), rx: 3 }),
            Plot.barX(rows, { x1: 0, x2: "largest", y: "what", fill: byTheme("accent"), fillOpacity: 0.25, rx: 3 }),
            Plot.barX(rows, { x1: 0, x2: "p95", y: "what", fill: byTheme("accent"), fillOpacity: 0.35, rx: 3 }),
            Plot.barX(rows, { x1: 0, x2: "median", y: "what", fill: byTheme("accent"), rx: 3 }),
          ],
        }));
      }
      card.append(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Requested and used: ${shape.title}` }, make("table", {},
        make("thead", {}, make("tr", {}, ...["", "Requested", "Median", "95th percentile", "Maximum"].map((text, i) => make("th", { scope: "col", class: i ? "n" : null }, text)))),
        make("tbody", {}, ...shape.rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.what), ...[row.asked, row.median, row.p95, row.largest].map((text) => make("td", { class: "n" }, text))))))));
      for (const note of shape.notes) card.append(make("p", { class: "note" }, note));
      if (shape.enough.length) card.append(make("details", {}, make("summary", {}, "The request that would have been enough, with a fifth more than the maximum"), make("pre", {}, `[resources]\n${shape.enough.join("\n")}`)));
    }
  }

  // ---- the table

  const SIZE = 25;
  const view = { column: null, down: false, page: 0, rows: everyTrial, words: "" };
  const listed = columns;
  const body = section("trials", "Trials", table.notes.join(" ") || null);
  const search = make("input", { type: "search", id: "filter", placeholder: "e.g. adam lr<0.01 state=done", autocomplete: "off", spellcheck: "false", "aria-describedby": "filter-help", on: { input: () => { view.words = search.value; refresh(true); } } });
  const head = make("tr", {});
  const bodyRows = make("tbody", {});
  const from = make("span", { id: "rows" });
  const turn = (by) => make("button", { type: "button", on: { click: () => { view.page += by; refresh(false); } } }, by < 0 ? "Previous" : "Next");
  const previous = turn(-1), next = turn(1);
  const save = (name, kind) => make("button", { type: "button", id: `save-${kind}`, on: { click: () => download(kind) } }, name);
  body.append(
    make("div", { class: "controls" }, make("label", { class: "wide" }, "Filter", search), save("CSV", "csv"), save("JSON", "json")),
    make("p", { class: "note", id: "filter-help" }, "Words, and conditions such as ", make("code", {}, "lr<0.01"), " or ", make("code", {}, "state=failed"), ": a trial is shown if all hold. CSV and JSON have the rows that are shown, on all pages."),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Trials" }, make("table", { id: "trials-table" }, make("thead", {}, head), bodyRows)),
    make("div", { class: "pages" }, from, make("span", {}, previous, " ", next)));
  listed.forEach((column) => {
    head.append(make("th", { scope: "col", class: column.isNumber ? "n" : null }, make("button", { type: "button", on: { click: () => {
      if (view.column === column) view.down = !view.down;
      else { view.column = column; view.down = column === metricColumn && metric.max; }
      refresh(true);
      say(`sorted by ${column.name}, ${view.down ? "descending" : "ascending"}`);
    } } }, titled(column), make("span", { "aria-hidden": "true" }))));
  });
  /** The conditions of a filter: functions of a trial. */
  function conditions(words) {
    return words.split(/\s+/).filter(Boolean).map((word) => {
      const match = word.match(/^(.+?)(<=|>=|!=|<|>|=)(.+)$/);
      const column = match && (columns.find((own) => own.name === match[1]) || columns.find((own) => own.name.toLowerCase() === match[1].toLowerCase()));
      if (!column) {
        const low = word.toLowerCase();
        return (i) => columns.some((own) => { const value = own.get(i); return value !== null && (own.isNumber ? shown(own, i) : String(value)).toLowerCase().includes(low); });
      }
      const [, , sign, text] = match;
      const number = Number(text);
      const compare = (value) => {
        if (value === null) return null;
        if (column.isNumber && !Number.isNaN(number)) return d3.ascending(value, number);
        return d3.ascending(String(value).toLowerCase(), text.toLowerCase());
      };
      const holds = { "<": (c) => c < 0, ">": (c) => c > 0, "<=": (c) => c <= 0, ">=": (c) => c >= 0, "=": (c) => c === 0, "!=": (c) => c !== 0 }[sign];
      return (i) => { const c = compare(column.get(i)); return c !== null && holds(c); };
    });
  }
  function refresh(whole) {
    if (whole) {
      const all = conditions(view.words);
      view.rows = filtered.filter((i) => all.every((holds) => holds(i)));
      if (view.column) {
        const { get } = view.column;
        const sign = view.down ? -1 : 1;
        view.rows = view.rows.slice().sort((a, b) => {
          const x = get(a), y = get(b);
          if (x === null || y === null) return (x === null) - (y === null) || a - b;
          return sign * d3.ascending(x, y) || a - b;
        });
      }
      view.page = 0;
    }
    const pages = Math.max(1, Math.ceil(view.rows.length / SIZE));
    view.page = Math.max(0, Math.min(pages - 1, view.page));
    const rows = view.rows.slice(view.page * SIZE, (view.page + 1) * SIZE);
    bodyRows.replaceChildren(...rows.map((i) => make("tr", {}, ...listed.map((column) => {
      if (column === trialColumn) return make("th", { scope: "row", class: "n" }, shown(column, i));
      if (column === stateColumn) {
        const mark = make("i", { "aria-hidden": "true" });
        mark.style.background = stateColour(stateColumn.get(i));
        return make("td", {}, make("span", { class: "state" }, mark, shown(column, i)));
      }
      const text = shown(column, i);
      return make("td", { class: column.isNumber ? "n" : "t", title: text.length > 30 ? text : null }, text);
    }))));
    head.childNodes.forEach((cell, k) => {
      const isIt = view.column === listed[k];
      if (isIt) cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
      cell.firstChild.lastChild.textContent = isIt ? (view.down ? " ↓" : " ↑") : "";
    });
    const first = view.rows.length ? view.page * SIZE + 1 : 0;
    const left = view.rows.length < count ? ` (of ${thousands(count)})` : "";
    from.textContent = `${thousands(first)} to ${thousands(Math.min(view.rows.length, (view.page + 1) * SIZE))} of ${thousands(view.rows.length)}${left}`;
    previous.disabled = view.page === 0;
    next.disabled = view.page === pages - 1;
    if (whole) say(`${view.rows.length} trials`);
  }
  function download(kind) {
    const value = (column, i) => column.get(i);
    let text;
    if (kind === "json") {
      text = `${JSON.stringify(view.rows.map((i) => columns.map((column) => value(column, i)))
        .map((row) => Object.fromEntries(row.map((own, k) => [columns[k].name, own]))), null, 1)}\n`;
    } else {
      const cell = (own) => {
        if (own === null) return "";
        let words = String(own);
        // A spreadsheet takes such a text for a formula.
        if (typeof own === "string" && /^[=+\-@\t\r]/.test(own)) words = `'${words}`;
        return /[",\r\n]/.test(words) ? `"${words.replace(/"/g, '""')}"` : words;
      };
      text = [columns.map((column) => cell(titled(column))), ...view.rows.map((i) => columns.map((column) => cell(value(column, i))))]
        .map((row) => row.join(",")).join("\n") + "\n";
    }
    const url = URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/csv" }));
    const link = make("a", { href: url, download: `trials.${kind}` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    say(`${view.rows.length} trials written`);
  }
  if (metricColumn) { view.column = metricColumn; view.down = metric.max; }
  refresh(true);

  // ---- origin

  {
    const own = section("origin", "Where it comes from", null);
    own.append(make("dl", { class: "facts" }, ...data.origin.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, isolated(value))])));
    if (data.origin.plan) own.append(make("details", {}, make("summary", {}, "The plan as submitted last"), make("pre", { tabindex: "0" }, data.origin.plan)));
  }

  // ---- navigation, colours, drawing

  const links = new Map();
  document.getElementById("nav").replaceChildren(make("ul", {}, ...sections.map(([id, title]) => {
    const link = make("a", { href: `#${id}` }, title);
    links.set(id, link);
    return make("li", {}, link);
  })));
  const seen = new Set();
  const spy = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) seen.add(entry.target.id); else seen.delete(entry.target.id);
    const current = sections.find(([id]) => seen.has(id));
    for (const [id, link] of links) if (current && id === current[0]) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }, { rootMargin: "-15% 0px -70% 0px" });
  for (const [id] of sections) spy.observe(document.getElementById(id));

  // Charts near the window are drawn first, the others when the page has time.
  const drawAll = () => charts.forEach((own) => own.draw());
  const later = window.requestIdleCallback || ((call) => setTimeout(() => call({ timeRemaining: () => 8 }), 1));
  let at = 0;
  const sizes = new ResizeObserver(() => drawAll());
  let isOver = false;
  const nextChart = () => {
    if (isOver) return;
    if (at < charts.length) {
      charts[at].draw();
      at += 1;
      later(nextChart, { timeout: 200 });
    } else {
      document.documentElement.dataset.ready = "true";
      sizes.observe(figures);
    }
  };
  nextChart();

  // ---- what is kept when newer data come

  return {
    drawAll,
    // A printed page has a width of its own, which is known only once it is laid out.
    drawForPaper: () => charts.forEach((own) => own.draw(Math.min(own.frame.clientWidth || 640, 640))),
    keep: () => ({
      choices: Array.from(figures.querySelectorAll("select"), (select) => [select.parentNode.firstChild.textContent, select.value]),
      open: Array.from(figures.querySelectorAll("details"), (own) => own.open),
      sort: view.column && view.column.name, down: view.down, page: view.page, words: view.words, ranges: ranges.get(),
    }),
    restore(kept) {
      figures.querySelectorAll("select").forEach((select) => {
        const own = kept.choices.find(([label]) => label === select.parentNode.firstChild.textContent);
        if (!own || own[1] === select.value || !Array.from(select.options).some((option) => option.value === own[1])) return;
        select.value = own[1];
        select.dispatchEvent(new Event("change"));
      });
      const details = figures.querySelectorAll("details");
      if (details.length === kept.open.length) details.forEach((own, i) => { own.open = kept.open[i]; });
      const column = columns.find((own) => own.name === kept.sort);
      if (column) { view.column = column; view.down = kept.down; }
      search.value = kept.words;
      view.words = kept.words;
      ranges.set(kept.ranges);
      refresh(true);
      view.page = kept.page;
      refresh(false);
    },
    end() { isOver = true; spy.disconnect(); sizes.disconnect(); figures.replaceChildren(); },
  };
};

// ---- colours, paper

let shown = show(JSON.parse(document.getElementById("data").textContent));
const themes = document.querySelectorAll(".theme button");
themes.forEach((button) => button.addEventListener("click", () => {
  const theme = button.dataset.theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themes.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
}));

addEventListener("beforeprint", () => shown.drawForPaper());
addEventListener("afterprint", () => shown.drawAll());

// ---- news, if the page is served

const served = document.querySelector('meta[name="live"]');
if (served && location.protocol === "http:") {
  const [every, first] = served.content.split(" ");
  const figures = document.getElementById("figures"), main = document.getElementById("main");
  const made = document.getElementById("made");
  let tag = `"${first}"`, since = new Date(), isPressed = false, timer = null;
  const note = document.createElement("p");
  note.className = "note";
  note.id = "news";
  document.querySelector("header").append(note);
  const tell = (words) => { note.textContent = `As of ${since.toLocaleTimeString()}. ${words}`; };
  const usual = `This page refreshes while the sweep runs.`;
  tell(usual);
  made.textContent = "Made by hpcsweep. This page asks the program that serves it for news, and nothing else. Charts: Observable Plot and D3.";

  /** The words above the charts, made of text alone. */
  function words({ tiles, answers }) {
    const make = (name, text, kind) => {
      const own = document.createElement(name);
      if (kind) own.className = kind;
      own.textContent = text;
      return own;
    };
    document.querySelector("#summary .tiles").replaceChildren(...tiles.map(([what, figure, of]) => {
      const tile = document.createElement("li");
      tile.append(make("span", what, "what"), " ", make("strong", figure), " ", make("span", of, "of"));
      return tile;
    }));
    document.querySelector("#summary .answers").replaceChildren(...answers.map(([what, text]) => {
      const answer = document.createElement("div");
      answer.append(make("dt", what), make("dd", text));
      return answer;
    }));
  }

  function renew({ summary, data }) {
    // The section at the top of the window stays where it is, and the element with the focus keeps it.
    const top = Array.from(document.querySelectorAll("main section")).find((own) => own.getBoundingClientRect().bottom > 0);
    const place = top && [top.id, top.getBoundingClientRect().top];
    const all = () => Array.from(figures.querySelectorAll("button, select, input, summary, a, [tabindex]"));
    const old = document.activeElement;
    const number = all().indexOf(old);
    const selected = old && old.id === "filter" && [old.selectionStart, old.selectionEnd];
    const kept = shown.keep();
    figures.style.minHeight = `${figures.offsetHeight}px`;
    shown.end();
    words(summary);
    shown = show(data);
    shown.restore(kept);
    shown.drawAll();
    figures.style.minHeight = "";
    const section = place && document.getElementById(place[0]);
    if (section) scrollBy({ top: section.getBoundingClientRect().top - place[1], behavior: "instant" });
    const next = number < 0 ? null : all()[number];
    if (next && next.tagName === old.tagName) {
      next.focus({ preventScroll: true });
      if (selected) next.setSelectionRange(...selected);
    }
  }

  async function ask() {
    clearTimeout(timer);
    const isReading = getSelection().type === "Range" && !(document.activeElement instanceof HTMLInputElement);
    // Whoever drags or has selected a text is not disturbed, and a page that nobody sees costs nothing.
    if (!document.hidden && !isPressed && !isReading) {
      try {
        const answer = await fetch("data", { headers: { "If-None-Match": tag }, cache: "no-store" });
        if (answer.status === 200) {
          const news = await answer.json();
          tag = answer.headers.get("ETag");
          since = new Date();
          renew(news);
          document.documentElement.dataset.news = String(Number(document.documentElement.dataset.news || 0) + 1);
        }
        tell(answer.ok || answer.status === 304 ? usual : `The program that serves the page refuses it (${answer.status}).`);
      } catch {
        tell("The program that serves this page does not answer: it has ended, or the connection to its host has.");
      }
    }
    timer = setTimeout(ask, Number(every) * 1000);
  }
  addEventListener("pointerdown", () => { isPressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { isPressed = false; });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  timer = setTimeout(ask, Number(every) * 1000);
}
}
