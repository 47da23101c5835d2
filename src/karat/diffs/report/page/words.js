const D = JSON.parse($("data").textContent);
const PACKED = JSON.parse($("curves").textContent);
const VERDICTS = D.verdicts;
const MARK = { unreadable: "!", incomplete: "◐", removed: "−", break: "×", drift: "△", new: "+", noise: "≈", same: "=",
  fail: "×", warn: "△", info: "i" };
const TONE = { unreadable: "grave", incomplete: "grave", removed: "grave", break: "grave", drift: "warn", new: "info",
  noise: "quiet", same: "quiet", fail: "grave", warn: "warn", info: "info" };
const SHOW_FAILS = 12, SHOW_WARNS = 4, SHOW_GROUPS = 8, SLACK = 600, AT_LEAST = 30, CARDS = 60;

// --- words and numbers

const minus = (s) => s.replace(/^-/, "−");
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
/** A change, with its direction: +0.0056, −0.031, 0. */
const rise = (x) => (x > 0 ? "+" : "") + fmt(x);
/** A value as it stands in the golden, to nine digits. */
const exact = (x) => (Number.isFinite(x) ? minus(String(Number(x.toPrecision(9)))) : odd(x));
const step = (s) => (typeof s === "number" ? minus(String(s)) : plain(s));

// --- elements

const badge = (word) => el("span", { class: "badge " + TONE[word] }, el("span", { class: "mark", "aria-hidden": "true" }, MARK[word]), word);

const command = (text) => el("span", { class: "next" }, el("code", {}, plain(text)), copyButton(text, "command"));

/** A path that gives way in its middle where `room` is short: outer folders first, the end never. */
const paths = new WeakMap();
function pathEl(full, room) {
  const short = plain(D.root && full.startsWith(D.root + "/") ? full.slice(D.root.length + 1) : full);
  const cut = short.lastIndexOf("/") + 1, fold = short.lastIndexOf("/", cut - 2) + 1, end = Math.max(cut, short.length - 14);
  const e = el("span", { class: "path", title: plain(full), dir: "ltr" }, el("span", { class: "dirs", hidden: !fold || short.length * 7.6 > room }, short.slice(0, fold)),
    el("span", { class: "head" }, el("span", { class: "case" }, short.slice(fold, cut)), short.slice(cut, end)), el("span", { class: "tail" }, short.slice(end)));
  paths.set(e, full);
  return e;
}
document.addEventListener("copy", (ev) => {
  const sel = getSelection(), node = sel.anchorNode, path = node && (node.closest ? node : node.parentElement).closest(".path");
  if (!path) return;
  const text = sel.toString().replace(/[\n\t]/g, ""), whole = [...path.children].filter((e) => !e.hidden).map((e) => e.textContent).join("");
  if (text !== whole && !path.contains(sel.focusNode)) return;
  ev.clipboardData.setData("text/plain", text === whole ? paths.get(path) : text);
  ev.preventDefault();
});
