"use strict";
(() => {
// Names of files and metrics are hostile: they reach the page through textContent and attributes only.
const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const PACKED = JSON.parse($("curves").textContent);
const VERDICTS = D.verdicts;
const MARK = { unreadable: "!", incomplete: "◐", removed: "−", break: "×", drift: "△", new: "+", noise: "≈", same: "=",
  fail: "×", warn: "△", info: "i" };
const TONE = { unreadable: "grave", incomplete: "grave", removed: "grave", break: "grave", drift: "warn", new: "info",
  noise: "quiet", same: "quiet", fail: "grave", warn: "warn", info: "info" };
const SHOW_FIRST = 8, SLACK = 600, AT_LEAST = 30, CARDS = 60;

// --- words and numbers

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** Text with control and direction characters spelt out, so that a name cannot pose as another. */
const plain = (s) => String(s).replace(INVISIBLE, (c) => "⟨" + c.charCodeAt(0).toString(16).padStart(4, "0") + "⟩");
const minus = (s) => s.replace(/^-/, "−");
const count = (n) => n.toLocaleString("en");
const odd = (x) => (Number.isNaN(x) ? "NaN" : x < 0 ? "−∞" : "∞");

/** 1.23e-4, −0.031, 0: three digits, a real minus sign. */
function fmt(x) {
  if (x == null) return "";
  if (!Number.isFinite(x)) return odd(x);
  const size = Math.abs(x);
  if (size === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(size)));
  const s = size >= 1e-3 && size < 1e6 ? size.toFixed(digits) : size.toExponential(2).replace("e+", "e");
  return (x < 0 ? "−" : "") + s.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}
/** A value as it stands in the golden, to nine digits. */
const exact = (x) => (Number.isFinite(x) ? minus(String(Number(x.toPrecision(9)))) : odd(x));
const step = (s) => (typeof s === "number" ? minus(String(s)) : plain(s));

// --- elements

function el(tag, props, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v == null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...kids.filter((kid) => kid != null && kid !== ""));
  return e;
}
const badge = (word) => el("span", { class: "badge " + TONE[word] }, el("span", { class: "mark", "aria-hidden": "true" }, MARK[word]), word);

function copyButton(text, what) {
  const b = el("button", { type: "button", class: "copy", "aria-label": "Copy " + what }, "Copy");
  b.addEventListener("click", async (ev) => {
    ev.stopPropagation();
    try { await navigator.clipboard.writeText(text); } catch {
      const area = el("textarea", { "aria-hidden": "true", class: "off" });
      area.value = text;
      b.after(area); area.select(); document.execCommand("copy"); area.remove();
    }
    b.textContent = "Copied";
    setTimeout(() => { b.textContent = "Copy"; }, 1200);
  });
  return b;
}
const command = (text) => el("span", { class: "next" }, el("code", {}, plain(text)), copyButton(text, "command"));

/** A path that gives way in its middle where `room` is short: outer folders first, the end never. */
function pathEl(full, room) {
  const short = plain(D.root && full.startsWith(D.root + "/") ? full.slice(D.root.length + 1) : full);
  const cut = short.lastIndexOf("/") + 1, fold = short.lastIndexOf("/", cut - 2) + 1, end = Math.max(cut, short.length - 14);
  return el("span", { class: "path", title: plain(full), dir: "ltr" }, el("span", { class: "dirs", hidden: short.length * 7.6 > room }, short.slice(0, fold)),
    el("span", { class: "head" }, el("span", { class: "case" }, short.slice(fold, cut)), short.slice(cut, end)), el("span", { class: "tail" }, short.slice(end)));
}
document.addEventListener("copy", (ev) => {
  const sel = getSelection(), at = sel.anchorNode && sel.anchorNode.parentElement;
  if (!at || !at.closest(".path") || !at.closest(".path").contains(sel.focusNode)) return;
  ev.clipboardData.setData("text/plain", sel.toString().replace(/\n/g, ""));
  ev.preventDefault();
});

// --- rows

