// --- rows

const FLOATS = ["change", "threshold_ratio", "mean_abs_rel_diff", "max_abs_rel_diff", "max_old", "max_new", "tolerance_ratio", "steady_rel_diff"];
/** Text order in which tp2 comes before tp10. */
const natural = (s) => s.replace(/\d+/g, (d) => d.padStart(12, "0"));
const ROWS = D.rows.map((values, id) => {
  const r = { id };
  D.fields.forEach((f, i) => { r[f] = values[i]; });
  for (const f of FLOATS) if (typeof r[f] === "string") r[f] = Number(r[f]);
  if (r.tensor) { Object.assign(r, r.tensor.numbers); r.tensor = r.tensor.facts; if (typeof r.sqnr_db === "string") r.sqnr_db = Infinity; }
  [r.path, r.shape, r.identity] = D.files[r.file];
  if (typeof r.steady_rel_diff === "number") r.steady_rel_diff = -r.steady_rel_diff;
  r.word = VERDICTS[r.verdict];
  r.text = (r.path + "\n" + (r.metric || "")).toLowerCase();
  return r;
});

const number = (key, label, title) => ({ key, label, title, get: (r) => r[key], show: (r) => fmt(r[key]), num: true });
const tally = (key, label, title) => ({ ...number(key, label, title), show: (r) => (r[key] == null ? "" : count(r[key])) });
const place = (key, label, title) => ({ ...number(key, label, title), show: (r) => (r[key] == null ? "" : step(r[key])) });
const TENSOR = [["outside", "Outside", "Elements outside the tolerance"], ["max_abs", "Max abs", "Largest |new − old|"], ["max_ulp", "ULP", "Largest difference in steps between neighbouring numbers"],
  ["sqnr_db", "SQNR dB", "Signal to noise; exact where nothing differs"], ["cosine", "Cosine", "1 where both point the same way"]];
const COLS = [
  { key: "verdict", label: "Verdict", get: (r) => r.verdict, show: (r) => badge(r.word) },
  { key: "file", label: "File", get: (r) => natural(r.path), show: (r) => pathEl(r.path, body.clientWidth < 700 ? body.clientWidth : $("head").children[1].clientWidth - 16) },
  { key: "metric", label: "Metric", get: (r) => (r.metric == null ? null : natural(r.metric)), show: (r) => (r.metric == null ? "" : plain(r.metric)) },
  tally("n_steps", "Steps", "Usable steps: both values finite, the old one not zero"),
  { ...number("change", "Change", "Mean of (new − old) / |old|; opposite signs cancel"), show: (r) => rise(r.change) },
  number("mean_abs_rel_diff", "Mean |·|", "Mean of |new − old| / |old|"),
  number("max_abs_rel_diff", "Max |·|", "Largest |new − old| / |old|"),
  place("max_step", ROWS.some((r) => r.tensor) ? "At" : "@ step", "The step of the largest difference"),
  place("first_diff_step", "First", "The first step that differs"),
  tally("steps_lost", "Lost", "Steps that had a value and are gone"),
  tally("steps_gained", "Gained", "Steps the old golden did not have"),
  tally("nan_gained", "NaN", "Steps whose value was finite and is not any more"),
  number("threshold_ratio", "× limit", "How far beyond the thresholds of its verdict"),
  number("tolerance_ratio", "× tol", "Largest |new − old| as a multiple of the metric's tolerance"),
  ...TENSOR.map(([key, label, title]) => (key === "outside" ? tally : number)(key, label, title)),
].filter((c, i) => i < 3 || ROWS.some((r) => r[c.key] != null));

