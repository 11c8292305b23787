// Requests drawn over time on a canvas: one lane per client, with one row per connection.
const ROW = 14;
const LANE_HEAD = 20;
const AXIS = 22;
const BAR_MIN = 3;
const SPAN_MIN_US = 50;
const STEPS = [1, 2, 5];

export const SPAN_US = 10e6;

// Groups requests into lanes. Lanes keep their position while the page is open, so that nothing jumps.
export class Lanes {
  constructor() {
    this.lanes = new Map();
  }

  place(request) {
    const name = request.client || "(no client id)";
    let lane = this.lanes.get(name);
    if (!lane) this.lanes.set(name, (lane = { name, rows: new Map() }));
    const peer = `${request.broker} ${request.peer}`;
    if (!lane.rows.has(peer)) lane.rows.set(peer, lane.rows.size);
  }

  // The lanes of the given requests, with the position where each begins.
  layout(requests) {
    const used = new Map();
    for (const each of requests) {
      const name = each.client || "(no client id)";
      let peers = used.get(name);
      if (!peers) used.set(name, (peers = new Map()));
      const peer = `${each.broker} ${each.peer}`;
      const end = each.took_us === null ? Infinity : each.at_us + each.took_us;
      const times = peers.get(peer);
      if (!times) peers.set(peer, { start: each.at_us, end });
      else times.end = Math.max(times.end, end);
    }
    const found = [];
    let top = AXIS;
    for (const [name] of this.lanes) {
      if (!used.has(name)) continue;
      const rows = rowsOf(used.get(name));
      const height = LANE_HEAD + (Math.max(...rows.values()) + 1) * ROW + 6;
      found.push({ name, rows, top, height });
      top += height;
    }
    return { lanes: found, byName: new Map(found.map((lane) => [lane.name, lane])), height: Math.max(top, 120) };
  }
}

// One row per connection. A connection that begins after another one ended reuses its row.
function rowsOf(peers) {
  const ends = [];
  const rows = new Map();
  for (const [peer, { start, end }] of peers) {
    const free = ends.findIndex((each) => each < start);
    const row = free < 0 ? ends.length : free;
    ends[row] = end;
    rows.set(peer, row);
  }
  return rows;
}

function tickStep(span, width) {
  const wanted = (span / width) * 110;
  let step = 1;
  for (;;) {
    for (const each of STEPS) if (step * each >= wanted) return step * each;
    step *= 10;
  }
}

export function duration(us) {
  if (us === null) return "waiting";
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
}

function clock(us, step) {
  const at = new Date(us / 1000);
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const seconds = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  if (step >= 1e6) return seconds;
  const fraction = String(Math.floor(us % 1e6)).padStart(6, "0");
  return `${seconds}.${step >= 1000 ? fraction.slice(0, 3) : fraction}`;
}

function place(request, layout, view, width, now) {
  const lane = layout.byName.get(request.client || "(no client id)");
  if (!lane) return null;
  const scale = width / (view.end - view.start);
  const end = request.took_us === null ? now : request.at_us + request.took_us;
  const x = (request.at_us - view.start) * scale;
  const length = Math.max(BAR_MIN, (end - request.at_us) * scale);
  if (x > width || x + length < 0) return null;
  return { x, length, y: lane.top + LANE_HEAD + lane.rows.get(`${request.broker} ${request.peer}`) * ROW };
}

export function hit(requests, layout, view, width, now, x, y) {
  for (let index = requests.length - 1; index >= 0; index -= 1) {
    const at = place(requests[index], layout, view, width, now);
    if (at && x >= at.x - 2 && x <= at.x + at.length + 2 && y >= at.y && y < at.y + ROW) return requests[index];
  }
  return null;
}

export function draw(canvas, { requests, layout, view, now, picked }) {
  const width = canvas.clientWidth;
  const height = layout.height;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const [line, soft, text, accent, accentSoft, bad, warn] = ["line", "soft", "text", "accent", "accent-soft", "bad", "warn"].map(colour);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";

  const span = view.end - view.start;
  const step = tickStep(span, width);
  pen.fillStyle = soft;
  pen.strokeStyle = line;
  pen.lineWidth = 1;
  for (let at = Math.ceil(view.start / step) * step; at < view.end; at += step) {
    const x = Math.round(((at - view.start) / span) * width) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, height);
    pen.stroke();
    if (x + 70 < width) pen.fillText(clock(at, step), x + 3, 9);
  }
  for (const lane of layout.lanes) {
    pen.strokeStyle = line;
    pen.beginPath();
    pen.moveTo(0, lane.top + 0.5);
    pen.lineTo(width, lane.top + 0.5);
    pen.stroke();
  }

  // Failed requests are drawn last, so that nothing hides them.
  const troubled = requests.filter((each) => each.fault || each.errors.length);
  for (const each of troubled.length ? [...requests, ...troubled] : requests) {
    const at = place(each, layout, view, width, now);
    if (!at) continue;
    const failed = each.errors.length > 0;
    const main = each.fault ? warn : failed ? bad : accent;
    if (each.waited || each.took_us === null) {
      pen.fillStyle = each.fault || failed ? main : accentSoft;
      pen.globalAlpha = each.fault || failed ? 0.35 : 1;
      pen.fillRect(at.x, at.y + 2, at.length, ROW - 4);
      pen.globalAlpha = 1;
      pen.strokeStyle = main;
      pen.strokeRect(at.x + 0.5, at.y + 2.5, Math.max(1, at.length - 1), ROW - 5);
    } else {
      pen.fillStyle = main;
      pen.fillRect(at.x, at.y + 2, at.length, ROW - 4);
    }
    const begin = Math.max(at.x, 0);
    const visible = at.x + at.length - begin;
    if (visible > 46) {
      pen.fillStyle = each.waited || each.took_us === null ? text : colour("surface");
      pen.save();
      pen.beginPath();
      pen.rect(begin, at.y, visible - 4, ROW);
      pen.clip();
      pen.font = "10px system-ui, sans-serif";
      pen.fillText(`${each.api} v${each.version}`, begin + 4, at.y + ROW / 2);
      pen.restore();
    }
    if (picked === each.number) {
      pen.strokeStyle = text;
      pen.lineWidth = 2;
      pen.strokeRect(at.x - 1, at.y + 1, at.length + 2, ROW - 2);
      pen.lineWidth = 1;
    }
  }
  pen.fillStyle = text;
  for (const lane of layout.lanes) pen.fillText(lane.name, 6, lane.top + LANE_HEAD / 2 + 1);
}

export const narrow = (view, factor, around) => {
  const middle = around ?? view.end;
  const span = Math.max(SPAN_MIN_US, Math.min(3600e6, (view.end - view.start) * factor));
  const share = (middle - view.start) / (view.end - view.start);
  return { start: middle - span * share, end: middle + span * (1 - share) };
};
