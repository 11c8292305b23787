// Every request of every client over time; a click shows the whole request.
import { html, useEffect, useMemo, useRef, useState } from "../preact.js";
import { ask, stream, useAnswer } from "../api.js";
import { bytes, count, plural, time } from "../format.js";
import { Tree } from "../content.js";
import { download } from "../download.js";
import { Lanes, SPAN_US, draw, duration, hit, narrow } from "../timeline.js";
import { Missing, Problem } from "../ui.js";

const KEPT = 10000;
const LISTED = 50;

// Requests as they arrive, in order of their numbers. The list is bounded.
function useRequests(paused) {
  const kept = useRef({ byNumber: new Map(), lanes: new Lanes(), ahead_us: 0 });
  const [state, setState] = useState({ round: 0, missed: 0, error: null, live: false });
  useEffect(() => {
    if (paused) return undefined;
    const source = stream("/requests/live");
    source.addEventListener("requests", (event) => {
      const { byNumber, lanes } = kept.current;
      for (const each of JSON.parse(event.data)) {
        byNumber.set(each.number, each);
        lanes.place(each);
      }
      for (const number of byNumber.keys()) {
        if (byNumber.size <= KEPT) break;
        byNumber.delete(number);
      }
      setState((old) => ({ ...old, round: old.round + 1 }));
    });
    source.addEventListener("status", (event) => {
      const { missed, now_us } = JSON.parse(event.data);
      kept.current.ahead_us = now_us - Date.now() * 1000;
      setState((old) => ({ ...old, missed, live: true, error: null }));
    });
    source.onerror = () => setState((old) => ({ ...old, live: false, error: new Error("The connection to the broker is lost. Trying again …") }));
    return () => source.close();
  }, [paused]);
  const clear = () => {
    kept.current.byNumber.clear();
    setState((old) => ({ ...old, round: old.round + 1 }));
  };
  return { ...state, kept: kept.current, clear };
}

function matches(request, words) {
  const text = `${request.api} ${request.client ?? ""} ${request.peer} ${request.errors.join(" ")} ${request.fault ?? ""} ${request.about.join(" ")}`.toLowerCase();
  return words.every((word) => (word.startsWith("-") && word.length > 1 ? !text.includes(word.slice(1)) : text.includes(word)));
}

function Outcome({ request }) {
  if (request.fault) return html`<span class="tag warn">fault: ${request.fault}</span>`;
  if (request.errors.length) return html`<span class="tag bad">${request.errors.join(", ")}</span>`;
  if (request.took_us === null) return html`<span class="tag">waiting</span>`;
  return html`<span class="soft">ok</span>`;
}

function Detail({ number, onClose }) {
  const answer = useAnswer(`/requests/${number}`);
  const found = answer.data;
  return html`
    <section class="panel detail" aria-label="Request in full">
      <div class="bar">
        <h2 class="grow">${found ? `${found.api} v${found.version}` : `Request ${number}`}</h2>
        <button onClick=${answer.reload}>Reload</button><button onClick=${onClose}>Close</button>
      </div>
      <${Problem} error=${answer.error} />
      ${found &&
      html`
        <div class="soft">
          ${time(found.at_us / 1000)}, ${duration(found.took_us)}${found.waited ? " with waiting" : ""}, ${bytes(found.bytes)},
          client <span class="mono">${found.client ?? "–"}</span> at <span class="mono">${found.peer}</span>, broker ${found.broker ?? "–"}
        </div>
        <div><${Outcome} request=${found} /></div>
        <div class="two">
          <div><h3>Request</h3><div class="tree"><${Tree} value=${found.request} deep=${10} /></div></div>
          <div><h3>Response</h3>${found.response ? html`<div class="tree"><${Tree} value=${found.response} deep=${10} /></div>` : html`<p class="soft">There is none yet, or the request gets none.</p>`}</div>
        </div>
      `}
    </section>
  `;
}


// The timeline as an image with the background of the page, to paste into a bug report.
function savePicture() {
  const timeline = document.querySelector(".timeline canvas");
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [timeline.width, timeline.height];
  const pen = picture.getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--surface");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(timeline, 0, 0);
  picture.toBlob((blob) => download(blob, "requests.png"));
}