const FLOATS = ["avg_rel_diff", "mean_abs_rel_diff", "max_abs_rel_diff", "max_old", "max_new", "tolerance_ratio", "steady_rel_diff"];
/** Text order in which tp2 comes before tp10. */
const natural = (s) => s.replace(/\d+/g, (d) => d.padStart(12, "0"));
const ROWS = D.rows.map((values, id) => {
  const r = { id };
  D.fields.forEach((f, i) => { r[f] = values[i]; });
  for (const f of FLOATS) if (typeof r[f] === "string") r[f] = Number(r[f]);
  [r.path, r.shape, r.identity] = D.files[r.file];
  r.word = VERDICTS[r.verdict];
  r.text = (r.path + "\n" + (r.metric || "")).toLowerCase();
  return r;
});

const number = (key, label, title) => ({ key, label, title, get: (r) => r[key], show: (r) => fmt(r[key]), num: true });
const tally = (key, label, title) => ({ ...number(key, label, title), show: (r) => (r[key] == null ? "" : count(r[key])) });
const place = (key, label, title) => ({ ...number(key, label, title), show: (r) => (r[key] == null ? "" : step(r[key])) });
const COLS = [
  { key: "verdict", label: "Verdict", get: (r) => r.verdict, show: (r) => badge(r.word) },
  { key: "file", label: "File", get: (r) => natural(r.path), show: (r) => pathEl(r.path, body.clientWidth < 700 ? body.clientWidth : $("head").children[1].clientWidth - 16) },
  { key: "metric", label: "Metric", get: (r) => (r.metric == null ? null : natural(r.metric)), show: (r) => (r.metric == null ? "" : plain(r.metric)) },
  tally("n_steps", "Steps", "Usable steps: both values finite, the old one not zero"),
  number("avg_rel_diff", "Mean ±", "Signed mean of (old − new) / old; opposite signs cancel"),
  number("mean_abs_rel_diff", "Mean |·|", "Mean of |old − new| / |old|"),
  number("max_abs_rel_diff", "Max |·|", "Largest |old − new| / |old|"),
  place("max_step", "@ step", "The step of the largest difference"),
  place("first_diff_step", "First", "The first step that differs"),
  tally("steps_lost", "Lost", "Steps that had a value and are gone"),
  tally("steps_gained", "Gained", "Steps the old golden did not have"),
  tally("nan_gained", "NaN +", "Steps whose value was finite and is not any more"),
  number("tolerance_ratio", "× tol", "Largest |old − new| as a multiple of the metric's tolerance"),
];

/** Empty cells last, whichever way; numbers before names; ties in the order of gravity. */
function compare(a, b, dir) {
  if (a == null || b == null) return (a == null) - (b == null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  if (Number.isNaN(a)) a = Infinity;
  if (Number.isNaN(b)) b = Infinity;
  return a < b ? -dir : a > b ? dir : 0;
}

const GROUPS = D.groups.map(([severity, title, members, low, high]) => {
  const want = new Set(members.map(([file, metric]) => JSON.stringify([file, metric])));
  const ids = new Set(ROWS.filter((r) => want.has(JSON.stringify([r.file, r.metric])) || want.has(JSON.stringify([r.file, null]))).map((r) => r.id));
  return { severity, title, n: members.length, low: low == null ? null : Number(low), high: high == null ? null : Number(high), ids };
});

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
  for (const b of $("groups-list").children) b.setAttribute("aria-pressed", Number(b.dataset.g) === S.g);
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

// --- curves

function unpack([kind, text]) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  if (kind === "d") return new Float64Array(bytes.buffer);
  if (kind === "f") return Float64Array.from(new Float32Array(bytes.buffer));
  const scale = 10 ** kind;
  return Float64Array.from(new Int32Array(bytes.buffer), (v) => (v === -2147483648 ? NaN : v / scale));
}
const unpackSteps = (s) => (s.length === 3 ? Float64Array.from({ length: s[2] }, (_, i) => s[0] + i * s[1]) : unpack(s));

