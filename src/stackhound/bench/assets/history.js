"use strict";

const HEIGHT = 220; // px
const history_ = JSON.parse(document.getElementById("history").textContent);
const drawn = [];

// An element with text and children. Text is never read as HTML.
function make(tag, text, ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.append(...children);
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A value with its unit, with three digits that count. `scales` are [least value, name], the largest first.
function amount(value, scales) {
  if (value === null || value === undefined) return "";
  const [least, name] = scales.find(([least]) => Math.abs(value) >= least) ?? scales.at(-1);
  return `${(value / least).toLocaleString("en-US", { maximumSignificantDigits: 3 })} ${name}`.trimEnd();
}

// What is known of the run under the pointer.
function runText(series, index) {
  if (index === null || index === undefined) return "";
  return [`${index + 1}`, series.commits[index], series.times[index].replace("T", " ").slice(0, 16)]
    .filter(Boolean)
    .join(" · ");
}

// A line at the first run of each new kind.
function drawChanges(plot, series) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("change");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at } of series.changes) {
    const x = Math.round(plot.valToPos(at + 0.5, "x", true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(series, width, fromZero) {
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("grid") }, ticks: { stroke: colour("grid") } };
  const range = (_, low, high) => uPlot.rangeNum(fromZero ? Math.min(0, low) : low, high, 0.1, true);
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: false, range: [0.5, series.values.length + 0.5] }, y: { range } },
    axes: [axis, { ...axis, size: 90, values: (_, ticks) => ticks.map((tick) => amount(tick, series.scales)) }],
    series: [
      { label: "run", value: (_plot, _value, _series, index) => runText(series, index) },
      {
        label: series.measure,
        stroke: colour("curve"),
        width: 1.5,
        points: { show: true, size: 5 },
        value: (_, value) => amount(value, series.scales),
      },
    ],
    hooks: { draw: [(plot) => drawChanges(plot, series)] },
  };
}

function describeChange(series, change) {
  const where = [`run ${change.at + 1}`, series.commits[change.at]].filter(Boolean).join(", ");
  return make("li", "", make("b", change.text), document.createTextNode(` since ${where}`));
}

function show(series, parent) {
  const where = [series.branch, series.testbed].filter(Boolean).join(" · ");
  const curve = make("div", "");
  const list = make("ul", "", ...series.changes.map((change) => describeChange(series, change)));
  list.className = "changes";
  const heading = make("h2", `${series.benchmark} · ${series.measure} `, make("small", where));
  const section = make("section", "", heading, list, curve);
  parent.append(section);
  drawn.push({ series, section, curve, plot: null });
}

function redraw() {
  const wanted = document.getElementById("filter").value.toLowerCase();
  const fromZero = document.getElementById("zero").checked;
  for (const one of drawn) {
    const { series, section, curve } = one;
    const names = [series.benchmark, series.measure, series.branch, series.testbed].join(" ").toLowerCase();
    section.hidden = !names.includes(wanted);
    one.plot?.destroy();
    one.plot = null;
    if (section.hidden) continue;
    const runs = series.values.map((_, index) => index + 1);
    one.plot = new uPlot(options(series, section.clientWidth, fromZero), [runs, series.values], curve);
  }
}

const curves = document.getElementById("curves");
for (const series of history_) show(series, curves);
if (!history_.length) curves.append(make("p", "Nothing was added yet."));
document.getElementById("filter").addEventListener("input", redraw);
document.getElementById("zero").addEventListener("change", redraw);
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
redraw();
