// What every page has: elements made of text, badges, copy buttons, light and dark, and tables that filter.
// Names are hostile: they reach the page through textContent and attributes only.
const $ = (id) => document.getElementById(id);
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** Text with control and direction characters spelt out, so that a name cannot pose as another. */
const plain = (s) => String(s).replace(INVISIBLE, (c) => "⟨" + c.charCodeAt(0).toString(16).padStart(4, "0") + "⟩");
const count = (n) => n.toLocaleString("en");

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
for (const code of document.querySelectorAll("code[data-copy]")) code.after(copyButton(code.textContent, code.dataset.copy));

const THEMES = ["auto", "light", "dark"];
let theme = "auto";
try { theme = THEMES.includes(sessionStorage.getItem("karat-theme")) ? sessionStorage.getItem("karat-theme") : "auto"; } catch { /* storage may be forbidden */ }
function setTheme(name) {
  theme = name;
  document.documentElement.dataset.theme = name;
  $("theme").textContent = "◐ " + name[0].toUpperCase() + name.slice(1);
  $("theme").setAttribute("aria-label", "Colours: " + name);
  try { sessionStorage.setItem("karat-theme", name); } catch { /* storage may be forbidden */ }
  document.dispatchEvent(new Event("karat-theme"));
}
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % 3]);
$("theme").addEventListener("click", nextTheme);
document.querySelector(".tools").hidden = false;
setTheme(theme);

/** A table of rows with a state each: words find them by name, chips by state. */
for (const body of document.querySelectorAll("tbody[data-noun]")) {
  const rows = [...body.rows], noun = body.dataset.noun, section = body.closest("section");
  const [filter, shown, nothing] = ["input", "output", ".nothing"].map((which) => section.querySelector(which));
  const chips = [...section.querySelectorAll(".chip")];
  const update = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const states = new Set(chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.state));
    let n = 0;
    for (const row of rows) {
      const name = (row.dataset.name || row.textContent).toLowerCase();
      row.hidden = !(words.every((word) => name.includes(word)) && (states.size === 0 || states.has(row.dataset.state)));
      n += !row.hidden;
    }
    shown.textContent = `${count(n)} of ${count(rows.length)} ${noun}`;
    nothing.hidden = n > 0;
  };
  filter.addEventListener("input", update);
  for (const chip of chips) chip.addEventListener("click", () => { chip.setAttribute("aria-pressed", chip.getAttribute("aria-pressed") !== "true"); update(); });
  document.addEventListener("keydown", (ev) => {
    if (ev.key === "/" && !ev.target.matches("input, textarea, select")) { ev.preventDefault(); filter.focus(); }
    else if (ev.key === "Escape" && ev.target === filter) { filter.value = ""; update(); }
  });
  section.querySelector(".bar").hidden = false;
  update();
}
