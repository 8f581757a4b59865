// One chart of the Metrics screen, drawn by uPlot, which is loaded when the first chart is shown. It owns the
// canvas and its size; the numbers are in the table of the screen as well.
import { html, useEffect, useRef, useState } from "./lib-html.js";

const HEIGHT_PX = 150;
const HOUR_S = 3600;
const POINTS_MAX = 30;
const DARK = matchMedia("(prefers-color-scheme: dark)");

function loadStyle() {
  if (document.querySelector("link[href='vendor-uplot.css']")) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = "vendor-uplot.css";
  document.head.append(link);
}

const clockTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString("sv").slice(0, 5);

/** Resolves a variable of the style sheet, which may depend on the theme, to a colour. */
function colorOf(element, name) {
  element.style.color = `var(${name})`;
  return getComputedStyle(element).color;
}

function options({ lines, format }, element) {
  const color = (name) => colorOf(element, name);
  const axis = {
    stroke: color("--chart-text"),
    grid: { stroke: color("--chart-grid"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: element.clientWidth,
    height: HEIGHT_PX,
    padding: [10, 10, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, sync: { key: "metrics" } },
    scales: {
      x: { range: (_, from, to) => [Math.min(from, to - HOUR_S), to] },
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, space: 70, size: 26, values: (_, times) => times.map(clockTime) },
      { ...axis, size: 58, space: 34, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...lines.map((line, at) => ({
      label: line.label,
      stroke: color(`--chart-${at + 1}`),
      width: 1.5,
      spanGaps: false,
      points: { show: (plot) => plot.data[0].length <= POINTS_MAX, size: 4 },
    }))],
  };
}

/** Draws `lines`, [{ label, values }], over `times` in seconds. `onCursor` gets the hovered index. */
export function Chart({ times, lines, format, onCursor }) {
  const place = useRef(null);
  const chart = useRef(null);
  const [isDark, setDark] = useState(DARK.matches);
  const latestCursor = useRef(onCursor);
  latestCursor.current = onCursor;

  useEffect(() => {
    const onChange = () => setDark(DARK.matches);
    DARK.addEventListener("change", onChange);
    return () => DARK.removeEventListener("change", onChange);
  }, []);

  useEffect(() => {
    let removed = false;
    const observer = new ResizeObserver(([entry]) => {
      chart.current?.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT_PX });
    });
    loadStyle();
    import("uplot").then(({ default: Plot }) => {
      if (removed) return;
      const chosen = options({ lines, format }, place.current);
      chosen.hooks = { setCursor: [(plot) => latestCursor.current(plot.cursor.idx ?? null)] };
      chart.current = new Plot(chosen, [times, ...lines.map((line) => line.values)], place.current);
      observer.observe(place.current);
    });
    return () => {
      removed = true;
      observer.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [isDark, lines.length]);

  useEffect(() => {
    chart.current?.setData([times, ...lines.map((line) => line.values)]);
  }, [times, lines]);

  return html`<div class="chart-canvas" ref=${place} aria-hidden="true"></div>`;
}
