// The shell: session, navigation and the screen of the route. Screens are modules that are loaded when first
// shown.
import { Component, html, render, useEffect, useRef, useState } from "./lib-html.js";
import { may, mayAny, session, sessionExpired } from "./lib-access.js";
import { useAction, useLoad } from "./lib-load.js";
import { href, route } from "./lib-router.js";
import { Button, ErrorNotice, Loading, Notice, Toasts } from "./lib-ui.js";
import { Name } from "./lib-text.js";
import { SignInDialog, SignInPage, loadSession, signOut } from "./sign-in.js";

const screens = [
  { id: "overview", label: "Overview", load: () => import("./screen-overview.js"),
    isAllowed: () => may("cluster:read") },
  { id: "config", label: "Configuration", load: () => import("./screen-config.js"),
    isAllowed: () => mayAny("read", "config") },
  { id: "keys", label: "Keys", load: () => import("./screen-keys.js"),
    isAllowed: () => mayAny("read", "keys") },
  { id: "watch", label: "Watch", load: () => import("./screen-watch.js"),
    isAllowed: () => mayAny("watch", "keys") || mayAny("read", "config") },
  { id: "cluster", label: "Cluster", load: () => import("./screen-cluster.js"),
    isAllowed: () => may("cluster:read") },
  { id: "metrics", label: "Metrics", load: () => import("./screen-metrics.js"),
    isAllowed: () => may("cluster:read") },
  { id: "access", label: "Access", load: () => import("./screen-access.js"),
    isAllowed: () => may("cluster:admin") },
  { id: "audit", label: "Audit", load: () => import("./screen-audit.js"),
    isAllowed: () => may("cluster:admin") },
  { id: "backups", label: "Backups", load: () => import("./screen-backups.js"),
    isAllowed: () => may("cluster:admin") },
];

/** Keeps the shell usable when a screen fails. */
class Boundary extends Component {
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return html`<${Notice} kind="error" title="This page failed"
      actions=${html`<${Button} onClick=${() => this.setState({ error: null })}>Try again<//>`}>
        ${String(this.state.error)}<//>`;
  }
}

function Account() {
  const action = useAction(signOut);
  const who = session.value;
  return html`<div class="account">
    ${who.principal ? html`<${Name} value=${who.principal} />`
      : html`<span class="muted">Not signed in</span>`}
    ${who.token && html`<${Button} kind="quiet" onClick=${action.run} busy=${action.busy}>Sign out<//>`}
    <${ErrorNotice} error=${action.error} />
  </div>`;
}

function Navigation({ current, allowed }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [route.value]);
  return html`<header class="sidebar">
    <div class="brand"><img src="icon.svg" alt="" width="22" height="22" /><span>Tidelock</span>
      <button type="button" class="menu-button button" aria-expanded=${isOpen} aria-controls="navigation"
        onClick=${() => setOpen(!isOpen)}>Menu</button></div>
    <div id="navigation" class=${isOpen ? "navigation navigation-open" : "navigation"}>
      <nav aria-label="Main"><ul>${allowed.map((screen) => html`<li><a href=${href([screen.id])}
        aria-current=${screen.id === current ? "page" : undefined}>${screen.label}</a></li>`)}</ul></nav>
      <${Account} />
    </div>
  </header>`;
}

function Screen({ screen }) {
  const loaded = useLoad(() => screen.load(), [screen]);
  if (loaded.error) {
    const retry = html`<${Button} onClick=${() => location.reload()}>Reload<//>`;
    return html`<${ErrorNotice} error=${loaded.error} actions=${retry} />`;
  }
  return loaded.data ? html`<${loaded.data.default} />` : html`<${Loading} />`;
}

function Shell() {
  const allowed = screens.filter((screen) => screen.isAllowed());
  const wanted = route.value.screen;
  const screen = wanted === "" ? allowed[0] : allowed.find((entry) => entry.id === wanted);
  const content = useRef(null);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = screen ? `${screen.label} · Tidelock` : "Tidelock";
    if (!isFirst.current) content.current.focus();
    isFirst.current = false;
  }, [screen]);
  return html`<a class="skip-link" href="#content" onClick=${(event) => {
    event.preventDefault();
    content.current.focus();
  }}>Skip to the content</a>
  <div class="shell">
    <${Navigation} current=${screen?.id} allowed=${allowed} />
    <main id="content" tabindex="-1" ref=${content}>
      ${screen
        ? html`<${Boundary} key=${screen.id}><${Screen} screen=${screen} /><//>`
        : html`<${Notice} kind="warn" title=${allowed.length === 0
          ? "Your grants allow no page of the console" : "There is no such page"}>
            ${allowed.length > 0 && html`It does not exist, or your grants do not allow it.`}<//>`}
    </main>
  </div>
  <${Toasts} />
  ${sessionExpired.value && html`<${SignInDialog} />`}`;
}

function App() {
  const start = useLoad(() => loadSession().then(() => true), []);
  if (session.value?.signedOut) return html`<${SignInPage} />`;
  if (session.value) return html`<${Shell} />`;
  if (!start.error) return html`<${Loading} label="Connecting…" />`;
  const retry = html`<${Button} onClick=${start.reload}>Try again<//>`;
  return html`<main class="sign-in"><${ErrorNotice} error=${start.error} actions=${retry} /></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
