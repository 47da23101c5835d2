const rows = [...document.querySelectorAll("#rows tr")];
const filter = document.getElementById("filter");
const chips = [...document.querySelectorAll("#chips button")];
const shown = document.getElementById("shown");

function update() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const states = new Set(chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.state));
  let count = 0;
  for (const row of rows) {
    const name = row.firstElementChild.textContent.toLowerCase();
    const fits = words.every((word) => name.includes(word)) && (states.size === 0 || states.has(row.dataset.state));
    row.hidden = !fits;
    count += fits ? 1 : 0;
  }
  shown.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ops`;
  document.getElementById("nothing").hidden = count > 0;
}

filter.addEventListener("input", update);
for (const chip of chips) {
  chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    update();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== filter) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape" && document.activeElement === filter) {
    filter.value = "";
    update();
  }
});
document.getElementById("bar").hidden = false;
update();