/** Empty cells last, whichever way; numbers before names; ties in the order of gravity. */
function compare(a, b, dir) {
  if (a == null || b == null) return (a == null) - (b == null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  if (Number.isNaN(a)) a = Infinity;
  if (Number.isNaN(b)) b = Infinity;
  return a < b ? -dir : a > b ? dir : 0;
}

/** The ids of a file's rows by metric; under null, of all its rows. */
const IDS = new Map();
for (const r of ROWS) {
  if (!IDS.has(r.file)) IDS.set(r.file, new Map([[null, []]]));
  const mine = IDS.get(r.file);
  mine.get(null).push(r.id);
  if (r.metric == null) continue;
  if (!mine.has(r.metric)) mine.set(r.metric, []);
  mine.get(r.metric).push(r.id);
}
const idsOf = (file, metric) => (IDS.has(file) && IDS.get(file).get(metric)) || [];
const GROUPS = D.groups.map(([severity, title, members, low, high]) => (
  { severity, title, members, n: members.length, low: low == null ? null : Number(low), high: high == null ? null : Number(high),
    ids: new Set(members.flatMap(([file, metric]) => idsOf(file, metric))) }));

// --- state

const S = {};
let shown = [], current = -1, saving = 0;
const fresh = () => ({ q: "", v: new Set(), m: "", g: -1, sort: "verdict", dir: 1, open: -1, view: "table", log: false });
Object.assign(S, fresh());

function readHash() {
  const p = new URLSearchParams(location.hash.slice(1));
  if (location.hash && !location.hash.includes("=")) return;
  Object.assign(S, fresh());
  S.q = p.get("q") || "";
  S.v = new Set((p.get("v") || "").split(",").filter((v) => VERDICTS.includes(v)));
  S.m = p.get("m") || "";
  S.g = p.has("g") && GROUPS[p.get("g")] ? Number(p.get("g")) : -1;
  const sort = p.get("s") || "";
  if (COLS.some((c) => c.key === sort.replace(/^-/, ""))) { S.sort = sort.replace(/^-/, ""); S.dir = sort[0] === "-" ? -1 : 1; }
  S.view = p.get("view") === "gallery" ? "gallery" : "table";
  S.log = p.has("log");
  const file = p.get("o");
  S.open = file == null ? -1 : ROWS.findIndex((r) => r.path === file && r.metric === p.get("om"));
}

function writeHash() {
  const p = new URLSearchParams(), r = ROWS[S.open];
  if (S.q) p.set("q", S.q);
  if (S.v.size) p.set("v", [...S.v].join(","));
  if (S.m) p.set("m", S.m);
  if (S.g >= 0) p.set("g", S.g);
  if (S.sort !== "verdict" || S.dir < 0) p.set("s", (S.dir < 0 ? "-" : "") + S.sort);
  if (S.view !== "table") p.set("view", S.view);
  if (S.log) p.set("log", "1");
  if (r) { p.set("o", r.path); if (r.metric != null) p.set("om", r.metric); }
  try { history.replaceState(null, "", "#" + p); } catch { /* a browser may forbid it; the page works without */ }
}

function apply() {
  const words = S.q.toLowerCase().split(/\s+/).filter(Boolean), group = GROUPS[S.g];
  const col = COLS.find((c) => c.key === S.sort);
  shown = ROWS.filter((r) => (!S.v.size || S.v.has(r.word)) && (!S.m || r.metric === S.m) && (!group || group.ids.has(r.id)) && words.every((w) => r.text.includes(w)))
    .map((r) => [col.get(r), r]).sort((a, b) => compare(a[0], b[0], S.dir) || a[1].id - b[1].id).map((pair) => pair[1].id);
  if (!shown.includes(S.open)) S.open = -1;
  if (!shown.includes(current)) current = S.open >= 0 ? S.open : -1;
  controls();
  show();
  clearTimeout(saving);
  saving = setTimeout(writeHash, 80);
}
const set = (changes) => { Object.assign(S, changes); apply(); };

function controls() {
  if ($("filter").value !== S.q) $("filter").value = S.q;
  $("metric").value = S.m;
  for (const b of $("verdicts").children) b.setAttribute("aria-pressed", S.v.has(b.dataset.v));
  for (const b of document.querySelectorAll(".group")) b.setAttribute("aria-pressed", Number(b.dataset.g) === S.g);
  for (const th of $("head").children) {
    const on = th.dataset.key === S.sort;
    th.setAttribute("aria-sort", on ? (S.dir > 0 ? "ascending" : "descending") : "none");
  }
  $("as-table").setAttribute("aria-pressed", S.view === "table");
  $("as-gallery").setAttribute("aria-pressed", S.view === "gallery");
  $("clear").hidden = !(S.q || S.v.size || S.m || S.g >= 0);
  $("shown").textContent = shown.length === ROWS.length ? count(ROWS.length) + " rows" : count(shown.length) + " of " + count(ROWS.length) + " rows";
  $("table").setAttribute("aria-rowcount", shown.length + 1);
  $("nothing").hidden = shown.length > 0;
}

// --- the table: only the rows near the window exist

const body = $("body"), rowEls = new Map();
let detail = null, rowHeight = 30;
const spacer = () => el("tr", { class: "spacer", "aria-hidden": "true" }, el("td", {}));
const above = spacer(), below = spacer();
const openAt = () => (S.open < 0 ? -1 : shown.indexOf(S.open));
const detailHeight = () => (detail && detail.el.isConnected ? (detail.height = detail.el.offsetHeight) : detail ? detail.height : 0);

function indexAt(y, open, extra) {
  const edge = (open + 1) * rowHeight;
  if (open < 0 || y < edge) return Math.floor(y / rowHeight);
  return y < edge + extra ? open : Math.floor((y - extra) / rowHeight);
}

function rowEl(id) {
  let tr = rowEls.get(id);
  if (tr) return tr;
  const r = ROWS[id];
  tr = el("tr", { role: "row", class: "row " + TONE[r.word], tabindex: "-1", "data-id": id, title: null });
  for (const c of COLS) {
    const v = c.get(r), zero = c.num && (v === 0 || v == null);
    tr.append(el("td", { role: "gridcell", class: "c-" + c.key + (c.num ? " num" : "") + (zero ? " zero" : ""), "data-label": c.label,
      title: c.num ? (v == null ? null : plain(v)) : c.key === "metric" ? v && plain(r.metric) : c.key === "verdict" ? plain(r.because) : null }, c.show(r)));
  }
  rowEls.set(id, tr);
  return tr;
}

function paint(all) {
  if (S.view !== "table") return;
  rowHeight = parseFloat(getComputedStyle(body).getPropertyValue("--row")) || 30;
  const open = openAt(), extra = open < 0 ? 0 : detailHeight(), top = body.getBoundingClientRect().top, n = shown.length;
  const from = all ? 0 : Math.min(n, Math.max(0, indexAt(-top - SLACK, open, extra)));
  const to = all ? n : Math.min(n, Math.max(0, indexAt(innerHeight - top + SLACK, open, extra) + 1, from + AT_LEAST));
  const columns = [...$("head").children].filter((th) => th.offsetWidth).length || 1;
  const nodes = [above];
  const keep = new Set();
  for (let i = from; i < to; i++) {
    const tr = rowEl(shown[i]);
    keep.add(shown[i]);
    tr.setAttribute("aria-rowindex", i + 2);
    tr.setAttribute("aria-expanded", i === open);
    tr.classList.toggle("even", i % 2 === 1);
    tr.tabIndex = shown[i] === current || (current < 0 && i === from) ? 0 : -1;
    nodes.push(tr);
    if (i === open && detail) { detail.el.firstChild.colSpan = columns; nodes.push(detail.el); }
  }
  nodes.push(below);
  for (const id of rowEls.keys()) if (!keep.has(id)) rowEls.delete(id);
  above.firstChild.style.height = from * rowHeight + (open >= 0 && open < from ? extra : 0) + "px";
  below.firstChild.style.height = (n - to) * rowHeight + (open >= to ? extra : 0) + "px";
  const keepSet = new Set(nodes);
  for (const child of [...body.children]) if (!keepSet.has(child)) child.remove();
  nodes.forEach((node, i) => { if (body.children[i] !== node) body.insertBefore(node, body.children[i] || null); });
}

function show() {
  const gallery = S.view === "gallery";
  $("table").hidden = gallery;
  $("gallery").hidden = !gallery;
  if (!detail || detail.id !== S.open || detail.gallery !== gallery) detail = S.open < 0 ? null : makeDetail(ROWS[S.open], gallery);
  if (gallery) fillGallery(); else { clearGallery(); paint(); }
}

const roof = () => (getComputedStyle($("bar")).position === "sticky" ? $("bar").offsetHeight : 0);

/** Brings a row (and its open plots) into view and gives it the focus. */
function reveal(id, focus) {
  if (S.view === "gallery") {
    const card = $("gallery").querySelector(`[data-id="${id}"]`);
    if (card) { if (focus) card.focus({ preventScroll: true }); card.scrollIntoView({ block: "nearest" }); }
    return;
  }
  const i = shown.indexOf(id), open = openAt(), extra = detailHeight();
  const y = body.getBoundingClientRect().top + i * rowHeight + (open >= 0 && i > open ? extra : 0);
  const tall = rowHeight + (i === open ? extra : 0), ceiling = roof() + $("head").offsetHeight;
  if (y < ceiling || tall > innerHeight - ceiling) scrollBy(0, y - ceiling);
  else if (y + tall > innerHeight) scrollBy(0, y + tall - innerHeight + 8);
  paint();
  const tr = rowEls.get(id);
  if (focus && tr) tr.focus({ preventScroll: true });
}

function openRow(id, focus = true) {
  const before = rowEls.get(id), was = before && before.isConnected ? before.getBoundingClientRect().top : null;
  current = id < 0 ? S.open : id;
  set({ open: id });
  // A row that closed above must not move what is being read.
  const now = rowEls.get(id);
  if (was != null && now && now.isConnected) scrollBy(0, now.getBoundingClientRect().top - was);
  if (current >= 0) reveal(current, focus);
}

function move(by) {
  if (!shown.length) return;
  const at = shown.indexOf(current);
  const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
  if (S.open >= 0) { openRow(shown[to]); return; }
  current = shown[to];
  paint();
  reveal(current, true);
}

// --- one row, opened

function fact(list, name, value, title) { if (value !== "" && value != null) list.append(el("dt", {}, name), el("dd", { title }, value)); }

function facts(r) {
  const list = el("dl", { class: "facts" }), n = (key) => [fmt(r[key]), r[key] == null ? null : String(r[key])];
  const pair = (a, b, x, y) => (r[a] == null ? "" : count(r[a]) + x + count(r[b]) + y);
  if (r.tensor) {
    for (const [name, words] of r.tensor) fact(list, name, plain(words));
    for (const [k, v] of Object.entries(r.identity)) fact(list, plain(k), plain(v));
    return list;
  }
  fact(list, "mean change", rise(r.change), r.change == null ? null : String(r.change));
  fact(list, "mean |·|", ...n("mean_abs_rel_diff"));
  fact(list, "max |·|", ...n("max_abs_rel_diff"));
  if (r.max_abs_rel_diff && r.max_old != null && r.max_new != null) fact(list, "old → new there", exact(r.max_old) + " → " + exact(r.max_new));
  fact(list, "tolerance", r.tolerance_ratio == null ? "" : fmt(r.tolerance_ratio) + " × allowed", String(r.tolerance_ratio));
  fact(list, "× limit", ...n("threshold_ratio"));
  fact(list, "steady state", rise(r.steady_rel_diff));
  fact(list, "bit-equal", pair("bit_equal", "n_shared", " of ", " shared"));
  fact(list, "usable", r.n_steps == null ? "" : count(r.n_steps) + " steps");
  if (r.steps_lost || r.steps_gained) fact(list, "steps", pair("steps_lost", "steps_gained", " lost, ", " gained"));
  if (r.nan_gained || r.nan_lost) fact(list, "NaN", pair("nan_gained", "nan_lost", " gained, ", " lost"));
  fact(list, "rule", r.rule == null ? "" : plain(r.rule));
  for (const [k, v] of Object.entries(r.identity)) fact(list, plain(k), plain(v));
  return list;
}

function about(r) {
  const mine = D.findings.filter(([, , path, metric]) => path === r.path && (metric == null || metric === r.metric));
  return el("div", { class: "about" },
    el("p", { class: "because" }, badge(r.word), " ", plain(r.because)),
    facts(r),
    ...mine.slice(0, 12).map(([severity, kind, , , where, message, next]) => el("div", { class: "mine" }, badge(severity), el("b", {}, plain(kind)), " ",
      plain(message), where ? el("span", { class: "dim" }, " " + plain(where)) : "", next ? command(next) : "")));
}

function figure(r) {
  if (r.curve < 0) return { el: el("p", { class: "nothing" }, noCurve(r)) };
  const c = curve(r), n = c.x.length, dots = r.shape !== "series", unit = dots ? "row " : "step ";
  const home = c.worst >= 0 ? c.worst : c.first >= 0 ? c.first : n - 1;
  let g = null, at = home;
  const cross = el("div", { class: "cross", hidden: true }), read = el("p", { class: "read", "aria-live": "polite" });
  const paintIt = (ctx, w, h, ink) => { g = plot(ctx, w, h, ink, c, { log: S.log, dots }); };
  const canvas = lazyCanvas({ class: "plot", role: "img", "aria-label": "Old and new curve, and their relative difference" }, paintIt);
  const go = (i, show) => {
    at = Math.min(n - 1, Math.max(0, i));
    const key = (name, value, cls) => [el("span", { class: "key" + (cls ? " " + cls : "") }, name), " ", el("b", { title: value.title }, value.text), "  "];
    const side = (v, word) => ({ text: Number.isFinite(v) ? exact(v) : word || odd(v), title: String(v) });
    read.replaceChildren(...key(unit.trim(), { text: step(c.x[at]) }), ...key("old", side(c.o[at], c.gap[at] === GAINED ? "none" : ""), "old"),
      ...key("new", side(c.n[at], c.gap[at] === LOST ? "lost" : ""), "new"), ...key("change", { text: Number.isFinite(c.rel[at]) ? rise(c.rel[at]) : "none", title: String(c.rel[at]) }));
    cross.hidden = !show;
    if (show && g) { cross.style.left = g.xs(at) + "px"; cross.style.top = g.top + "px"; cross.style.height = g.bottom - g.top + "px"; }
  };
  const near = (ev) => {
    if (!g) return;
    const x = ev.clientX - canvas.getBoundingClientRect().left;
    let lo = 0, hi = n - 1;
    while (hi - lo > 1) { const mid = (lo + hi) >> 1; if (g.xs(mid) < x) lo = mid; else hi = mid; }
    go(Math.abs(g.xs(lo) - x) <= Math.abs(g.xs(hi) - x) ? lo : hi, true);
  };
  const rest = () => go(home, false);
  const stage = el("div", { class: "stage", onpointermove: near, onpointerdown: near, onpointerleave: rest }, canvas, cross);
  const log = el("button", { type: "button", class: "log", "aria-pressed": S.log, title: "Logarithmic scales (l)", onclick: () => { S.log = !S.log; log.setAttribute("aria-pressed", S.log); draw(canvas); writeHash(); } }, "Log");
  const marks = [];
  if (c.worst >= 0) marks.push(el("span", { class: "worst" }, `worst: ${unit}${r.max_step == null ? step(c.x[c.worst]) : step(r.max_step)}, |·| ${fmt(r.max_abs_rel_diff)}`));
  if (r.first_diff_step != null) marks.push(el("span", { class: "first" }, "first difference: " + unit + step(r.first_diff_step)));
  for (const kind of [LOST, NAN, GAINED]) if (c.gap.includes(kind)) marks.push(el("span", { class: "region" + (kind === GAINED ? " gained" : "") }, count(c.gap.filter((k) => k === kind).length) + " " + GAP[kind]));
  rest();
  return {
    el: el("figure", {}, el("div", { class: "reading" }, read, log), stage,
      el("figcaption", {}, el("span", { class: "swatch old" }), "old", el("span", { class: "swatch new" }), "new", el("span", { class: "swatch rel" }), "(new − old) / |old|, below", ...marks)),
    go: (by) => go(by === "home" ? 0 : by === "end" ? n - 1 : at + by, true), log: () => log.click(),
  };
}
const noCurve = (r) => (r.curve === -2 ? `This curve is not in the page: it would go over the limit of ${count(D.limit)} points.`
  : r.metric == null ? "This file has no values to draw." : r.tensor ? "A tensor has no curve; these are its numbers." : "The comparison kept no curve for this row.");

function makeDetail(r, gallery) {
  const fig = figure(r);
  const close = el("button", { type: "button", onclick: () => openRow(-1), title: "Close (Esc)" }, "Close");
  const inner = el("div", { class: "detail-in" },
    el("div", { class: "detail-head" }, el("div", { class: "full" }, el("bdi", {}, plain(r.path)), r.metric == null ? "" : el("b", {}, el("bdi", {}, plain(r.metric)))), copyButton(r.path, "path"), close),
    el("div", { class: "detail-body" + (r.curve < 0 ? " bare" : "") }, fig.el, about(r)));
  const e = gallery ? el("div", { class: "detail", role: "region", "aria-label": "Opened row" }, inner) : el("tr", { class: "detail" }, el("td", {}, inner));
  new ResizeObserver(() => { if (detail && detail.el === e && e.isConnected && e.offsetHeight !== detail.height) paint(); }).observe(inner);
  return { id: r.id, el: e, fig, gallery, height: 0 };
}

// --- the gallery: small multiples, drawn when they come into view

let drawnFor = null;
const more = el("div", { class: "more" });
const moreSeen = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) addCards(); }, { rootMargin: "600px" });

