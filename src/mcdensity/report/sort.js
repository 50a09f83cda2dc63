// A click on a heading sorts its table: numbers by the data-v of their cells, all else as text.
"use strict";
for (const head of document.querySelectorAll("table.sort th")) {
  if (!head.textContent.trim()) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Sort by this column";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending" || !head.hasAttribute("aria-sort") && head.classList.contains("text");
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const key = row => row.cells[head.cellIndex].dataset.v ?? row.cells[head.cellIndex].textContent;
    const compare = (a, b) => {
      const x = key(a), y = key(b), p = Number(x), q = Number(y);
      return x !== "" && y !== "" && !isNaN(p) && !isNaN(q) ? p - q : x.localeCompare(y);
    };
    body.append(...[...body.rows].sort((a, b) => up ? compare(a, b) : compare(b, a)));
  });
}