const LOST = 1, NAN = 2, GAINED = 3, GAP = ["", "lost", "NaN", "gained"];
/** Both sides over the union of their steps; what became of each step; (old − new) / old. */
function curve(r) {
  const [a, b] = PACKED[r.curve], none = new Float64Array(0);
  const ax = a ? unpackSteps(a[0]) : none, av = a ? unpack(a[1]) : none;
  const bx = !b ? none : b[0] === 1 ? ax : unpackSteps(b[0]), bv = !b ? none : b[1] === 1 ? av : unpack(b[1]);
  const x = [], o = [], n = [], gap = [], rel = [];
  for (let i = 0, j = 0; i < ax.length || j < bx.length;) {
    const left = i < ax.length && !(bx[j] < ax[i]), right = j < bx.length && !(ax[i] < bx[j]);
    const ov = left ? av[i] : NaN, nv = right ? bv[j] : NaN;
    x.push(left ? ax[i] : bx[j]);
    o.push(ov);
    n.push(nv);
    gap.push(Number.isFinite(ov) && !Number.isFinite(nv) ? (right ? NAN : LOST) : a && !left && Number.isFinite(nv) ? GAINED : 0);
    rel.push(ov === nv && Number.isFinite(ov) ? 0 : ov !== 0 && Number.isFinite(ov) && Number.isFinite(nv) ? (ov - nv) / ov : NaN);
    if (left) i++;
    if (right) j++;
  }
  return { x, o, n, gap, rel, worst: worstOf(r, x, rel), first: x.indexOf(r.first_diff_step) };
}
function worstOf(r, x, rel) {
  if (!r.max_abs_rel_diff) return -1;
  const at = x.indexOf(r.max_step);
  if (at >= 0) return at;
  let best = -1;
  rel.forEach((v, i) => { if (Math.abs(v) > (best < 0 ? 0 : Math.abs(rel[best]))) best = i; });
  return best;
}

// --- plots

const paints = new WeakMap();
const seen = new IntersectionObserver((entries) => {
  for (const e of entries) if (e.isIntersecting) { seen.unobserve(e.target); draw(e.target); }
}, { rootMargin: "200px" });
const sized = new ResizeObserver((entries) => { for (const e of entries) if (e.target.dataset.drawn) draw(e.target); });
function draw(canvas) {
  const paintIt = paints.get(canvas);
  if (!paintIt || !canvas.clientWidth) return;
  const scale = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = Math.round(w * scale);
  canvas.height = Math.round(h * scale);
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const ink = (name) => style.getPropertyValue("--" + name).trim();
  paintIt(ctx, w, h, ink);
  canvas.dataset.drawn = "1";
}
function lazyCanvas(props, paintIt) {
  const canvas = el("canvas", props);
  paints.set(canvas, paintIt);
  seen.observe(canvas);
  sized.observe(canvas);
  return canvas;
}
const redraw = () => document.querySelectorAll("canvas[data-drawn]").forEach(draw);

