// Signing in and out. The token is sent once; the node answers with an HttpOnly cookie.
import { html, useState } from "./lib-html.js";
import { ApiError, request } from "./lib-api.js";
import { session, sessionExpired } from "./lib-access.js";
import { useAction } from "./lib-load.js";
import { Dialog } from "./lib-dialog.js";
import { Button, ErrorNotice, TextField } from "./lib-ui.js";

/** Asks the node who uses the console. */
export async function loadSession() {
  try {
    session.value = await request("GET", "/v1/auth/whoami");
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    session.value = { signedOut: true };
  }
}

export async function signOut() {
  await request("DELETE", "/v1/session");
  session.value = { signedOut: true };
}

function SignInForm() {
  const [token, setToken] = useState("");
  const action = useAction(async () => {
    session.value = await request("POST", "/v1/session",
      { headers: { authorization: `Bearer ${token.trim()}` } });
    sessionExpired.value = false;
  });
  const submit = (event) => {
    event.preventDefault();
    action.run();
  };
  return html`<form class="stack" onSubmit=${submit}>
    <${TextField} label="Token" type="password" value=${token} onInput=${setToken} mono required
      hint="It begins with tdl_. The browser keeps it for 12 hours, where scripts cannot read it." />
    <${ErrorNotice} error=${action.error} />
    <div><${Button} type="submit" kind="primary" busy=${action.busy}
      disabled=${token.trim() === ""}>Sign in<//></div>
  </form>`;
}

export function SignInPage() {
  return html`<main class="sign-in"><h1><img src="icon.svg" alt="" width="28" height="28" /> Tidelock</h1>
    <p class="muted">This cluster requires authentication.</p><${SignInForm} /></main>`;
}

/** Over the page, so that its input stays. */
export function SignInDialog() {
  return html`<${Dialog} title="The session has ended">
    <p class="muted">Sign in again. What you have typed stays; send it again afterwards.</p><${SignInForm} />
      <//>`;
}
