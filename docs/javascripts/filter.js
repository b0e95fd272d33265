// A search box above the tables of long reference pages: it hides the rows, and then the tables, that do not contain every word.
const PAGES = ["reference/config", "reference/support", "reference/messages"];

function filter(root, words) {
  for (const table of root.querySelectorAll("table")) {
    let shown = 0;
    for (const row of table.querySelectorAll("tbody tr")) {
      const text = row.textContent.toLowerCase();
      const matches = words.every((word) => text.includes(word));
      row.style.display = matches ? "" : "none";
      shown += matches ? 1 : 0;
    }
    table.style.display = shown ? "" : "none";
  }
}

function addBox() {
  const root = document.querySelector("article");
  if (!root || !PAGES.some((page) => location.pathname.includes(page)) || root.querySelector("#filter")) return;
  const box = document.createElement("input");
  Object.assign(box, { id: "filter", type: "search", placeholder: "Filter rows, for example: kl coef" });
  box.style.cssText = "width: 100%; padding: 0.5em; margin: 0.5em 0; border: 1px solid currentColor; border-radius: 4px;";
  box.addEventListener("input", () => filter(root, box.value.toLowerCase().split(/\s+/).filter(Boolean)));
  root.querySelector("h1").after(box);
}

document.addEventListener("DOMContentLoaded", addBox);
