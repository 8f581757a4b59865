// Metrics: the last hour of the node that serves the page, as charts or as a table. It owns the last answer
// and what is hovered; gaps stay gaps.
import { html, useMemo, useState } from "./lib-html.js";
import { useLoad } from "./lib-load.js";
import { href, route } from "./lib-router.js";
import { VirtualTable } from "./lib-table.js";
import { bytes, count, plural } from "./lib-text.js";
import { Empty, Loaded, PageHead, Tabs } from "./lib-ui.js";
import { formatDuration, loadPlainJson } from "./lib-ops.js";
import { Chart } from "./metrics-chart.js";

const POLL_MS = 10_000;
const HOUR_MS = 3_600_000;

const decimal = (number) => number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 2
  : number < 100 ? 1 : 0 });
const milliseconds = (number) => `${decimal(number)} ms`;

const CHARTS = [
  { title: "Requests", unit: "per second", format: decimal, lines: [["requests_per_s", "requests"]] },
  { title: "Errors", unit: "per second", format: decimal, lines: [["errors_per_s", "errors"]] },
  { title: "Duration of requests", unit: "", format: milliseconds,
    lines: [["request_p50_ms", "median"], ["request_p99_ms", "99th percentile"]] },
  { title: "Duration of fsync", unit: "", format: milliseconds,
    lines: [["fsync_mean_ms", "mean"]] },
  { title: "Lag of applying", unit: "entries", format: decimal, lines: [["apply_lag_entries",
    "entries committed and not applied"]] },
  { title: "Memory", unit: "", format: bytes, lines: [["memory_bytes", "memory"]] },
  { title: "Connections and watchers", unit: "", format: decimal,
    lines: [["connections", "connections"], ["watchers", "watchers"]] },
];

/** The answer as { times, stepS, series: Map of name to values }; times in seconds, oldest first. */
function read({ step_s: stepS, end_unix_ms: endUnixMs, series }) {
  const length = Math.max(0, ...series.map(({ values }) => values.length));
  const times = Array.from({ length }, (_, at) => endUnixMs / 1000 - (length - 1 - at) * stepS);
  return { times, stepS, series: new Map(series.map(({ name, values }) => [name, values])) };
}

export default function Metrics() {
  const load = useLoad((signal) => loadPlainJson("/v1/metrics/history", signal), [], { poll_ms: POLL_MS });
  const view = route.value.params.view === "table" ? "table" : "charts";
  const history = useMemo(() => load.data && read(load.data), [load.data]);
  return html`<${PageHead} title="Metrics"><p class="muted">The last hour of the node that serves this page,
    measured by the
      node itself. <a href="/metrics">Numbers for Prometheus</a></p><//>
    <${Tabs} label="View" current=${view} items=${[
      { id: "charts", label: "Charts", link: href(["metrics"]) },
      { id: "table", label: "Table", link: href(["metrics"], { view: "table" }) },
    ]} />
    <${Loaded} load=${load} render=${() => (history.times.length === 0
      ? html`<${Empty} title="Nothing measured yet">The first values appear within a minute.<//>`
      : html`<${Coverage} history=${history} />${view === "charts"
        ? html`<div class="charts">${CHARTS.map((chart) => html`<${ChartCard} key=${chart.title}
          chart=${chart} history=${history} />`)}</div>`
        : html`<${HistoryTable} history=${history} />`}`)} />`;
}

/** Says how much of the hour was measured: a node that was down or has just started has gaps. */
function Coverage({ history: { times, stepS, series } }) {
  const measuredMs = times.length * stepS * 1000;
  const all = [...series.values()];
  const missing = times.filter((_, at) => all.every((values) => (values[at] ?? null) === null)).length;
  const window = measuredMs < HOUR_MS ? ` of the last ${formatDuration(measuredMs)}` : "";
  const missingMs = missing * stepS * 1000;
  const amount = `${plural(missing, "value")} of ${count(times.length)} (${formatDuration(missingMs)})`;
  const gaps = missing === 0 ? "There are no gaps." : `${amount} were not measured, and are gaps.`;
  const sentence = `One value for each ${stepS} seconds${window}. ${gaps}`;
  return html`<p class="muted small metrics-coverage" role="status">${sentence}</p>`;
}

const lastValue = (values) => values.findLast((value) => value !== null) ?? null;

function ChartCard({ chart, history }) {
  const [cursor, setCursor] = useState(null);
  const lines = useMemo(() => chart.lines.map(([name, label]) =>
    ({ label, values: history.series.get(name) ?? history.times.map(() => null) })), [history]);
  const isEmpty = lines.every(({ values }) => lastValue(values) === null);
  const at = (values) => (cursor === null ? lastValue(values) : values[cursor]);
  const time = cursor === null ? "latest" : new Date(history.times[cursor] * 1000).toLocaleTimeString("sv");
  return html`<section class="card chart" aria-label=${chart.title}>
    <div class="chart-head"><h2>${chart.title}${chart.unit && html` <span
      class="muted chart-unit">${chart.unit}</span>`}</h2>
      <span class="muted small">${time}</span></div>
    <ul class="chart-legend">${lines.map(({ label, values }, index) => html`<li><span
      class="swatch swatch-${index + 1}"
      aria-hidden="true"></span><span class="muted">${label}</span> <strong>${at(values) === null
        ? "not measured" : chart.format(at(values))}</strong></li>`)}</ul>
    ${isEmpty
      ? html`<p class="muted chart-empty">Not measured in the last hour.</p>`
      : html`<${Chart} times=${history.times} lines=${lines} format=${chart.format} onCursor=${setCursor} />`}
    <p class="hidden-label">${lines.map((line) => summary(line, chart.format)).join(" ")}</p>
  </section>`;
}

function summary({ label, values }, format) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return `${label}: not measured.`;
  const [lowest, highest] = [Math.min(...known), Math.max(...known)].map(format);
  return `${label}: lowest ${lowest}, highest ${highest} in the last hour.`;
}

function HistoryTable({ history }) {
  const rows = history.times.map((time, at) => ({ time, at })).reverse();
  const columns = [
    { label: "Time", width: "100px", render: ({ time }) => new Date(time * 1000).toLocaleTimeString("sv") },
    ...CHARTS.flatMap(({ title, lines, format, unit }) => lines.map(([name, label]) => ({
      label: lines.length > 1 ? `${title}: ${label}` : `${title}${unit && `, ${unit}`}`,
      class: "number metrics-column",
      width: "150px",
      render: ({ at }) => {
        const value = history.series.get(name)?.[at] ?? null;
        return value === null ? html`<span class="muted">gap</span>` : format(value);
      },
    }))),
  ];
  return html`<div class="metrics-table"><${VirtualTable} label="The last hour, the newest first"
    columns=${columns} rows=${rows}
    rowKey=${({ time }) => time} row_px=${32} /></div>`;
}
