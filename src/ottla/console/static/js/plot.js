// A line over time, drawn by uPlot, which follows the colours of the page.
import { html, useEffect, useRef } from "./preact.js";
import UPlot from "../vendor/uplot.js";

const HEIGHT = 180;
const SECONDS_MIN = 60;

function timeRange(_, low, high) {
  const end = high ?? Date.now() / 1000;
  return [Math.min(low ?? end, end - SECONDS_MIN), end];
}

export function Plot({ data, name }) {
  const box = useRef();
  const plot = useRef();
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
    const accent = style.getPropertyValue("--accent");
    plot.current = new UPlot(
      {
        width: box.current.clientWidth,
        height: HEIGHT,
        cursor: { y: false },
        legend: { show: false },
        scales: { x: { range: timeRange }, y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
        axes: [axis, { ...axis, size: 70 }],
        series: [{}, { label: name, stroke: accent, width: 2, fill: accent.trim() + "22" }],
      },
      data,
      box.current,
    );
    const resize = new ResizeObserver(() => plot.current.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    resize.observe(box.current);
    return () => {
      resize.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="panel" ref=${box} role="img" aria-label=${`${name} over time, now ${data[1].at(-1) ?? "unknown"}`}></div>`;
}