function extent(arrays, keep) {
  let lo = Infinity, hi = -Infinity;
  for (const values of arrays) for (const v of values) if (Number.isFinite(v) && keep(v)) { if (v < lo) lo = v; if (v > hi) hi = v; }
  return lo <= hi ? [lo, hi] : null;
}
function ticks(lo, hi, n) {
  const raw = (hi - lo) / n, base = 10 ** Math.floor(Math.log10(raw)), gap = [1, 2, 5, 10].find((m) => m * base >= raw) * base;
  const out = [];
  for (let k = Math.ceil(lo / gap - 1e-9); k * gap <= hi + gap * 1e-9 && out.length < 20; k++) out.push(k * gap);
  const top = Math.max(Math.abs(lo), Math.abs(hi)), places = Math.max(0, -Math.floor(Math.log10(gap) + 1e-9));
  const text = top >= 1e6 || top < 1e-3
    ? (v) => (v === 0 ? "0" : v.toExponential(Math.max(0, Math.floor(Math.log10(Math.abs(v)) + 1e-9) - Math.floor(Math.log10(gap) + 1e-9))).replace("e+", "e"))
    : (v) => v.toFixed(places);
  return out.map((v) => [v, minus(text(v))]);
}
function logTicks(lo, hi) {
  const a = Math.ceil(lo - 1e-9), b = Math.floor(hi + 1e-9), every = Math.max(1, Math.ceil((b - a) / 4));
  const out = [];
  for (let k = a; k <= b; k += every) out.push([k, Math.abs(k) < 4 ? String(Number((10 ** k).toPrecision(1))) : "1e" + k]);
  return b - a >= 1 ? out : ticks(lo, hi, 3).map(([v]) => [v, fmt(10 ** v)]);
}
/** One panel's vertical scale: its range, its ticks, and value → pixel. */
function panel(top, bottom, arrays, log, zero, must) {
  const f = log ? (v) => Math.log10(Math.abs(v)) : (v) => v;
  let range = extent(arrays, log ? (v) => (zero ? v !== 0 : v > 0) : () => true);
  if (!range) return { top, bottom, ticks: [], y: () => NaN, empty: true };
  if (log && zero) range = extent([[].concat(...arrays).map(Math.abs)], (v) => v > 0);
  let [lo, hi] = range.map(f), off = false;
  if (!log && !zero) {
    // A slow first step must not flatten the rest: the axis follows the bulk, and the worst step.
    const all = Float64Array.from([].concat(...arrays).filter(Number.isFinite)).sort(), m = all.length - 1;
    const a = all[Math.floor(m * 0.03)], b = all[Math.ceil(m * 0.97)], wing = (b - a) * 0.6;
    const [mlo, mhi] = extent([must], () => true) || [a, b];
    const below = Math.min(mlo, Math.max(lo, a - wing)), over = Math.max(mhi, Math.min(hi, b + wing));
    if (m > 18 && wing && hi - lo > 4 * (over - below)) { off = true; lo = below; hi = over; }
  }
  if (zero && !log) { lo = Math.min(lo, 0); hi = Math.max(hi, 0); }
  const flat = hi === lo, pad = flat ? Math.abs(hi) * 0.1 || 1 : (hi - lo) * 0.07;
  lo -= pad; hi += pad;
  const bad = log && !zero ? (v) => !(v > 0) : log ? (v) => v === 0 : () => false;
  return { top, bottom, flat, off, ticks: log ? logTicks(lo, hi) : ticks(lo, hi, (bottom - top) / 34),
    y: (v) => (bad(v) ? NaN : bottom - ((f(v) - lo) / (hi - lo)) * (bottom - top)), at: (t) => bottom - ((t - lo) / (hi - lo)) * (bottom - top) };
}

function trace(ctx, xs, values, y, { color, width, dots, reach }) {
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = width;
  ctx.lineJoin = "round";
  const n = values.length, dense = n > 3 * reach, dot = (x, v) => { ctx.beginPath(); ctx.arc(x, v, width + 0.6, 0, 7); ctx.fill(); };
  if (dots) { for (let i = 0; i < n; i++) if (Number.isFinite(y(values[i]))) dot(xs(i), y(values[i])); return; }
  const alone = [];
  ctx.beginPath();
  let pen = 0, col = NaN, lo = 0, hi = 0;
  for (let i = 0; i < n; i++) {
    const v = y(values[i]), x = xs(i);
    if (!Number.isFinite(v)) { if (pen === 1) alone.push(i - 1); pen = 0; col = NaN; continue; }
    // Many points a pixel: keep each pixel column's lowest and highest.
    if (dense && Math.round(x) === col) { if (v < lo) lo = v; if (v > hi) hi = v; if (v === lo || v === hi) ctx.lineTo(x, v); continue; }
    col = Math.round(x); lo = hi = v;
    if (pen) ctx.lineTo(x, v); else ctx.moveTo(x, v);
    pen++;
  }
  if (pen === 1) alone.push(n - 1);
  ctx.stroke();
  for (const i of alone) dot(xs(i), y(values[i]));
}

function shade(ctx, x0, x1, top, bottom, color) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x0, top, x1 - x0, bottom - top);
  ctx.clip();
  ctx.fillStyle = ctx.strokeStyle = color;
  ctx.globalAlpha = 0.07;
  ctx.fillRect(x0, top, x1 - x0, bottom - top);
  ctx.globalAlpha = 0.35;
  ctx.lineWidth = 1;
  ctx.beginPath();
  const tall = bottom - top;
  for (let x = x0 - (x0 % 7) - tall; x < x1; x += 7) { ctx.moveTo(x, bottom); ctx.lineTo(x + tall, top); }
  ctx.stroke();
  ctx.restore();
}