function card(id) {
  const r = ROWS[id];
  return el("div", { class: "card " + TONE[r.word], tabindex: "0", role: "button", "data-id": id, "aria-label": `${r.word}, ${plain(r.metric || "")}, ${plain(r.path)}` },
    el("div", { class: "card-top" }, badge(r.word), el("b", { class: "clip", title: plain(r.metric || "") }, plain(r.metric || "")), el("span", { class: "num", title: "max |·|" }, fmt(r.max_abs_rel_diff))),
    pathEl(r.path, 250),
    r.curve < 0 ? el("div", { class: "blank" }, r.curve === -2 ? "over the page's limit" : r.metric == null || r.tensor ? plain(r.because) : "no curve kept")
      : lazyCanvas({ class: "mini", "aria-hidden": "true" }, (ctx, w, h, ink) => plot(ctx, w, h, ink, curve(r), { small: true, log: S.log, dots: r.shape !== "series", limit: limitOf(r) })));
}
function clearGallery() { if (drawnFor) { $("gallery").replaceChildren(); moreSeen.disconnect(); drawnFor = null; } }
function fillGallery() {
  const box = $("gallery");
  if (!drawnFor || drawnFor.length !== shown.length || drawnFor.some((id, i) => id !== shown[i])) {
    clearGallery();
    drawnFor = shown.slice();
    box.append(more);
    moreSeen.observe(more);
    addCards();
    while (S.open >= 0 && !box.querySelector(`[data-id="${S.open}"]`)) addCards();
  }
  box.querySelectorAll(".detail").forEach((e) => e.remove());
  box.querySelectorAll(".card").forEach((e) => e.setAttribute("aria-expanded", Number(e.dataset.id) === S.open));
  if (detail) box.querySelector(`[data-id="${S.open}"]`).after(detail.el);
}
function addCards() {
  const have = $("gallery").querySelectorAll(".card").length;
  more.before(...(drawnFor || []).slice(have, have + CARDS).map(card));
  if (have + CARDS >= (drawnFor || []).length) { moreSeen.disconnect(); more.remove(); }
}