function Timeline({ shown, kept, paused, span, view, setView, picked, onPick }) {
  const canvas = useRef();
  const [hover, setHover] = useState(null);
  const [moved, setMoved] = useState(null);
  const layout = useMemo(() => kept.lanes.layout(shown), [shown]);
  const current = useRef({});
  const now = () => Date.now() * 1000 + kept.ahead_us;
  const seen = () => current.current.view ?? { start: now() - span.current, end: now() };
  current.current = { shown, layout, view, picked };
  useEffect(() => {
    let frame;
    let last = 0;
    const paint = (at) => {
      frame = requestAnimationFrame(paint);
      // Twenty frames per second look smooth, and leave time for everything else.
      if (at - last < 50 || document.hidden || !canvas.current) return;
      last = at;
      const { shown: requests, layout: places, picked: chosen } = current.current;
      draw(canvas.current, { requests, layout: places, view: seen(), now: now(), picked: chosen });
    };
    frame = requestAnimationFrame(paint);
    return () => cancelAnimationFrame(frame);
  }, []);
  const place = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
  };
  const zoom = (factor, share = 1) => {
    const at = seen();
    const next = narrow(at, factor, at.start + (at.end - at.start) * share);
    span.current = next.end - next.start;
    if (view || paused || share < 1) setView(next);
  };
  useEffect(() => {
    // Registered separately, because only a listener that is not passive may prevent scrolling.
    const wheel = (event) => {
      if (!event.ctrlKey && !event.shiftKey && !event.altKey) return;
      event.preventDefault();
      const { x, width } = place(event);
      zoomRef.current((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, x / width);
    };
    canvas.current.addEventListener("wheel", wheel, { passive: false });
    return () => canvas.current?.removeEventListener("wheel", wheel);
  }, []);
  const zoomRef = useRef();
  zoomRef.current = zoom;
  const move = (event) => {
    const { x, y, width } = place(event);
    if (moved) {
      const shift = ((moved.x - x) / width) * (moved.view.end - moved.view.start);
      if (Math.abs(moved.x - x) > 3) setView({ start: moved.view.start + shift, end: moved.view.end + shift });
      return;
    }
    setHover(hit(shown, layout, seen(), width, now(), x, y));
  };
  const up = (event) => {
    const { x, y, width } = place(event);
    if (moved && Math.abs(moved.x - x) <= 3) {
      const found = hit(shown, layout, seen(), width, now(), x, y);
      if (found) onPick(found.number);
    }
    setMoved(null);
  };
  const keys = (event) => {
    const at = seen();
    const step = (at.end - at.start) / 5;
    if (event.key === "+" || event.key === "=") zoom(0.5, view ? 0.5 : 1);
    else if (event.key === "-") zoom(2, view ? 0.5 : 1);
    else if (event.key === "ArrowLeft") setView({ start: at.start - step, end: at.end - step });
    else if (event.key === "ArrowRight") setView({ start: at.start + step, end: at.end + step });
    else return;
    event.preventDefault();
  };
  return html`
    <div class="bar tools">
      <button aria-label="Zoom in" onClick=${() => zoom(0.5, view ? 0.5 : 1)}>+</button>
      <button aria-label="Zoom out" onClick=${() => zoom(2, view ? 0.5 : 1)}>−</button>
      ${view && html`<button onClick=${() => setView(null)}>Follow</button>`}
      <span class="legend"><i class="bar-ok"></i>served <i class="bar-wait"></i>waiting <i class="bar-bad"></i>error <i class="bar-fault"></i>fault</span>
    </div>
    <div class="panel timeline">
      <canvas
        ref=${canvas}
        style=${{ height: `${layout.height}px` }}
        tabindex="0"
        role="img"
        aria-label=${`Timeline of ${plural(shown.length, "request")} of ${plural(layout.lanes.length, "client")}. Plus and minus zoom, arrows move.`}
        onPointerDown=${(event) => (setMoved({ x: place(event).x, view: seen() }), setHover(null))}
        onPointerMove=${move}
        onPointerUp=${up}
        onPointerLeave=${() => (setHover(null), setMoved(null))}
        onKeyDown=${keys}
        class=${hover ? "over" : ""}
      ></canvas>
    </div>
    <p class="soft hint">${hover ? `${hover.api} v${hover.version}, ${duration(hover.took_us)}${hover.about.length ? `, ${hover.about.join(", ")}` : ""}${hover.errors.length ? `, ${hover.errors.join(", ")}` : ""}` : "Drag to move, Ctrl + wheel to zoom, click a request to see all of it."}</p>
  `;
}