/** Old and new above, their relative difference below, one x axis. Returns where the steps are. */
function plot(ctx, w, h, ink, c, { small, log, dots }) {
  const n = c.x.length, size = 11;
  ctx.font = size + "px " + (getComputedStyle(document.body).fontFamily);
  const top = small ? 4 : 20, floor = h - (small ? 4 : 24), split = Math.round(top + (floor - top) * 0.64);
  const P = panel(top, split - (small ? 3 : 9), [c.o, c.n], log, false, c.worst < 0 ? [] : [c.o[c.worst], c.n[c.worst]]);
  const Q = panel(split + (small ? 3 : 11), floor, [c.rel], log, true);
  const labels = small ? [] : [...P.ticks, ...Q.ticks].map((t) => ctx.measureText(t[1]).width);
  const left = small ? 3 : Math.max(30, ...labels) + 12, right = w - (small ? 3 : 14), wide = right - left;
  const x0 = c.x[0], span = c.x[n - 1] - x0;
  const toX = (s) => (span ? left + ((s - x0) / span) * wide : left + wide / 2);
  const xs = (i) => toX(c.x[i]);
  const edge = (i) => (i <= 0 ? left : i >= n ? right : (xs(i - 1) + xs(i)) / 2);
  const say = (text, x, y, color, align) => {
    const half = ctx.measureText(text).width / 2;
    ctx.textAlign = align || "center";
    ctx.textBaseline = "middle";
    ctx.fillStyle = color;
    ctx.fillText(text, align ? x : Math.min(right - half, Math.max(left + half, x)), y);
  };
  ctx.lineWidth = 1;
  for (const A of [P, Q]) {
    ctx.strokeStyle = ink("line");
    for (const [t, text] of small ? [] : A.ticks) {
      const y = Math.round(A.at(t)) + 0.5;
      ctx.beginPath(); ctx.moveTo(left, y); ctx.lineTo(right, y); ctx.stroke();
      say(text, left - 8, y, ink("dim"), "right");
    }
    ctx.strokeRect(left - 0.5, A.top - 0.5, wide + 1, A.bottom - A.top + 1);
  }
  if (!small) {
    const wholes = span ? ticks(x0, c.x[n - 1], wide / 90).filter(([v]) => Number.isInteger(v)) : [[x0, String(x0)]];
    for (const [v] of wholes) say(step(v), toX(v), floor + 13, ink("dim"));
  }
  for (let i = 0; i < n;) {
    let j = i;
    while (j < n && c.gap[j] === c.gap[i]) j++;
    const kind = c.gap[i];
    if (kind) {
      const a = edge(i), b = Math.max(edge(j), a + 2), color = ink(kind === GAINED ? "accent" : "fail");
      for (const A of [P, Q]) shade(ctx, a, b, A.top, A.bottom, color);
      if (!small && b - a > 44) say(GAP[kind], (a + b) / 2, P.top + 10, color);
    }
    i = j;
  }
  const mark = (i, dash, color) => {
    ctx.save();
    ctx.setLineDash(dash);
    ctx.strokeStyle = color;
    const x = Math.round(xs(i)) + 0.5;
    for (const A of [P, Q]) { ctx.beginPath(); ctx.moveTo(x, A.top); ctx.lineTo(x, A.bottom); ctx.stroke(); }
    ctx.restore();
  };
  if (c.first >= 0 && !small) mark(c.first, [2, 3], ink("dim"));
  if (c.worst >= 0) mark(c.worst, small ? [2, 2] : [5, 3], ink("fail"));
  ctx.save();
  ctx.beginPath(); ctx.rect(left - 4, P.top, wide + 8, h); ctx.clip();
  const line = { dots, reach: wide };
  ctx.save();
  if (P.off) { ctx.beginPath(); ctx.rect(left - 4, P.top, wide + 8, P.bottom - P.top); ctx.clip(); }
  trace(ctx, xs, c.o, P.y, { ...line, color: ink("old-soft"), width: small ? 3 : 4.5 });
  trace(ctx, xs, c.n, P.y, { ...line, color: ink("new"), width: small ? 1.1 : 1.5 });
  ctx.restore();
  if (Number.isFinite(Q.at && Q.at(0)) && !log) { ctx.strokeStyle = ink("dim"); ctx.lineWidth = 1; const y = Math.round(Q.at(0)) + 0.5; ctx.beginPath(); ctx.moveTo(left, y); ctx.lineTo(right, y); ctx.stroke(); }
  trace(ctx, xs, c.rel, Q.y, { ...line, color: ink("ink"), width: small ? 1 : 1.3 });
  ctx.restore();
  if (!small) {
    const late = c.worst >= 0 && xs(c.worst) > (left + right) / 2;
    say(log ? "log scales" : P.off ? "some steps are off this scale; Log shows all" : "", late ? left : right, 9, ink("dim"), late ? "left" : "right");
    if (Q.empty) say(log && c.rel.some((v) => v === 0) ? "no difference" : "no shared step with two values", (left + right) / 2, (Q.top + Q.bottom) / 2, ink("dim"));
    else if (Q.flat && !c.rel.some(Boolean)) say("no difference", (left + right) / 2, Q.top + 10, ink("dim"));
    if (c.worst >= 0) {
      ctx.lineWidth = 1.5;
      ctx.strokeStyle = ink("fail");
      for (const [v, A] of [[c.o[c.worst], P], [c.n[c.worst], P], [c.rel[c.worst], Q]]) { const y = A.y(v); if (Number.isFinite(y)) { ctx.beginPath(); ctx.arc(xs(c.worst), y, 4.5, 0, 7); ctx.stroke(); } }
      say("worst " + (dots ? "" : "step " + step(c.x[c.worst])), xs(c.worst), 9, ink("fail"));
    }
    if (c.first >= 0 && c.first !== c.worst) say("first " + step(c.x[c.first]), xs(c.first), (P.bottom + Q.top) / 2, ink("dim"));
  }
  return { left, right, xs, top: P.top, bottom: Q.bottom };
}

