"use strict";
// Live pages and keys. A page that has parts is asked for again, and the parts that differ are put
// in place; a page of logs asks for lines that came since. All text was escaped by the server.
const POLL_MS = 500, POLL_MAX_MS = 15000, LINES_MAX = 3000, FOLD_AMONG = 64, BUSY_FACTOR = 4;
const pulse = document.getElementById("pulse"), list = document.getElementById("lines");
const words = document.body.dataset;
const isLive = list ? list.dataset.begin !== undefined : !("over" in words) && document.querySelector("[data-live-part]");
let isPaused = false, failures = 0, next = list && list.dataset.begin;

function show(text, isOff) {
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.classList.toggle("off", Boolean(isOff));
}

function isBusy(part) { // the reader selects text, or has opened something in it
  const chosen = getSelection();
  return part.querySelector("details[open]") || (!chosen.isCollapsed && part.contains(chosen.anchorNode));
}

function replaceParts(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const mine = new Map([...document.querySelectorAll("[data-live-part]")].map((p) => [p.id, p]));
  let last = document.querySelector("[data-live-part]");
  for (const part of fresh.querySelectorAll("[data-live-part]")) {
    const old = mine.get(part.id);
    mine.delete(part.id);
    const before = last;
    last = old || part;
    if (!old) before.after(part); // it was not there before
    if (!old || old.innerHTML === part.innerHTML || isBusy(old)) continue;
    const active = old.contains(document.activeElement) ? document.activeElement : null;
    const address = active && (active.getAttribute("href") || active.value);
    const checked = new Set([...old.querySelectorAll("input:checked")].map((box) => box.value));
    old.replaceChildren(...part.childNodes);
    for (const box of old.querySelectorAll("input[type=checkbox]")) box.checked = checked.has(box.value);
    if (active) {
      const again = [...old.querySelectorAll("a, input")].find((e) => (e.getAttribute("href") || e.value) === address);
      if (again) again.focus({ preventScroll: true });
    }
  }
  for (const gone of mine.values()) gone.remove();
  return "over" in fresh.body.dataset;
}

function folded(line) { // the count on an equal line nearby takes it up
  if (list.dataset.fold !== "1") return false;
  const text = line.querySelector("code").textContent;
  const among = [...list.children].slice(-FOLD_AMONG).reverse();
  const same = among.find((old) => old.dataset.labels && old.querySelector("code").textContent === text);
  if (!same) return false;
  const labels = same.dataset.labels.split("\n"), more = line.dataset.labels.split("\n");
  if (more.some((label) => labels.includes(label))) return false;
  same.dataset.labels = [...labels, ...more].join("\n");
  same.querySelector(".who").textContent = `${labels.length + more.length} ×`;
  same.querySelector(".who").title = [...labels, ...more].slice(0, 64).join(", ");
  return true;
}

function addLines(text) {
  const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
  const holder = document.createElement("template");
  holder.innerHTML = text;
  for (const line of [...holder.content.children]) {
    if (!line.dataset.labels || !folded(line)) list.append(line);
  }
  while (list.children.length > LINES_MAX) list.firstElementChild.remove();
  const empty = document.getElementById("no-lines");
  if (empty && list.children.length) empty.remove();
  if (isAtEnd) scrollTo(0, document.body.scrollHeight);
}

let pointer = { x: 0, y: 0 }, told = null;
function tellValues() { // the values below the pointer stand in the caption of their chart
  if (told) {
    told.line.remove();
    told.out.replaceChildren(...told.old);
    told = null;
  }
  const under = document.elementFromPoint(pointer.x, pointer.y), svg = under && under.closest("svg.chart");
  if (!svg) return;
  const [left, right, low, high, bottom, top, yLow, yHigh] = svg.dataset.area.split(" ").map(Number);
  const box = svg.getBoundingClientRect(), out = svg.parentElement.querySelector("output");
  const x = Math.min(right, Math.max(left, ((pointer.x - box.left) * svg.viewBox.baseVal.width) / box.width));
  const values = [];
  for (const path of svg.querySelectorAll("path.line")) {
    let best = null;
    for (const [, px, py] of path.getAttribute("d").matchAll(/[ML]([\d.]+) ([\d.]+)/g)) {
      if (!best || Math.abs(px - x) < Math.abs(best[0] - x)) best = [Number(px), Number(py)];
    }
    if (!best || Math.abs(best[0] - x) > 20) continue;
    const value = document.createElement("span");
    value.className = path.getAttribute("class").replace("line ", "");
    value.textContent = ` ${Number((yLow + ((bottom - best[1]) / (bottom - top)) * (yHigh - yLow)).toPrecision(4))}`;
    values.push(value);
  }
  const at = low + ((x - left) / (right - left)) * (high - low);
  const unit = svg.dataset.unit ? (at < 60 ? [1, " s"] : at < 3600 ? [60, " min"] : [3600, " h"]) : [1, ""];
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [name, number] of [["x1", x], ["x2", x], ["y1", top], ["y2", bottom]]) line.setAttribute(name, number);
  line.setAttribute("class", "at");
  told = { line, out, old: [...out.childNodes] };
  out.replaceChildren(`${Number((at / unit[0]).toPrecision(3))}${unit[1]}: `, ...values);
  svg.append(line);
}
document.addEventListener("pointermove", (event) => {
  pointer = event;
  tellValues();
});

async function poll() {
  const began = performance.now();
  let wait = POLL_MS;
  if (!isPaused && !document.hidden) {
    try {
      let address = location.href;
      if (list) {
        const query = new URLSearchParams(location.search);
        query.set("after", next);
        address = `${location.pathname}/new?${query}`;
      }
      const answer = await fetch(address, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const text = await answer.text();
      if (list) {
        addLines(text);
        next = answer.headers.get("X-Next");
        if (next === "over") return show("");
      } else {
        const isOver = replaceParts(text);
        tellValues();
        if (isOver) return show("");
      }
      failures = 0;
      show(words.live);
    } catch (error) {
      failures += 1;
      wait = Math.min(POLL_MAX_MS, POLL_MS * 2 ** failures);
      show(words[error.message] || words.offline, true); // by the status, else nobody answered
    }
  }
  setTimeout(poll, Math.max(wait, BUSY_FACTOR * (performance.now() - began)));
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const here = rows.indexOf(document.activeElement);
  const row = rows[here < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + step))];
  if (row) row.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "/" && document.getElementById("search")) document.getElementById("search").focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "p" && isLive) {
    isPaused = !isPaused;
    show(isPaused ? words.paused : words.live);
  } else return;
  event.preventDefault();
});
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
if (isLive) poll();
if (list && !location.search.includes("after=")) scrollTo(0, document.body.scrollHeight);
