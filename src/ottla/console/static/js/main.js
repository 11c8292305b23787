// The frame around all pages: navigation, search, and the page for the current address.
import { html, render, useEffect, useState } from "./preact.js";
import { useAnswer } from "./api.js";
import { PAGES } from "./pages.js";
import { address, decoded, Link, match } from "./router.js";
import { Search } from "./search.js";
import { Problem } from "./ui.js";

const SECTIONS = Object.entries(Object.groupBy(PAGES.filter((each) => each.title), (each) => each.section));

const loaded = new Map(); // the functions of pages that were visited

function usePage(entry) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (!entry || loaded.has(entry.path)) return;
    entry.load().then(
      (module) => (loaded.set(entry.path, module[entry.page]), setState({})),
      () => setState({ failed: entry.path }),
    );
  }, [entry?.path]);
  return { Page: entry && loaded.get(entry.path), failed: state.failed === entry?.path };
}

function Current({ pathname, about }) {
  let options = null;
  const entry = PAGES.find((each) => (options = match(each.path, pathname)));
  const { Page, failed } = usePage(entry);
  if (!entry) return html`<h1>There is no such page</h1><p><${Link} to="/">Go to the overview<//></p>`;
  if (failed) return html`<${Problem}>The page cannot be loaded. Is the broker running? Reload to try again.<//>`;
  if (!Page) return html`<p class="loading" role="status">Loading…</p>`;
  return html`<${Page} key=${pathname.split("/").slice(0, 3).join("/")} ...${options} about=${about} readOnly=${about?.read_only} missing=${about?.missing} powers=${about?.missing_powers} />`;
}

function App() {
  const [pathname] = address.value.split("?");
  const [searching, setSearching] = useState(false);
  const about = useAnswer("/console");
  useEffect(() => {
    const open = (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setSearching(true);
      }
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  useEffect(() => {
    const names = pathname.split("/").slice(1).filter(Boolean).map(decoded);
    const title = PAGES.find((each) => each.title && each.path === "/" + (names[0] ?? ""))?.title;
    document.title = [...names.slice(1).reverse(), title, "Ottla console"].filter(Boolean).join(" · ");
  }, [pathname]);
  const isMissing = (entry) => Boolean(about.data?.missing) && entry.section === "Inside";
  const section = "/" + pathname.split("/")[1];
  return html`
    <div class="shell">
      <a class="skip" href="#main">Skip to the page</a>
      <header class="side">
        <${Link} to="/" class="brand"><img src="/icon.svg" alt="" />Ottla<//>
        <button type="button" class="find" onClick=${() => setSearching(true)}>Search <kbd>Ctrl K</kbd></button>
        <nav aria-label="Pages">
          ${SECTIONS.map(
            ([name, entries]) => html`
              <div class="section">
                <span class="section-name">${name}</span>
                ${entries.map((each) => html`<${Link} to=${each.path} aria-current=${section === each.path ? "page" : undefined} class=${isMissing(each) ? "absent" : undefined} title=${isMissing(each) ? "Only the console inside a broker has this page" : undefined}>${each.title}<//>`)}
              </div>
            `,
          )}
        </nav>
        <div class="foot">${about.data && html`Ottla ${about.data.version}${about.data.read_only ? ", read-only" : ""}`}</div>
      </header>
      <main id="main"><${Current} pathname=${pathname} about=${about.data} /></main>
    </div>
    ${searching && html`<${Search} onClose=${() => setSearching(false)} />`}
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