export function Requests({ missing }) {
  if (missing === undefined) return html`<p class="loading">Loading…</p>`;
  if (missing) return html`<h1>Requests</h1><${Missing} reason=${missing}>Every request of every client over time, with its answer.<//>`;
  return html`<${Recorded} />`;
}

function Recorded() {
  const [paused, setPaused] = useState(false);
  const [view, setView] = useState(null);
  const [text, setText] = useState("");
  const [own, setOwn] = useState(false);
  const [picked, setPicked] = useState(null);
  const [problem, setProblem] = useState(null);
  const recorded = useRequests(paused);
  const span = useRef(SPAN_US); // the time span that is shown while the timeline follows new requests
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = useMemo(
    () => [...recorded.kept.byNumber.values()].filter((each) => (own || !each.own) && matches(each, words)),
    [recorded.round, text, own],
  );
  const pause = () => {
    if (paused) return (setPaused(false), setView(null));
    const end = Date.now() * 1000 + recorded.kept.ahead_us;
    setView((old) => old ?? { start: end - span.current, end });
    setPaused(true);
    return undefined;
  };
  const exportShown = async () => {
    try {
      const numbers = new Set(shown.map((each) => each.number));
      const found = (await ask("/requests?decoded=true")).filter((each) => numbers.has(each.number));
      download(new Blob([JSON.stringify(found, null, 1)], { type: "application/json" }), "requests.json");
      setProblem(null);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`
    <h1>Requests</h1>
    <div class="bar">
      <input class="grow" type="search" aria-label="Filter requests" placeholder="Filter: API, client, topic, error; -word leaves out" value=${text} onInput=${(event) => setText(event.target.value)} />
      <label class="inline"><input type="checkbox" checked=${own} onChange=${(event) => setOwn(event.target.checked)} /> the console's own</label>
      <button class=${paused ? "first" : ""} onClick=${pause}>${paused ? "Go on" : "Pause"}</button>
      <button onClick=${recorded.clear}>Clear</button>
      <button disabled=${!shown.length} onClick=${exportShown}>Export</button>
      <button disabled=${!shown.length} onClick=${savePicture}>Save picture</button>
    </div>
    <${Problem} error=${problem ?? (paused ? null : recorded.error)} />
    ${recorded.missed > 0 && html`<p class="notice">${count(recorded.missed)} requests came faster than this page can show and are left out.</p>`}
    <${Timeline} shown=${shown} kept=${recorded.kept} paused=${paused} span=${span} view=${view} setView=${setView} picked=${picked} onPick=${setPicked} />
    ${picked !== null && html`<${Detail} key=${picked} number=${picked} onClose=${() => setPicked(null)} />`}
    <h2>Latest</h2>
    ${!shown.length && html`<div class="panel"><p class="empty">${recorded.kept.byNumber.size && text ? "No request matches." : paused ? "Paused." : "Waiting for requests. They are recorded while this page is open."}</p></div>`}
    ${shown.length > 0 &&
    html`<div class="panel" tabindex="0" role="region" aria-label="Latest requests">
      <table>
        <thead><tr><th scope="col">Time</th><th scope="col">Client</th><th scope="col">Request</th><th scope="col">About</th><th scope="col" class="number">Took</th><th scope="col">Outcome</th></tr></thead>
        <tbody>
          ${shown.slice(-LISTED).reverse().map(
            (each) => html`
              <tr key=${each.number} class="link" onClick=${() => setPicked(each.number)}>
                <td class="mono">${time(each.at_us / 1000).slice(11)}</td>
                <td class="mono">${each.client ?? "–"}</td>
                <td><button class="plain" onClick=${() => setPicked(each.number)}>${each.api} v${each.version}</button></td>
                <td class="mono">${each.about.join(", ")}</td>
                <td class="number">${duration(each.took_us)}</td>
                <td><${Outcome} request=${each} /></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>`}
  `;
}
