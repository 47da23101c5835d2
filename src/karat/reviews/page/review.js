// --- what there is to decide

const ROW = 52, STEPS = 600;
const S = { q: "", v: new Set(), state: "", cause: "", chosen: null, log: false };
let items = [], shown = [], version = D.version, opened = null, asking = 0;
const DONE = new Set(["accepted", "rejected"]);
const item = (path) => items.find((it) => it.path === path);

function take(state) {
  const before = S.chosen && item(S.chosen), at = shown.indexOf(before);
  version = state.version;
  D.root = state.root;
  items = state.items.map(([path, rank, decided, seen, cause, why, severity]) => ({ path, word: VERDICTS[rank], state: decided, seen, cause, why, severity, text: (path + "\n" + why).toLowerCase() }));
  causes = new Map(state.causes.map(([n, title, severity]) => [n, { title, severity }]));
  document.title = document.querySelector("h1 bdi").textContent = document.querySelector("h1").title = state.answer;
  const select = $("cause");
  select.replaceChildren(new Option("all groups", ""), ...state.causes.map(([n, title]) => new Option(plain(title).slice(0, 90), n)));
  if (!causes.has(Number(S.cause))) S.cause = "";
  const tally = {};
  for (const it of items) tally[it.word] = (tally[it.word] || 0) + 1;
  $("verdicts").replaceChildren(...VERDICTS.filter((v) => tally[v]).map((v) => el("button", { type: "button", class: "chip " + TONE[v], "data-v": v, onclick: () => {
    if (!S.v.delete(v)) S.v.add(v);
    apply();
  } }, el("span", { class: "mark", "aria-hidden": "true" }, MARK[v]), v + " ", el("b", {}, count(tally[v])))));
  if (S.chosen && !item(S.chosen)) S.chosen = null;
  apply();
  if (!S.chosen && at >= 0 && shown.length) choose(shown[Math.min(at, shown.length - 1)].path, false);
}
let causes = new Map();

function apply() {
  const words = S.q.toLowerCase().split(/\s+/).filter(Boolean);
  shown = items.filter((it) => (!S.v.size || S.v.has(it.word)) && (!S.cause || it.cause === Number(S.cause))
    && (!S.state || (S.state === "open" ? !DONE.has(it.state) : it.state === S.state)) && words.every((w) => it.text.includes(w)));
  for (const b of $("verdicts").children) b.setAttribute("aria-pressed", S.v.has(b.dataset.v));
  $("cause").value = S.cause;
  const left = items.filter((it) => !DONE.has(it.state)).length;
  $("shown").textContent = `${count(shown.length)} of ${count(items.length)}, ${count(left)} to decide`;
  $("nothing").hidden = shown.length > 0;
  $("space").style.height = shown.length * ROW + "px";
  paint();
  const it = S.chosen && item(S.chosen);
  if (it && (!opened || opened.path !== it.path || opened.seen !== it.seen || opened.state !== it.state)) open_();
  if (!it) { opened = null; $("detail").replaceChildren(el("p", { class: "nothing" }, items.length ? "Choose a golden: j and k, or click." : "Nothing is left that differs.")); }
}

// --- the list: only the rows in view exist