// --- one row, opened

function fact(list, name, value, title) { if (value !== "" && value != null) list.append(el("dt", {}, name), el("dd", { title }, value)); }

function facts(r) {
  const list = el("dl", { class: "facts" }), n = (key) => [fmt(r[key]), r[key] == null ? null : String(r[key])];
  const pair = (a, b, x, y) => (r[a] == null ? "" : count(r[a]) + x + count(r[b]) + y);
  fact(list, "signed mean", ...n("avg_rel_diff"));
  fact(list, "mean |·|", ...n("mean_abs_rel_diff"));
  fact(list, "max |·|", ...n("max_abs_rel_diff"));
  if (r.max_abs_rel_diff && r.max_old != null && r.max_new != null) fact(list, "old → new there", exact(r.max_old) + " → " + exact(r.max_new));
  fact(list, "tolerance", r.tolerance_ratio == null ? "" : fmt(r.tolerance_ratio) + " × allowed", String(r.tolerance_ratio));
  fact(list, "steady state", ...n("steady_rel_diff"));
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
    read.replaceChildren(...key(unit, { text: step(c.x[at]) }), ...key("old", side(c.o[at], c.gap[at] === GAINED ? "none" : ""), "old"),
      ...key("new", side(c.n[at], c.gap[at] === LOST ? "lost" : ""), "new"), ...key("(old − new) / old", { text: Number.isFinite(c.rel[at]) ? fmt(c.rel[at]) : "none", title: String(c.rel[at]) }));
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
      el("figcaption", {}, el("span", { class: "swatch old" }), "old", el("span", { class: "swatch new" }), "new", el("span", { class: "swatch rel" }), "(old − new) / old, below", ...marks)),
    go: (by) => go(by === "home" ? 0 : by === "end" ? n - 1 : at + by, true), log: () => log.click(),
  };
}
const noCurve = (r) => (r.curve === -2 ? `This curve is not in the page: it would go over the limit of ${count(D.limit)} points.`
  : r.metric == null ? "This file has no values to draw." : "The comparison kept no curve for this row.");