// --- findings and groups

function goTo(path, metric) {
  const mine = ROWS.filter((r) => r.path === path), r = mine.find((x) => x.metric === metric) || (mine.length === 1 ? mine[0] : null);
  if (r) { if (!shown.includes(r.id)) Object.assign(S, { q: "", v: new Set(), m: "", g: -1 }); apply(); openRow(r.id); return; }
  set({ q: path, v: new Set(), m: "", g: -1, open: -1 });
  $("rows").scrollIntoView();
}
function findingEl([severity, kind, path, metric, where, message, next]) {
  const known = ROWS.some((r) => r.path === path);
  const target = path ? [pathEl(path, $("findings").clientWidth - 480), metric == null ? "" : el("span", { class: "metric clip", title: plain(metric) }, plain(metric))] : [];
  return el("li", { class: "finding " + TONE[severity] }, badge(severity), el("div", {},
    el("p", { class: "where" }, el("b", { title: D.kinds[kind] }, plain(kind)),
      known ? el("button", { type: "button", class: "link", title: plain(path), onclick: () => goTo(path, metric) }, ...target) : el("span", { class: "link" }, ...target),
      where ? el("span", { class: "dim clip" }, plain(where)) : ""),
    el("p", { class: "sentence" }, plain(message)), next ? command(next) : ""));
}
/** What belongs together: a click shows its rows; its members are folded below. */
function groupEl(g, i) {
  const list = el("ul", {}), size = count(g.n) + (g.n === 1 ? " member" : " members");
  const folded = el("details", { ontoggle: () => { if (!list.children.length) fold(list, g.members, memberEl, 100); } }, el("summary", {}, size), list);
  return el("div", { class: "group-box" }, el("button", { type: "button", class: "group " + TONE[g.severity], "data-g": i, onclick: () => { set({ g: S.g === i ? -1 : i, open: -1 }); if (S.g === i) $("rows").scrollIntoView(); } },
    badge(g.severity), el("span", { class: "group-title" }, plain(g.title)),
    el("span", { class: "dim" }, g.low == null ? "" : "by " + fmt(g.low) + (g.high == null || g.high === g.low ? "" : " … " + fmt(g.high)))), folded);
}
function memberEl([file, metric]) {
  const [path, , , name] = D.files[file] || ["", "", "", ""];
  return el("li", {}, el("button", { type: "button", class: "link", title: plain(path), onclick: () => goTo(path, metric) }, plain(name), metric == null ? "" : el("span", { class: "dim" }, plain(metric))));
}
function fold(list, items, make, first) {
  list.append(...items.slice(0, first).map(make));
  const rest = items.slice(first);
  if (!rest.length) return;
  const b = el("button", { type: "button", onclick: () => {
    const news = rest.map((item, i) => make(item, first + i));
    b.parentElement.replaceWith(...news);
    (news[0].querySelector("button") || news[0]).focus();
    controls();
  } }, count(rest.length) + " more");
  list.append(el(list.tagName === "UL" ? "li" : "div", { class: "fold" }, b));
}

