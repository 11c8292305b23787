// The frame around all pages: navigation, search, and the page that the address names.
import { html, render, useEffect, useState } from "./preact.js";
import { ask, useAnswer } from "./api.js";
import { address, Link, match } from "./router.js";
import { Search } from "./search.js";
import { Overview } from "./pages/overview.js";
import { Topics } from "./pages/topics.js";
import { Topic } from "./pages/topic.js";
import { Groups } from "./pages/groups.js";
import { Group } from "./pages/group.js";
import { Requests } from "./pages/requests.js";
import { Storage } from "./pages/storage.js";
import { Powers } from "./pages/powers.js";

const PAGES = [
  ["/", Overview, "Overview"],
  ["/topics", Topics, "Topics"],
  ["/topics/:topic", Topic],
  ["/topics/:topic/:tab", Topic],
  ["/topics/:topic/partitions/:partition", Storage],
  ["/groups", Groups, "Groups"],
  ["/groups/:group", Group],
  ["/requests", Requests, "Requests"],
  ["/powers", Powers, "Powers"],
];

function NotFound() {
  return html`<h1>There is no such page</h1><p><${Link} to="/">Go to the overview<//></p>`;
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
  let Page = NotFound;
  let options = {};
  for (const [pattern, candidate] of PAGES) {
    const found = match(pattern, pathname);
    if (found) {
      [Page, options] = [candidate, found];
      break;
    }
  }
  const section = "/" + pathname.split("/")[1];
  return html`
    <div class="shell">
      <div class="side">
        <${Link} to="/" class="brand"><img src="/icon.svg" alt="" />Ottla<//>
        <nav aria-label="Pages">
          ${PAGES.filter(([, , name]) => name).map(
            ([to, , name]) =>
              html`<${Link} to=${to} aria-current=${section === to ? "page" : undefined}>${name}<//>`,
          )}
        </nav>
        <button type="button" onClick=${() => setSearching(true)}>Search <span class="soft">Ctrl K</span></button>
        <div class="foot">${about.data && html`Ottla ${about.data.version}${about.data.read_only ? ", read-only" : ""}`}</div>
      </div>
      <main><${Page} key=${pathname.split("/").slice(0, 3).join("/")} ...${options} readOnly=${about.data?.read_only} missing=${about.data?.missing} powers=${about.data?.missing_powers} /></main>
    </div>
    ${searching && html`<${Search} onClose=${() => setSearching(false)} />`}
  `;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
