// Live charts: series as JSON from the address of the chart, drawn with uPlot.
(() => {
  "use strict";
  const INTERVAL_MS = 2000;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const UNITS = { count: ["", "k", "M", "G"], bytes: ["B", "KiB", "MiB", "GiB"] };

  function short(value, unit) {
    if (value === null || value === undefined) return "–";
    const step = unit === "bytes" ? 1024 : 1000;
    let index = 0;
    while (Math.abs(value) >= step && index < 3) { value /= step; index += 1; }
    const digits = Number.isInteger(value) || value >= 100 ? 0 : 1;
    return `${value.toFixed(digits)} ${UNITS[unit][index]}`.trim();
  }

  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

  class Live {
    constructor(element) {
      this.element = element;
      this.unit = element.dataset.unit;
      this.series = JSON.parse(element.dataset.series);
      this.data = null;
      new ResizeObserver(() => this.resize()).observe(element);
      document.addEventListener("themechange", () => this.draw());
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
      this.read();
      setInterval(() => { if (!document.hidden && element.isConnected) this.read(); }, INTERVAL_MS);
    }

    async read() {
      try {
        const response = await fetch(this.element.dataset.chart, { cache: "no-store" });
        if (!response.ok) return;
        const columns = await response.json();
        this.data = [columns.at, ...this.series.map((each) => columns[each.column])];
      } catch { return; }
      const hasValues = this.data.slice(1).some((column) => column.some((value) => value !== null));
      this.element.closest("figure").querySelector("[data-waiting]").hidden = hasValues;
      if (this.plot) this.plot.setData(this.data);
      else this.draw();
    }

    draw() {
      if (!this.data) return;
      this.plot?.destroy();
      const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
      this.plot = new uPlot({
        width: this.element.clientWidth,
        height: this.element.clientHeight,
        padding: [8, 30, 0, 0],
        cursor: { points: { size: 6 } },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] } },
        axes: [{ ...axis, space: 90, values: (_plot, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_plot, ticks) => ticks.map((tick) => short(tick, this.unit)) }],
        series: [
          { value: (_plot, at) => (at ? clock(at) : ""), label: "UTC" },
          ...this.series.map((each) => ({
            label: each.label,
            stroke: color(each.color),
            fill: each.fill ? color(each.color) + "22" : undefined,
            width: 2,
            points: { show: false },
            value: (_plot, value) => short(value, this.unit) + (value === null ? "" : "/s"),
          })),
        ],
      }, this.data, this.element);
    }

    resize() {
      if (this.plot) this.plot.setSize({ width: this.element.clientWidth, height: this.element.clientHeight });
    }
  }

  const known = new WeakSet();
  function start() {
    for (const element of document.querySelectorAll("[data-chart]")) {
      if (!known.has(element)) { known.add(element); new Live(element); }
    }
  }
  start();
  document.addEventListener("htmx:after:swap", start);
})();