function build() {
  const grave = D.findings.filter((f) => f[0] !== "info"), infos = D.findings.filter((f) => f[0] === "info");
  const fails = grave.filter((f) => f[0] === "fail").length;
  $("findings").hidden = !D.findings.length;
  fold($("findings-list"), grave, findingEl, Math.min(fails, SHOW_FAILS) + (fails > SHOW_FAILS ? 0 : SHOW_WARNS));
  const info = $("findings-info");
  info.hidden = !infos.length;
  info.querySelector("summary").textContent = count(infos.length) + " for information";
  info.addEventListener("toggle", () => fold(info.querySelector("ul"), infos, findingEl, 50), { once: true });

  $("groups").hidden = !GROUPS.length;
  fold($("groups-list"), GROUPS, groupEl, SHOW_GROUPS);

  const counts = {};
  for (const r of ROWS) counts[r.word] = (counts[r.word] || 0) + 1;
  for (const v of VERDICTS) if (counts[v]) $("verdicts").append(el("button", { type: "button", class: "chip " + TONE[v], "data-v": v, onclick: () => {
    const next = new Set(S.v);
    if (!next.delete(v)) next.add(v);
    set({ v: next });
  } }, el("span", { class: "mark", "aria-hidden": "true" }, MARK[v]), v + " ", el("b", {}, count(counts[v]))));
  const metrics = [...new Set(ROWS.map((r) => r.metric).filter((m) => m != null))].sort((a, b) => compare(natural(a), natural(b), 1));
  $("metric").append(new Option("All metrics", ""), ...metrics.map((m) => new Option(plain(m).length > 48 ? plain(m).slice(0, 47) + "…" : plain(m), m)));
  for (const c of COLS) $("head").append(el("th", { scope: "col", role: "columnheader", class: "c-" + c.key + (c.num ? " num" : ""), "data-key": c.key },
    el("button", { type: "button", title: c.title, onclick: () => set(S.sort === c.key ? { dir: -S.dir } : { sort: c.key, dir: c.num ? -1 : 1 }) }, c.label)));

  const over = ROWS.filter((r) => r.curve === -2).length, kept = ROWS.filter((r) => r.curve === -1 && r.metric != null && !r.tensor).length;
  const why = [over && `${count(over)} over the page's limit of ${count(D.limit)} points (the gravest rows come first)`, kept && `${count(kept)} compared without keeping the values`].filter(Boolean);
  $("curveless").hidden = !why.length;
  $("curveless").textContent = (over + kept === 1 ? "1 row has" : count(over + kept) + " rows have") + " no curve: " + why.join(", ") + ".";
  for (const [k, what] of [["j k", "next, previous row (arrows, too, once in the table)"], ["Enter", "open or close the row"], ["Esc", "close the row"], ["/", "filter"], ["← →", "crosshair of the open row; Shift: ten steps; Home, End"], ["l", "logarithmic scales"], ["g", "table or gallery"], ["t", "light or dark"], ["?", "these keys"]])
    $("keys").querySelector("dl").append(el("dt", {}, ...k.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what));
}