function paint() {
  const box = $("rows"), from = Math.max(0, Math.floor(box.scrollTop / ROW) - 6), to = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 6);
  box.querySelectorAll(".item").forEach((e) => e.remove());
  for (let i = from; i < to; i++) {
    const it = shown[i], on = it.path === S.chosen;
    const e = el("div", { class: "item" + (DONE.has(it.state) ? " decided" : ""), role: "option", id: "item-" + i, "aria-selected": String(on), "aria-posinset": i + 1, "aria-setsize": shown.length, "data-i": i },
      pathEl(it.path, box.clientWidth - 130), badge(it.word), el("span", { class: "why clip", title: plain(it.why) }, plain(it.why)),
      el("span", { class: "state " + it.state }, it.state === "pending" ? "" : it.state));
    e.style.top = i * ROW + "px";
    box.append(e);
    if (on) box.setAttribute("aria-activedescendant", e.id);
  }
}
function reveal() {
  const box = $("rows"), i = shown.findIndex((it) => it.path === S.chosen);
  if (i < 0) return;
  if (i * ROW < box.scrollTop) box.scrollTop = i * ROW;
  else if ((i + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (i + 1) * ROW - box.clientHeight;
}
function choose(path, reading = true) {
  S.chosen = path;
  if (reading) document.body.classList.add("open");
  reveal();
  apply();
}
function move(by) {
  if (!shown.length) return;
  const at = shown.findIndex((it) => it.path === S.chosen);
  choose(shown[at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by))].path, document.body.classList.contains("open"));
}

// --- asking the server

function say(words, wrong) {
  const e = $("said");
  e.textContent = words;
  e.className = wrong ? "wrong" : "";
  e.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { e.hidden = true; }, wrong ? 9000 : 3500);
}
async function ask(address, options) {
  try {
    const answer = await fetch(address, options), body = await answer.json();
    return { status: answer.status, body };
  } catch { say("The server of this review does not answer: run karat review --web again", true); return { status: 0, body: {} }; }
}
async function decide(verb, its, more = {}) {
  if (asking) return;
  asking++;
  const paths = its.map((it) => it.path), seen = Object.fromEntries(its.map((it) => [it.path, it.seen]));
  const { status, body } = await ask("/decide", { method: "POST", headers: { "Content-Type": "application/json", "X-Karat-Token": D.token }, body: JSON.stringify({ verb, paths, seen, ...more }) });
  asking--;
  if (status === 422) { needReason(body, its, more); return; }
  if (body.error) say(plain(body.error), true);
  if (!body.items) return;
  // On to the next that is not decided, as it stood in the list.
  const at = shown.findIndex((it) => it.path === S.chosen), before = shown.map((it) => it.path);
  take(body);
  if (status !== 200) return;
  say(plain(body.said));
  if (verb === "undo" || more.metric || !paths.includes(S.chosen || before[at])) return;
  const open = new Set(items.filter((it) => !DONE.has(it.state)).map((it) => it.path));
  const next = [...before.slice(at + 1), ...before.slice(0, Math.max(at, 0))].find((path) => open.has(path));
  if (next) choose(next, document.body.classList.contains("open"));
}
const chosen = () => [item(S.chosen)].filter(Boolean);
const together = () => { const it = item(S.chosen); return it ? items.filter((x) => x.cause === it.cause && !DONE.has(x.state)) : []; };

function needReason({ error, failing }, its, more) {
  $("reason-title").textContent = error;
  $("failing").replaceChildren(...failing.slice(0, 50).map(([kind, path, metric, message]) => el("li", { class: "finding grave" }, badge("fail"), el("div", {}, el("p", { class: "where" }, el("b", {}, plain(kind)), pathEl(path, 400), metric == null ? "" : plain(metric)), el("p", { class: "sentence" }, plain(message))))));
  $("why").value = "";
  $("reason").returnValue = "";
  $("reason").onclose = () => { if ($("reason").returnValue === "accept") decide("accept", its, { ...more, reason: $("why").value }); };
  $("reason").showModal();
  $("why").focus();
}

// --- one golden