function makeDetail(r, gallery) {
  const fig = figure(r);
  const close = el("button", { type: "button", onclick: () => openRow(-1), title: "Close (Esc)" }, "Close");
  const inner = el("div", { class: "detail-in" },
    el("div", { class: "detail-head" }, el("div", { class: "full" }, el("bdi", {}, plain(r.path)), r.metric == null ? "" : el("b", {}, el("bdi", {}, plain(r.metric)))), copyButton(r.path, "path"), close),
    el("div", { class: "detail-body" }, fig.el, about(r)));
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
    r.curve < 0 ? el("div", { class: "blank" }, r.curve === -2 ? "over the page's limit" : r.metric == null ? plain(r.because) : "no curve kept")
      : lazyCanvas({ class: "mini", "aria-hidden": "true" }, (ctx, w, h, ink) => plot(ctx, w, h, ink, curve(r), { small: true, log: S.log, dots: r.shape !== "series" })));
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
function fold(list, items, make, first) {
  list.append(...items.slice(0, first).map(make));
  const rest = items.slice(first);
  if (!rest.length) return;
  const b = el("button", { type: "button", onclick: () => {
    const news = rest.map(make);
    b.parentElement.replaceWith(...news);
    (news[0].querySelector("button") || b).focus();
  } }, count(rest.length) + " more");
  list.append(el(list.tagName === "UL" ? "li" : "div", { class: "fold" }, b));
}

function build() {
  const grave = D.findings.filter((f) => f[0] !== "info"), infos = D.findings.filter((f) => f[0] === "info");
  const fails = grave.filter((f) => f[0] === "fail").length;
  $("findings").hidden = !D.findings.length;
  fold($("findings-list"), grave, findingEl, Math.max(SHOW_FIRST, Math.min(fails, 2 * SHOW_FIRST)));
  const info = $("findings-info");
  info.hidden = !infos.length;
  info.querySelector("summary").textContent = count(infos.length) + " for information";
  info.addEventListener("toggle", () => fold(info.querySelector("ul"), infos, findingEl, 50), { once: true });

  $("groups").hidden = !GROUPS.length;
  GROUPS.forEach((g, i) => $("groups-list").append(el("button", { type: "button", class: "group " + TONE[g.severity], "data-g": i, onclick: () => { set({ g: S.g === i ? -1 : i, open: -1 }); if (S.g === i) $("rows").scrollIntoView(); } },
    badge(g.severity), el("span", { class: "group-title" }, plain(g.title)),
    el("span", { class: "dim" }, count(g.n) + (g.n === 1 ? " member" : " members") + (g.low == null ? "" : ", |mean| " + fmt(g.low) + (g.high == null || g.high === g.low ? "" : " to " + fmt(g.high)))))));

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

  const over = ROWS.filter((r) => r.curve === -2).length, kept = ROWS.filter((r) => r.curve === -1 && r.metric != null).length;
  const why = [over && `${count(over)} over the page's limit of ${count(D.limit)} points (the gravest rows come first)`, kept && `${count(kept)} compared without keeping the values`].filter(Boolean);
  $("curveless").hidden = !why.length;
  $("curveless").textContent = (over + kept === 1 ? "1 row has" : count(over + kept) + " rows have") + " no curve: " + why.join(", ") + ".";
  const cmd = $("command");
  if (cmd) cmd.after(copyButton(cmd.textContent, "command"));
  for (const [k, what] of [["j k", "next, previous row (arrows, too, once in the table)"], ["Enter", "open or close the row"], ["Esc", "close the row"], ["/", "filter"], ["← →", "crosshair of the open row; Shift: ten steps; Home, End"], ["l", "logarithmic scales"], ["g", "table or gallery"], ["t", "light or dark"], ["?", "these keys"]])
    $("keys").querySelector("dl").append(el("dt", {}, ...k.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what));
}

// --- light and dark

const THEMES = ["auto", "light", "dark"];
let theme = "auto";
try { theme = THEMES.includes(sessionStorage.getItem("karat-theme")) ? sessionStorage.getItem("karat-theme") : "auto"; } catch { /* storage may be forbidden */ }
function setTheme(name) {
  theme = name;
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name[0].toUpperCase() + name.slice(1);
  $("theme").setAttribute("aria-label", "Colours: " + name);
  try { sessionStorage.setItem("karat-theme", name); } catch { /* storage may be forbidden */ }
  redraw();
}
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % 3]);

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
$("theme").addEventListener("click", nextTheme);
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

build();
setTheme(theme);
readHash();
apply();
if (S.open >= 0) { current = S.open; reveal(S.open, false); }
})();