// --- events

const clear = () => set({ q: "", v: new Set(), m: "", g: -1 });
const toggleView = (view) => { set({ view }); if (S.open >= 0) reveal(S.open, false); };
const keys = {
  j: () => move(1), k: () => move(-1), "/": () => { $("filter").focus(); $("filter").select(); }, "?": () => $("keys").showModal(),
  g: () => toggleView(S.view === "table" ? "gallery" : "table"), t: nextTheme, l: () => detail && detail.fig.log && detail.fig.log(),
  Escape: () => S.open >= 0 && openRow(-1),
};
const inTable = { ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => move(15), PageUp: () => move(-15), Home: () => move(-1e9), End: () => move(1e9),
  Enter: () => current >= 0 && openRow(S.open === current ? -1 : current), " ": () => current >= 0 && openRow(S.open === current ? -1 : current) };
document.addEventListener("keydown", (ev) => {
  if (ev.ctrlKey || ev.metaKey || ev.altKey || $("keys").open) return;
  const t = ev.target;
  if (t === $("filter")) {
    if (ev.key === "Enter" || ev.key === "Escape" || ev.key === "ArrowDown") { ev.preventDefault(); t.blur(); if (ev.key !== "Escape") { current = -1; move(1); } }
    return;
  }
  if (t.matches("select, textarea")) return;
  const held = t.closest("tr.row, .card"), far = ev.shiftKey ? 10 : 1;
  if (held && Number(held.dataset.id) !== current) current = Number(held.dataset.id);
  let act = keys[ev.key] || (held ? inTable[ev.key] : null) || (ev.key === "Enter" && t === document.body ? inTable.Enter : null);
  const go = { ArrowLeft: -far, ArrowRight: far, Home: "home", End: "end" }[ev.key];
  if (go !== undefined && detail && detail.fig.go) act = () => detail.fig.go(go);
  if (act) { ev.preventDefault(); act(); }
});
function clicked(ev) {
  const held = ev.target.closest("tr.row, .card");
  if (!held || ev.target.closest("button") || String(getSelection())) return;
  const id = Number(held.dataset.id);
  openRow(S.open === id ? -1 : id);
}
body.addEventListener("click", clicked);
$("gallery").addEventListener("click", clicked);
body.addEventListener("focusin", (ev) => { const tr = ev.target.closest("tr.row"); if (tr) current = Number(tr.dataset.id); });
$("filter").addEventListener("input", () => set({ q: $("filter").value }));
$("metric").addEventListener("change", () => set({ m: $("metric").value }));
$("clear").addEventListener("click", clear);
$("nothing").querySelector("button").addEventListener("click", clear);
$("as-table").addEventListener("click", () => toggleView("table"));
$("as-gallery").addEventListener("click", () => toggleView("gallery"));
document.addEventListener("karat-theme", redraw);
$("help").addEventListener("click", keys["?"]);
let waiting = false;
const later = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; paint(); }); } };
addEventListener("scroll", later, { passive: true });
addEventListener("resize", () => { rowEls.clear(); later(); });
addEventListener("hashchange", () => { readHash(); apply(); if (S.open >= 0) reveal(S.open, false); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; redraw(); paint(true); });
addEventListener("afterprint", () => { document.documentElement.dataset.theme = theme; redraw(); paint(); });
new ResizeObserver(() => $("table").style.setProperty("--roof", roof() + "px")).observe($("bar"));

$("rows").hidden = false;
build();
readHash();
apply();
if (S.open >= 0) { current = S.open; reveal(S.open, false); }
