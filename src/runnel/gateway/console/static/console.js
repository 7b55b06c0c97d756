// What every page has: live content, the dialog, toasts, copying, the theme and keys.
(() => {
  "use strict";
  const root = document.documentElement;
  const content = document.getElementById("content");
  const dialog = document.getElementById("dialog");
  const RETRY_MS = 3000;

  // Live content: read again from the address of the page, and morphed, so that focus and scroll stay.
  const here = () => location.pathname + location.search;
  let reading = false;
  async function refresh() {
    if (!content || reading) return;
    reading = true;
    try {
      await htmx.ajax("GET", here(), { target: "#content", swap: "innerMorph" });
    } finally {
      reading = false;
    }
  }
  const liveMs = Number(content?.dataset.liveMs || 0);
  const isBusy = () => document.hidden || isDown || content.contains(document.activeElement?.closest("input, select, textarea"));
  if (liveMs) setInterval(() => { if (!isBusy()) refresh(); }, liveMs);
  if (content?.dataset.missing) refresh();
  setInterval(() => { if (!liveMs && content?.querySelector("[data-retry]") && !isBusy()) refresh(); }, RETRY_MS);
  document.addEventListener("visibilitychange", () => { if (liveMs && !isBusy()) refresh(); });

  // A lost connection is shown, and opened again.
  const badge = document.getElementById("line-down");
  let isDown = false;
  function lineIsDown(down) {
    if (down === isDown) return;
    isDown = down;
    badge.hidden = !down;
    if (down) probe();
    else refresh();
  }
  async function probe() {
    while (isDown) {
      await new Promise((done) => setTimeout(done, RETRY_MS));
      try {
        if ((await fetch("/livez", { cache: "no-store" })).ok) lineIsDown(false);
      } catch { /* still down */ }
    }
  }
  document.addEventListener("htmx:error", (event) => {
    if (!event.detail?.ctx?.response) lineIsDown(true);
  });

  // The dialog: forms and messages are loaded into it.
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail?.ctx?.target === dialog && dialog.firstElementChild) {
      dialog.classList.toggle("wide", dialog.querySelector("[data-wide]") !== null);
      if (!dialog.open) dialog.showModal();
      dialog.querySelector("[autofocus]")?.focus();
    }
  });
  dialog?.addEventListener("close", () => {
    dialog.replaceChildren();
    remember("open", null);
  });
  dialog?.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  document.body.addEventListener("done", (event) => {
    dialog.close();
    if (event.detail.go && event.detail.go !== here()) {
      sessionStorage.setItem("runnel-toast", event.detail.message);
      location.assign(event.detail.go);
    } else {
      toast(event.detail.message);
      refresh();
    }
  });

  function toast(text) {
    const box = document.createElement("div");
    box.className = "toast";
    box.textContent = text;
    document.getElementById("toasts").append(box);
    setTimeout(() => box.remove(), 6000);
  }
  const kept = sessionStorage.getItem("runnel-toast");
  if (kept) {
    sessionStorage.removeItem("runnel-toast");
    toast(kept);
  }

  // State that belongs in the address, without another request.
  function remember(name, value) {
    const url = new URL(location.href);
    if (value === null) url.searchParams.delete(name);
    else url.searchParams.set(name, value);
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      const source = document.getElementById(copy.dataset.copy) || copy.previousElementSibling;
      await copyText(source.textContent);
      const before = copy.textContent;
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = before; }, 1500);
      return;
    }
    const row = event.target.closest("tr[data-open]");
    if (row && !event.target.closest("a, button")) row.querySelector("button.open")?.click();
    const opener = event.target.closest("[data-remember]");
    if (opener) remember("open", opener.dataset.remember);
    if (event.target.closest("#theme")) switchTheme();
    if (event.target.closest("#keys")) showKeys();
  });

  async function copyText(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    // Without HTTPS on another machine there is no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  // Forms with choices that need one more field.
  document.addEventListener("change", (event) => {
    const choice = event.target.closest("[data-shows]");
    if (choice) showFields(choice);
  });
  function showFields(choice) {
    const form = choice.form;
    for (const field of form.querySelectorAll("[data-for]")) {
      field.hidden = !field.dataset.for.split(" ").includes(choice.value);
    }
  }

  function switchTheme() {
    const isDark = getComputedStyle(root).colorScheme === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("runnel-theme", root.dataset.theme);
    document.dispatchEvent(new Event("themechange"));
  }

  // Keys: g and a letter goes somewhere, / searches, j and k move, Enter opens.
  const PLACES = { o: "/console/", t: "/console/topics", g: "/console/groups", b: "/console/brokers", s: "/console/settings", x: "/console/transactions", d: "/console/dead-letters", a: "/console/alerts", p: "/console/pipelines", c: "/console/schemas" };
  let waitsForPlace = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog?.open) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (waitsForPlace && PLACES[event.key]) location.assign(PLACES[event.key]);
    waitsForPlace = event.key === "g" && !waitsForPlace;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("[data-find]")?.focus();
    } else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    else if (event.key === "r") refresh();
    else if (event.key === "?") showKeys();
  });
  function move(by) {
    const stops = [...(content?.querySelectorAll("td.name a, button.open") ?? [])];
    const at = stops.indexOf(document.activeElement);
    const next = stops[at < 0 ? (by > 0 ? 0 : stops.length - 1) : Math.min(Math.max(at + by, 0), stops.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
  function showKeys() {
    dialog.replaceChildren(document.getElementById("key-help").content.cloneNode(true));
    dialog.classList.remove("wide");
    if (!dialog.open) dialog.showModal();
  }

  // An address may name a message that is open.
  const open = new URL(location.href).searchParams.get("open");
  const found = open?.match(/^(\d+):(\d+)$/);
  if (found && dialog && content?.dataset.topic) {
    const path = `/console/topics/${encodeURIComponent(content.dataset.topic)}/message?partition=${found[1]}&offset=${found[2]}`;
    htmx.ajax("GET", path, { target: "#dialog", swap: "innerHTML" });
  }

  window.runnel = { refresh, toast };
})();
