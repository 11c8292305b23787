// A line over time, drawn by uPlot in the colours of the page.
import { html, useEffect, useRef } from "./preact.js";
import UPlot from "../vendor/uplot.js";

const SECONDS_MIN = 60;

// The time range of the data. For a single point, uPlot itself would show a whole day.
function timeRange(plot) {
  const times = plot.data[0];
  const end = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? end, end - SECONDS_MIN), end];
}

export function Plot({ data, name, height = 180 }) {
  const box = useRef();
  const plot = useRef();
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
    const accent = style.getPropertyValue("--accent");
    const element = box.current;
    plot.current = new UPlot(
      {
        width: element.clientWidth,
        height,
        cursor: { y: false },
        legend: { show: false },
        scales: { x: { range: timeRange }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
        axes: [{ ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toTimeString().slice(0, 8)), space: 80 }, { ...axis, size: 70 }],
        series: [{}, { label: name, stroke: accent, width: 2, fill: accent.trim() + "22" }],
      },
      data,
      element,
    );
    const resize = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="panel" ref=${box} role="img" aria-label=${`${name} over time, now ${data[1].at(-1) ?? "unknown"}`}></div>`;
}