async function open_() {
  const it = item(S.chosen), e = $("detail"), was = opened, path = it.path;
  opened = { path, seen: it.seen, state: it.state, figs: [] };
  const mine = opened, fresh = !was || was.path !== path;
  if (fresh) { e.scrollTop = 0; e.replaceChildren(header(it)); }
  const { status, body } = await ask("/golden?path=" + encodeURIComponent(JSON.stringify(path)));
  if (opened !== mine) return;
  if (status !== 200) { e.replaceChildren(header(it), el("p", { class: "nothing" }, plain(body.error || ""))); return; }
  if (body.seen !== it.seen) { look(); return; }
  const rows = body.rows.map((values) => {
    const r = {};
    body.fields.forEach((f, i) => { r[f] = values[i]; });
    for (const f of ["change", "threshold_ratio", "mean_abs_rel_diff", "max_abs_rel_diff"]) if (typeof r[f] === "string") r[f] = Number(r[f]);
    r.word = VERDICTS[r.verdict];
    r.shape = body.shape;
    if (r.curve >= 0) r.curve = PACKED.push(body.curves[r.curve]) - 1;
    return r;
  });
  // What is about one metric stands with its curve.
  const names = new Set(rows.map((r) => r.metric)), whole = body.findings.filter((f) => f[2] == null || !names.has(f[2]));
  for (const r of rows) r.findings = body.findings.filter((f) => r.metric != null && f[2] === r.metric);
  e.replaceChildren(header(it), whole.length ? el("ul", { class: "findings" }, ...whole.map(findingEl)) : "",
    ...tableEl(body.table), ...documentEl(body.document),
    ...rows.filter((r) => r.metric != null).map((r, i) => metricEl(r, it, body, i === 0)),
    Object.keys(body.facts).length ? el("details", {}, el("summary", {}, "Where both sides come from"), el("dl", { class: "facts" }, ...Object.entries(body.facts).flatMap(([k, v]) => [el("dt", {}, plain(k)), el("dd", {}, plain(v))]))) : "");
}
function findingEl([severity, kind, metric, where, message, next]) {
  return el("li", { class: "finding " + TONE[severity] }, badge(severity), el("div", {}, el("p", { class: "where" }, el("b", {}, plain(kind)), metric == null ? "" : el("span", {}, plain(metric)), where ? el("span", { class: "dim" }, plain(where)) : ""),
    el("p", { class: "sentence" }, plain(message)), next ? command(next) : ""));
}
function header(it) {
  const button = (label, verb, its, cls, key) => el("button", { type: "button", class: cls, title: `${label} (${key})`, onclick: () => decide(verb, its()) }, label);
  const group = together(), cause = causes.get(it.cause);
  return el("header", {}, el("h2", {}, el("bdi", {}, plain(it.path))),
    el("div", { class: "acts" }, el("button", { type: "button", id: "back", onclick: () => { document.body.classList.remove("open"); reveal(); } }, "Back"), badge(it.word), el("span", { class: "state " + it.state }, it.state),
      button("Accept", "accept", chosen, "accept", "a"), button("Reject", "reject", chosen, "reject", "r"),
      group.length > 1 ? button(`Accept group of ${count(group.length)}`, "accept", together, "accept", "A") : "", group.length > 1 ? button("Reject group", "reject", together, "reject", "R") : "", copyButton(it.path, "path")),
    cause && items.some((x) => x.cause === it.cause && x !== it) ? el("p", { class: "dim" }, plain(cause.title)) : "");
}
function metricEl(r, it, body, first) {
  const own = body.metrics.includes(r.metric), inner = el("div", {}), tensor = (body.tensors || []).find((t) => t.name === r.metric);
  const act = (label, verb, cls) => el("button", { type: "button", class: cls, onclick: () => decide(verb, chosen(), { metric: r.metric }) }, label);
  const fill = () => {
    if (inner.children.length) return;
    if (own && !DONE.has(it.state)) inner.append(el("p", { class: "acts" }, act(`Accept ${plain(r.metric)}`, "accept", "accept"), act(`Reject ${plain(r.metric)}`, "reject", "reject")));
    for (const [severity, kind, , , message] of r.findings) inner.append(el("p", { class: "mine" }, badge(severity), el("b", {}, plain(kind)), " ", plain(message)));
    const earlier = body.history[r.metric];
    if (earlier) inner.append(el("p", { class: "dim" }, plain(earlier)));
    if (r.because && !r.findings.length) inner.append(el("p", { class: "dim" }, plain(r.because)));
    if (r.tensor) inner.append(el("dl", { class: "facts" }, ...r.tensor.facts.flatMap(([k, v]) => [el("dt", {}, plain(k)), el("dd", {}, plain(v))])));
    if (tensor) inner.append(tensorEl(tensor));
    if (r.curve >= 0) { const fig = figure(r); inner.append(fig.el); opened.figs.push(fig); } else if (r.curve === -2) inner.append(el("p", { class: "nothing" }, "too long to draw"));
  };
  const e = el("details", { class: "metric", open: first || r.word === "break" || r.word === "incomplete", ontoggle: () => { if (e.open) fill(); } },
    el("summary", {}, badge(r.word), el("b", {}, plain(r.metric)), el("span", { class: "num" }, [r.change == null ? "" : `change ${rise(r.change)}`, r.max_abs_rel_diff == null ? "" : `at most ${fmt(r.max_abs_rel_diff)}`, r.threshold_ratio == null ? "" : `${fmt(r.threshold_ratio)} × the limit`].filter(Boolean).join(", "))), inner);
  if (e.open) fill();
  return e;
}

