// Backups: make one and download it, verify a file, and how to restore. It owns the running transfer; each
// backup is verified while it arrives, because only a reader of the format can tell that it is whole.
import { html, useEffect, useRef, useState } from "./lib-html.js";
import { ApiError, send } from "./lib-api.js";
import { Time, bytes, count, plural } from "./lib-text.js";
import { Button, ErrorNotice, Facts, Notice, PageHead, Section } from "./lib-ui.js";
import { BackupVerifier } from "./backup-verifier.js";
import { fileStamp, saveFile } from "./lib-ops.js";

const REFRESH_MS = 200;

/** Reads a stream to its end through the verifier: { facts, pieces }. `onBytes` is told the progress. */
async function readBackup(stream, onBytes, { keep }) {
  const verifier = new BackupVerifier();
  const pieces = [];
  const reader = stream.getReader();
  let read = 0;
  let toldAt = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    verifier.push(value);
    if (keep) pieces.push(value);
    read += value.length;
    if (Date.now() - toldAt > REFRESH_MS) {
      toldAt = Date.now();
      onBytes(read);
    }
  }
  return { facts: verifier.finish(), pieces };
}

const asProblem = (error) => (error instanceof ApiError ? error
  : new ApiError({ title: "The backup is not usable", detail: error.message, status: 0 }));

/** One transfer at a time: { state, start, cancel }. */
function useTransfer() {
  const [state, setState] = useState({ kind: "idle" });
  const controller = useRef(null);
  useEffect(() => () => controller.current?.abort(), []);
  const start = async (run) => {
    controller.current = new AbortController();
    const { signal } = controller.current;
    setState({ kind: "running", read: 0 });
    try {
      const result = await run(signal, (read) => !signal.aborted && setState({ kind: "running", read }));
      setState({ kind: "done", ...result });
    } catch (error) {
      setState(signal.aborted ? { kind: "idle" } : { kind: "failed", error: asProblem(error) });
    }
  };
  return { state, start, cancel: () => controller.current?.abort() };
}

async function download(signal, onBytes) {
  const response = await send("GET", "/v1/backup", { signal });
  const { facts, pieces } = await readBackup(response.body, onBytes, { keep: true });
  const name = `tidelock-${fileStamp()}.backup`;
  saveFile(name, new Blob(pieces));
  return { facts, name };
}

export default function Backups() {
  return html`<${PageHead} title="Backups"><p class="muted">A backup is the state of every shard in one file,
    with everything that
      was acknowledged before it was asked for. Roles, principals and tokens are not in it.</p><//>
    <div class="backups"><${Make} /><${Verify} /><${Restore} /></div>`;
}

function Make() {
  const { state, start, cancel } = useTransfer();
  return html`<${Section} title="Make a backup">
    <p>The file is verified while it arrives, and saved only if it is whole. The browser keeps all of it
      until then: use <code>tidelock backup save</code> for backups of many gigabytes and for those that a
      schedule makes.</p>
    <div class="row"><${Button} kind="primary" busy=${state.kind === "running"} onClick=${() =>
      start(download)}>Make and download<//>
      <${Progress} state=${state} onCancel=${cancel} /></div>
    <${Outcome} state=${state} title=${`Saved as ${state.name}`} />
    <pre class="card">tidelock backup save --out tidelock.backup</pre><//>`;
}

function Verify() {
  const { state, start, cancel } = useTransfer();
  const choose = (event) => {
    const [file] = event.currentTarget.files;
    if (!file) return;
    start(async (_, onBytes) => ({ ...await readBackup(file.stream(), onBytes, { keep: false }),
      name: file.name }));
  };
  return html`<${Section} title="Verify a backup">
    <p>Reads a file on this machine and checks its checksums and totals. Nothing is sent to the
      node. The command <code>tidelock backup verify</code> also decodes every key.</p>
    <div class="row"><label class="file"><span>Backup file</span><input type="file"
      onChange=${choose} /></label>
      <${Progress} state=${state} onCancel=${cancel} /></div>
    <${Outcome} state=${state} title=${`${state.name} is an intact backup`} />
    <pre class="card">tidelock backup verify tidelock.backup</pre><//>`;
}

const Progress = ({ state, onCancel }) => state.kind === "running" && html`<span class="muted"
  role="status">${
  state.read === 0 ? "The snapshots are being made…" : `${bytes(state.read)} read`}</span>
  <${Button} kind="quiet" onClick=${onCancel}>Cancel<//>`;

function Outcome({ state, title }) {
  if (state.kind === "failed") return html`<${ErrorNotice} error=${state.error} />`;
  if (state.kind !== "done") return null;
  const { header, shards, records, bytes: size } = state.facts;
  return html`<${Notice} kind=${header.stale ? "warn" : "ok"} title=${title}>
    <${Facts} items=${[
      ["Begun", html`<${Time} ms=${header.begunUnixMs} full />`],
      ["Size", bytes(size)],
      ["Shards", count(shards)],
      ["Records", plural(records, "key or host", "keys and hosts")],
      ["Cluster", html`<code>${header.cluster}</code>`],
      header.stale && ["Stale", "It holds what its nodes had applied, without consensus."],
    ]} /><//>`;
}

function Restore() {
  return html`<${Section} title="Restore">
    <p>A backup is restored into a new, empty cluster by the command line, which verifies the whole file
      before it stores anything.
      The hosts and the permissions are those of the new cluster.</p>
    <pre class="card">tidelock backup restore tidelock.backup --url http://NEW-NODE:8001</pre>
    <p class="muted">Keep clients away from the new cluster until <code>tidelock cluster
      status --verify</code> has succeeded. If the
      command is interrupted, run it again.</p><//>`;
}
