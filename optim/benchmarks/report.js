"use strict";
// A click on a column's head sorts by it, a second click the other way round; empty cells stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
    const sign = head.dataset.order === "up" ? -1 : 1;
    table.querySelectorAll("th").forEach((other) => delete other.dataset.order);
    head.dataset.order = sign > 0 ? "up" : "down";
    const body = table.tBodies[0];
    const order = (a, b) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      const empty = x.classList.contains("none") - y.classList.contains("none");
      if (empty !== 0) return empty;
      const isNumber = "value" in x.dataset && "value" in y.dataset;
      return sign * (isNumber ? x.dataset.value - y.dataset.value : x.textContent.localeCompare(y.textContent));
    };
    [...body.rows].sort(order).forEach((row) => body.append(row));
  }));
}