/** Old and new above, the difference below; zoom by dragging, keys or buttons; the table has the steps in view. */
function figure(r) {
  const whole = curve(r), n = whole.x.length, dots = r.shape !== "series";
  let lo = 0, hi = n, c = whole, g = null, at = 0, drag = null;
  const cross = el("div", { class: "cross", hidden: true }), picked = el("div", { class: "picked", hidden: true }), read = el("p", { class: "read" });
  const canvas = lazyCanvas({ class: "plot", role: "img", "aria-label": "Old and new curve, and their relative difference; the table has the values" }, (ctx, w, h, ink) => { g = plot(ctx, w, h, ink, c, { log: S.log, dots }); });
  const body = el("tbody", {}), note = el("p", { class: "dim" });
  const table = el("div", { class: "steps", tabindex: "0", role: "region", "aria-label": "Values" }, el("table", { class: "rows" }, el("thead", {}, el("tr", {}, ...[dots ? "row" : "step", "old", "new", "change"].map((t) => el("th", { scope: "col" }, t)))), body), note);
  const [bare, gone] = PACKED[r.curve].map((side) => side === 0);
  const cell = (v, other) => (Number.isFinite(v) ? exact(v) : other || odd(v)), was = (i) => cell(c.o[i], bare || c.gap[i] === GAINED ? "none" : ""), is = (i) => cell(c.n[i], gone ? "none" : c.gap[i] === LOST ? "lost" : "");
  const zoom = (a, b) => {
    lo = Math.max(0, Math.min(a, n - 2)); hi = Math.min(n, Math.max(b, lo + 2));
    const cut = (xs) => xs.slice(lo, hi), inside = (i) => (i >= lo && i < hi ? i - lo : -1);
    c = lo === 0 && hi === n ? whole : { x: cut(whole.x), o: cut(whole.o), n: cut(whole.n), gap: cut(whole.gap), rel: cut(whole.rel), worst: inside(whole.worst), first: inside(whole.first) };
    const from = hi - lo <= STEPS ? 0 : Math.max(0, Math.min(c.worst < 0 ? 0 : c.worst - STEPS / 2, hi - lo - STEPS)), to = Math.min(hi - lo, from + STEPS);
    body.replaceChildren(...Array.from({ length: to - from }, (_, k) => {
      const i = from + k;
      return el("tr", { "data-i": i }, el("td", {}, step(c.x[i])), el("td", {}, was(i)), el("td", {}, is(i)), el("td", {}, Number.isFinite(c.rel[i]) ? rise(c.rel[i]) : ""));
    }));
    note.textContent = to - from < hi - lo ? `${count(to - from)} of ${count(hi - lo)} shown; zoom in to see the others` : "";
    if (canvas.dataset.drawn) draw(canvas);
    e.dataset.view = `${step(c.x[0])}…${step(c.x[c.x.length - 1])}`;
    go(c.worst >= 0 ? c.worst : c.x.length - 1, false);
  };
  const go = (i, show) => {
    at = Math.min(c.x.length - 1, Math.max(0, i));
    read.textContent = `${dots ? "row" : "step"} ${step(c.x[at])}   old ${was(at)}   new ${is(at)}   change ${Number.isFinite(c.rel[at]) ? rise(c.rel[at]) : "none"}`;
    for (const tr of body.querySelectorAll("[aria-current]")) tr.removeAttribute("aria-current");
    const tr = body.querySelector(`[data-i="${at}"]`);
    if (tr) { tr.setAttribute("aria-current", "true"); table.scrollTop = tr.offsetTop - table.clientHeight / 2; }
    cross.hidden = !show || !g;
    if (show && g) { cross.style.left = g.xs(at) + "px"; cross.style.top = g.top + "px"; cross.style.height = g.bottom - g.top + "px"; }
  };
  const index = (ev) => {
    const x = ev.clientX - canvas.getBoundingClientRect().left;
    let best = 0;
    for (let i = 1; i < c.x.length; i++) if (Math.abs(g.xs(i) - x) < Math.abs(g.xs(best) - x)) best = i;
    return best;
  };
  const by = (f) => { const half = Math.max(1, Math.round(((hi - lo) * f) / 2)), mid = lo + at; zoom(mid - half, mid + half); };
  const stage = el("div", { class: "stage",
    onpointerdown: (ev) => { if (g) { drag = [index(ev), ev.clientX]; stage.setPointerCapture(ev.pointerId); } },
    onpointermove: (ev) => { if (!g) return; const i = index(ev); go(i, true); if (drag) { const [a, b] = [g.xs(drag[0]), g.xs(i)].sort((p, q) => p - q); picked.hidden = false; Object.assign(picked.style, { left: a + "px", width: b - a + "px", top: g.top + "px", height: g.bottom - g.top + "px" }); } },
    onpointerup: (ev) => { picked.hidden = true; if (drag && Math.abs(ev.clientX - drag[1]) > 8) { const [a, b] = [drag[0], index(ev)].sort((p, q) => p - q); zoom(lo + a, lo + b + 1); } drag = null; },
    onpointercancel: () => { drag = null; picked.hidden = true; }, onpointerleave: () => { if (!drag) cross.hidden = true; } }, canvas, cross, picked);
  body.addEventListener("pointerover", (ev) => { const tr = ev.target.closest("tr"); if (tr) { const top = table.scrollTop; go(Number(tr.dataset.i), true); table.scrollTop = top; } });
  const tool = (label, title, act) => el("button", { type: "button", title, "aria-label": title, onclick: act }, label);
  const fig = { go: (d) => go(at + d, true), zoom: by, all: () => zoom(0, n), log: () => { S.log = !S.log; redraw(); } };
  const e = el("figure", { class: "curve" }, el("div", { class: "reading" }, read, el("span", { class: "tools2" }, tool("+", "Zoom in (+)", () => by(0.5)), tool("−", "Zoom out (−)", () => by(2)), tool("All", "All steps (0)", fig.all), tool("Log", "Logarithmic scales (l)", fig.log))),
    el("div", { class: "plots" }, stage, table),
    el("figcaption", {}, el("span", { class: "swatch old" }), "old", el("span", { class: "swatch new" }), "new", el("span", { class: "swatch rel" }), "(new − old) / |old|, below; drag to zoom"));
  fig.el = e;
  zoom(0, n);
  return fig;
}

