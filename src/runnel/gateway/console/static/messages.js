// The search through a topic and its tail: rows come as events, and are shown as the server wrote them.
(() => {
  "use strict";
  const ROWS_MAX = 500;
  let source = null;

  function rowsOf(html) {
    const template = document.createElement("template");
    template.innerHTML = `<table><tbody>${html}</tbody></table>`;
    return [...template.content.querySelectorAll("tr")];
  }

  function stop() {
    source?.close();
    source = null;
  }

  // Search.
  function search(box, cursor) {
    stop();
    const url = new URL(box.dataset.search, location.origin);
    if (cursor) url.searchParams.set("cursor", cursor);
    const [bar, status, button, table] = ["progress", "[data-status]", "[data-stop]", "tbody"].map((each) => box.querySelector(each));
    let next = null;
    let said = "";
    button.textContent = "Stop";
    button.hidden = false;
    function ended(how) {
      stop();
      status.textContent = `${how} ${said}`;
      button.textContent = "Continue";
      button.hidden = next === null;
      box.querySelector("[data-none]").hidden = table.rows.length > 0 || next !== null;
    }
    button.onclick = () => {
      if (source) ended("Stopped.");
      else if (next !== null) search(box, next);
    };
    source = new EventSource(url);
    source.addEventListener("rows", (event) => {
      const rows = rowsOf(event.data);
      table.append(...rows);
      rows.forEach((row) => htmx.process(row));
    });
    source.addEventListener("progress", (event) => {
      const { done, total, matches, seconds, bytes } = JSON.parse(event.data);
      bar.max = Math.max(total, 1);
      bar.value = total ? done : 1;
      said = `${matches.toLocaleString("en")} found in ${done.toLocaleString("en")} of ${total.toLocaleString("en")} records (${(bytes / 1048576).toFixed(1)} MiB, ${seconds} s)`;
      status.textContent = `Searching: ${said}`;
    });
    source.addEventListener("paused", (event) => { next = event.data; ended("Paused:"); });
    source.addEventListener("end", () => { next = null; ended("Done:"); });
    source.addEventListener("failed", (event) => { next = null; ended(`Failed: ${event.data}.`); });
    source.onerror = () => { if (source?.readyState === EventSource.CLOSED) ended("The connection was lost."); };
  }

  // Tail: paused while the reader is below the top.
  function tail(button) {
    const table = document.querySelector("#content table.messages tbody");
    const counter = document.getElementById("new-rows");
    if (source) {
      stop();
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Live tail";
      return;
    }
    if (!table) return;
    let held = [];
    let skipped = 0;
    const isAtTop = () => scrollY < 200;
    function show() {
      const rows = held;
      held = [];
      counter.hidden = true;
      table.prepend(...rows);
      rows.forEach((row) => htmx.process(row));
      while (table.rows.length > ROWS_MAX) table.rows[table.rows.length - 1].remove();
    }
    counter.onclick = () => { scrollTo({ top: 0 }); show(); };
    addEventListener("scroll", () => { if (source && held.length && isAtTop()) show(); });
    source = new EventSource(button.dataset.tail);
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Live: stop";
    source.addEventListener("rows", (event) => {
      held = [...rowsOf(event.data), ...held].slice(0, ROWS_MAX);
      document.getElementById("no-messages")?.remove();
      if (isAtTop() && !document.getElementById("dialog").open) show();
      else {
        counter.hidden = false;
        counter.textContent = `${held.length}${held.length === ROWS_MAX ? "+" : ""} new`;
      }
    });
    source.addEventListener("skipped", (event) => {
      skipped += Number(event.data);
      document.getElementById("skipped").textContent = `${skipped.toLocaleString("en")} more arrived too fast to show`;
    });
    source.addEventListener("failed", (event) => { runnel.toast(event.data); tail(button); });
  }

  function start() {
    const box = document.querySelector("#content [data-search]");
    if (box && !box.dataset.started) {
      box.dataset.started = "1";
      search(box, null);
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tail]");
    if (button) tail(button);
  });
  document.addEventListener("htmx:before:swap", (event) => {
    if (event.detail?.ctx?.target?.id === "content") stop();
  });
  document.addEventListener("htmx:after:swap", start);
  addEventListener("pagehide", stop);
  start();
})();
