"use strict";
const tip = document.getElementById("tip");
let shown = null;
let leaving = 0;

function show(element) {
  clearTimeout(leaving);
  if (shown === element) return;
  hide();
  shown = element;
  tip.textContent = element.dataset.how;
  tip.hidden = false;
  element.setAttribute("aria-describedby", "tip");
  const box = element.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - tip.offsetWidth - 8);
  const below = box.bottom + 6;
  const fits = below + tip.offsetHeight < window.innerHeight || box.top < tip.offsetHeight + 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${fits ? below : box.top - tip.offsetHeight - 6}px`;
}

function hide() {
  clearTimeout(leaving);
  if (shown) shown.removeAttribute("aria-describedby");
  shown = null;
  tip.hidden = true;
}

function explained(target) {
  return target instanceof Element ? target.closest("[data-how]") : null;
}

for (const element of document.querySelectorAll("[title]")) {
  element.dataset.how = element.title;
  element.removeAttribute("title");
}
for (const link of document.querySelectorAll(".word")) {
  link.dataset.how = document.querySelector(`${link.getAttribute("href")} dd`).textContent;
}
document.addEventListener("mouseover", (event) => {
  const element = explained(event.target);
  if (element) show(element);
  else if (tip.contains(event.target)) clearTimeout(leaving);
});
document.addEventListener("mouseout", (event) => {
  const left = explained(event.target) || tip.contains(event.target);
  if (left && shown !== document.activeElement) leaving = setTimeout(hide, 150);
});
document.addEventListener("focusin", (event) => {
  const element = explained(event.target);
  if (element) show(element);
  else hide();
});
document.addEventListener("focusout", hide);
document.addEventListener("click", (event) => {
  const element = explained(event.target);
  if (element) show(element);
  else if (!tip.contains(event.target)) hide();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
document.addEventListener("scroll", hide, { capture: true, passive: true });

function sort(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const numeric = header.classList.contains("number");
  const before = header.getAttribute("aria-sort");
  const usual = numeric ? "descending" : "ascending";
  const other = numeric ? "ascending" : "descending";
  const direction = before === usual ? other : usual;
  const sign = direction === "ascending" ? 1 : -1;
  const key = (row) => row.cells[column].dataset.key;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const x = key(a);
    const y = key(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true }));
  });
  table.tBodies[0].append(...rows);
  for (const each of table.tHead.rows[0].cells) each.setAttribute("aria-sort", each === header ? direction : "none");
}

for (const button of document.querySelectorAll(".sort")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}

// A box of a long table ends with a whole row, and its caption says what lies outside.
const TALL = 620;

function fit(box) {
  const more = box.previousElementSibling.querySelector(".more");
  const rows = [...box.querySelectorAll("tbody tr")];
  if (!box.clientWidth) return;
  const top = box.getBoundingClientRect().top - box.scrollTop;
  const ends = rows.map((row) => row.getBoundingClientRect().bottom - top).filter((end) => end <= TALL);
  const long = ends.length < rows.length;
  box.style.maxHeight = long && ends.length ? `${ends[ends.length - 1] + 2}px` : "";
  const wide = box.scrollWidth > box.clientWidth + 1;
  box.classList.toggle("cut", wide);
  const parts = [long ? `${rows.length} rows, scroll down ↓` : "", wide ? "more columns, scroll aside →" : ""];
  more.textContent = parts.filter(Boolean).join("; ");
}

function fitAll(part) {
  for (const box of part.querySelectorAll(".scroll")) fit(box);
}
fitAll(document);
addEventListener("resize", () => fitAll(document));
document.addEventListener("toggle", (event) => fitAll(event.target), true);

// A table's numbers are one stop of the Tab key; the arrow keys go through them.
const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

function next(cell, [down, right]) {
  let row = cell.parentElement;
  let column = cell.cellIndex;
  for (;;) {
    column += right;
    row = down > 0 ? row.nextElementSibling : down < 0 ? row.previousElementSibling : row;
    const found = row && row.cells[column];
    if (!found) return null;
    const button = found.querySelector(".n");
    if (button) return button;
  }
}

for (const table of document.querySelectorAll("table")) {
  const numbers = [...table.querySelectorAll(".n")];
  numbers.forEach((button, i) => { button.tabIndex = i === 0 ? 0 : -1; });
  table.addEventListener("focusin", (event) => {
    if (!event.target.classList.contains("n")) return;
    for (const button of numbers) button.tabIndex = button === event.target ? 0 : -1;
  });
  table.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || !event.target.classList.contains("n")) return;
    const button = next(event.target.closest("td, th"), step);
    if (!button) return;
    event.preventDefault();
    button.focus();
  });
}

for (const one of document.querySelectorAll(".buttons")) {
  one.hidden = false;
  one.addEventListener("click", (event) => {
    const wanted = event.target.closest("[data-tick]");
    if (!wanted) return;
    for (const box of one.parentElement.querySelectorAll("input")) box.checked = wanted.dataset.tick === "all";
  });
}

// A link to an entry opens it.
function unfold() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

const root = document.documentElement;
const toggle = document.getElementById("theme");

function kept() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

function isDark() {
  if (root.dataset.theme) return root.dataset.theme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function name() {
  toggle.textContent = isDark() ? "Light mode" : "Dark mode";
}

if (kept() === "light" || kept() === "dark") root.dataset.theme = kept();
toggle.hidden = false;
name();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
toggle.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a page from a disk may have no storage */ }
  name();
});
