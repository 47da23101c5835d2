// --- curves

const unpack = (text) => new Float64Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const unpackSteps = (s) => (Array.isArray(s) ? Float64Array.from({ length: s[2] }, (_, i) => s[0] + i * s[1]) : unpack(s));

const LOST = 1, NAN = 2, GAINED = 3, GAP = ["", "lost", "NaN", "gained"];
/** Both sides over the union of their steps; what became of each step; (new − old) / |old|. */
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
    rel.push(ov === nv && Number.isFinite(ov) ? 0 : ov !== 0 && Number.isFinite(ov) && Number.isFinite(nv) ? (nv - ov) / Math.abs(ov) : NaN);
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
/** The relative difference at which a row would be more than noise, as far as its own numbers tell. */
const limitOf = (r) => (r.threshold_ratio > 0 && r.max_abs_rel_diff > 0 && Number.isFinite(r.threshold_ratio) ? r.max_abs_rel_diff / r.threshold_ratio : 1e-3);

/** One panel's vertical scale: its range, its ticks, and value → pixel. `least`: it is at least so high, lest noise look like drift. */
function panel(top, bottom, arrays, log, zero, must, least = 0) {
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
  const lack = log ? 0 : (zero ? 2 * least : least * Math.max(Math.abs(lo), Math.abs(hi))) - (hi - lo);
  if (lack > 0) { lo = zero ? Math.min(lo, -least) : lo - lack / 2; hi = zero ? Math.max(hi, least) : hi + lack / 2; }
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
function plot(ctx, w, h, ink, c, { small, log, dots, limit = 0 }) {
  const n = c.x.length, size = 11;
  ctx.font = size + "px " + (getComputedStyle(document.body).fontFamily);
  const top = small ? 4 : 20, floor = h - (small ? 4 : 24), split = Math.round(top + (floor - top) * 0.64);
  const P = panel(top, split - (small ? 3 : 9), [c.o, c.n], log, false, c.worst < 0 ? [] : [c.o[c.worst], c.n[c.worst]], Math.max(10 * limit, limit && 0.01));
  const Q = panel(split + (small ? 3 : 11), floor, [c.rel], log, true, [], limit);
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