const sides = (a, b) => [a == null ? "" : el("del", {}, plain(a)), " ", b == null ? "" : el("ins", {}, plain(b))];
function tableEl(t) {
  if (!t || !t.rows.length) return [];
  return [el("h3", {}, "Changed cells"), el("div", { class: "wide" }, el("table", { class: "rows cells" }, el("thead", {}, el("tr", {}, ...[...t.key, ...t.columns].map((c) => el("th", { scope: "col" }, plain(c))))),
    el("tbody", {}, ...t.rows.map(([name, old, now]) => el("tr", {}, ...name.map((k) => el("th", { scope: "row" }, plain(k))), ...t.columns.map((_, i) => {
      const a = old ? old[i] : null, b = now ? now[i] : null;
      return a === b ? el("td", {}, plain(a == null ? "" : a)) : el("td", {}, ...sides(a, b));
    })))))), t.more ? el("p", { class: "dim" }, `and ${count(t.more)} more rows`) : ""];
}
function documentEl(d) {
  if (!d || !d.places.length) return [];
  return [el("h3", {}, "Differences"), el("div", { class: "wide" }, el("table", { class: "rows places" }, el("tbody", {}, ...d.places.map(([where, a, b]) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, plain(where))), el("td", {}, ...sides(a, b))))))), d.more ? el("p", { class: "dim" }, `only the first ${count(d.places.length)} are shown`) : ""];
}
function tensorEl(t) {
  if (t.why) return el("p", { class: "nothing" }, t.why);
  const num = (v) => (typeof v === "string" ? plain(v) : fmt(v)), edge = (i) => fmt(t.edges[i]);
  const top = Math.max(...t.counts, 1);
  const histogram = lazyCanvas({ class: "histogram", role: "img", "aria-label": `Histogram of differences from ${edge(0)} to ${edge(t.edges.length - 1)}` }, (ctx, w, h, ink) => {
    const wide = w / t.counts.length;
    ctx.fillStyle = ink("accent");
    t.counts.forEach((n, i) => { const tall = n ? Math.max(1, (Math.log1p(n) / Math.log1p(top)) * (h - 20)) : 0; ctx.fillRect(i * wide, h - 18 - tall, Math.max(1, wide - 1), tall); });
    ctx.fillStyle = ink("dim"); ctx.font = "11px " + getComputedStyle(document.body).fontFamily;
    ctx.fillText(edge(0), 0, h - 4); ctx.textAlign = "right"; ctx.fillText(edge(t.edges.length - 1), w, h - 4);
  });
  const values = t.heat ? t.heat.values.map(Number) : [], most = Math.max(...values.filter(Number.isFinite), 1e-300);
  const heat = t.heat && lazyCanvas({ class: "heat", role: "img", "aria-label": "Where the differences are: the darker, the larger" }, (ctx, w, h, ink) => {
    const { rows, columns } = t.heat;
    ctx.fillStyle = ink("panel"); ctx.fillRect(0, 0, w, h); ctx.fillStyle = ink("fail");
    values.forEach((v, i) => { ctx.globalAlpha = Number.isFinite(v) ? Math.sqrt(v / most) : 1; const x = i % columns, y = (i - x) / columns, at = (n, of, room) => Math.round((n * room) / of); ctx.fillRect(at(x, columns, w), at(y, rows, h), at(x + 1, columns, w) - at(x, columns, w), at(y + 1, rows, h) - at(y, rows, h)); });
  });
  return el("div", { class: "tensors" }, t.counts.length ? el("figure", {}, histogram, el("figcaption", {}, "differences, new − old; heights are logarithmic")) : "",
    heat ? el("figure", {}, heat, el("figcaption", {}, `where they are; ${fmt(most)} is the darkest`)) : "",
    el("div", { class: "wide" }, el("table", { class: "rows worst-elements" }, el("thead", {}, el("tr", {}, ...["element", "old", "new", "difference"].map((c) => el("th", { scope: "col" }, c)))),
      el("tbody", {}, ...t.worst.map(([place, a, b, d]) => el("tr", {}, el("td", {}, "[" + place.join(", ") + "]"), ...[a, b, d].map((v) => el("td", { class: "num" }, num(v)))))))));
}

