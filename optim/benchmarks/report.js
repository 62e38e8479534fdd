"use strict";
// A click on a column heading sorts by it, a second click reverses the order; empty cells stay last.
const valueOf = (cell) => Number(cell.dataset.v ?? cell.textContent);
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("th")];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const isUp = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    const order = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      const empty = x.classList.contains("none") - y.classList.contains("none");
      if (empty !== 0) return empty;
      const areNumbers = x.classList.contains("n") && y.classList.contains("n");
      const sign = isUp ? 1 : -1;
      return sign * (areNumbers ? valueOf(x) - valueOf(y) : x.textContent.localeCompare(y.textContent));
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }));
}
// Filters hide rows of other solvers and instances, and sections without visible records.
const form = document.getElementById("filters");
if (form) {
  const [solver, instance, output, unfold] = ["by-solver", "by-instance", "shown", "unfold"].map((id) => document.getElementById(id));
  const records = [...document.querySelectorAll("tr[data-instance]")];
  const totals = [...document.querySelectorAll("tr[data-solver]:not([data-instance])")];
  const folds = [...document.querySelectorAll("details")];
  const narrow = () => {
    const part = instance.value.trim().toLowerCase();
    const isMine = (row) => solver.value === "" || row.dataset.solver === solver.value;
    for (const row of totals) row.hidden = !isMine(row);
    for (const row of records) row.hidden = !(isMine(row) && row.dataset.instance.toLowerCase().includes(part));
    for (const section of document.querySelectorAll("section[id]")) {
      const isEmpty = !section.querySelector("tr[data-instance]:not([hidden])");
      section.hidden = isEmpty;
      document.querySelector(`nav a[href="#${section.id}"]`).parentElement.hidden = isEmpty;
    }
    output.textContent = `${records.filter((row) => !row.hidden).length} of ${records.length} records`;
  };
  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  unfold.addEventListener("click", () => {
    const isOpen = unfold.getAttribute("aria-expanded") !== "true";
    folds.forEach((fold) => { fold.open = isOpen; });
    unfold.setAttribute("aria-expanded", String(isOpen));
    unfold.textContent = isOpen ? "Close all records" : "Open all records";
  });
}