// --- events

async function look() {
  if (document.hidden || asking) return;
  const { status, body } = await ask("/state?version=" + version);
  if (status === 200 && body.items && body.version !== version) { take(body); say("Something changed: this is what there is now"); }
}
setInterval(look, 2500);
addEventListener("focus", look);
const fig = () => opened && opened.figs.find((f) => f.el.offsetParent && f.el.getBoundingClientRect().bottom > 140) || (opened && opened.figs[0]);
const keys = {
  j: () => move(1), k: () => move(-1), a: () => decide("accept", chosen()), r: () => decide("reject", chosen()), A: () => decide("accept", together()), R: () => decide("reject", together()),
  u: () => decide("undo", []), "/": () => { document.body.classList.remove("open"); $("filter").focus(); $("filter").select(); }, "?": () => $("keys").showModal(), t: nextTheme,
  "+": () => fig() && fig().zoom(0.5), "=": () => fig() && fig().zoom(0.5), "-": () => fig() && fig().zoom(2), "0": () => fig() && fig().all(), l: () => fig() && fig().log(),
  ArrowLeft: () => fig() && fig().go(-1), ArrowRight: () => fig() && fig().go(1), Escape: () => { document.body.classList.remove("open"); $("rows").focus(); },
};
const inList = { ArrowDown: keys.j, ArrowUp: keys.k, PageDown: () => move(10), PageUp: () => move(-10), Home: () => move(-1e9), End: () => move(1e9), Enter: () => { if (S.chosen) { document.body.classList.add("open"); $("detail").focus(); } } };
document.addEventListener("keydown", (ev) => {
  if (ev.ctrlKey || ev.metaKey || ev.altKey || document.querySelector("dialog[open]")) return;
  const t = ev.target;
  if (t === $("filter")) { if (ev.key === "Enter" || ev.key === "Escape") { t.blur(); $("rows").focus(); if (ev.key === "Enter" && shown.length) choose(shown[0].path, false); } return; }
  if (t.matches("select, textarea, input")) return;
  const act = (t === $("rows") ? inList[ev.key] : null) || keys[ev.key];
  if (act && !(ev.key === "Enter" && t !== $("rows"))) { ev.preventDefault(); act(); }
});
for (const [k, what] of [["j k", "next, previous golden"], ["a r", "accept, reject it"], ["A R", "accept, reject its group"], ["u", "undo the last decision"], ["Tab", "to the buttons, to one metric's too"], ["/", "filter"], ["+ − 0", "zoom in, out, all"], ["← →", "along the curve"], ["l", "logarithmic scales"], ["Enter Esc", "read it, back to the list"], ["t", "light or dark"], ["?", "these keys"]])
  $("keys").querySelector("dl").append(el("dt", {}, ...k.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what));
$("rows").addEventListener("click", (ev) => { const e = ev.target.closest(".item"); if (e && !String(getSelection())) choose(shown[Number(e.dataset.i)].path); });
$("rows").addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
$("filter").addEventListener("input", () => { S.q = $("filter").value; $("rows").scrollTop = 0; apply(); });
for (const which of ["state", "cause"]) $(which).addEventListener("change", () => { S[which] = $(which).value; $("rows").scrollTop = 0; apply(); });
$("undo").addEventListener("click", keys.u);
$("help").addEventListener("click", keys["?"]);
$("reason-cancel").addEventListener("click", () => $("reason").close(""));
document.addEventListener("karat-theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new ResizeObserver(paint).observe($("rows"));
const above = () => document.body.style.setProperty("--above", document.querySelector(".top").offsetHeight + 8 + "px");
new ResizeObserver(above).observe(document.querySelector(".top"));
above();
take(D);
const first = decodeURIComponent(location.hash.slice(1));
if (item(first)) choose(first);
else if (shown.length) choose((shown.find((it) => !DONE.has(it.state)) || shown[0]).path, false);
