// Keeps the configuration of a namespace in memory and up to date, and the last good copy in a file.
//
// usage: node config.mjs NODE,NODE,… NAMESPACE FILE
//
// A program reads `now`, the documents by container. It starts with the copy in FILE if no node answers. Prints
// `copy` or `current` with the documents, and again whenever they change.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const ANSWER_S = 60;

// Follows events of any node, and of another one when that ends.
class Cluster {
  constructor(nodes) {
    this.nodes = nodes.split(",");
    this.problems = {};
  }

  // Says what is wrong with a node, once until that changes.
  report(problem) {
    const node = this.nodes[0];
    if (problem && this.problems[node] !== problem) console.error(`${node}: ${problem}`);
    this.problems[node] = problem;
  }

  // Server-sent events, from another node behind the last event whenever the connection ends.
  async *events(path) {
    let last;
    for (;;) {
      const silence = new AbortController();
      const timer = setTimeout(() => silence.abort(), ANSWER_S * 1000);
      try {
        const headers = last ? { "Last-Event-ID": last } : {};
        const answer = await fetch(`http://${this.nodes[0]}${path}`, { headers, signal: silence.signal });
        if (answer.status !== 200) throw new Error(`${answer.status} ${(await answer.text()).slice(0, 500)}`);
        this.report();
        let text = "";
        for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
          // A node sends an event every ten seconds at least.
          timer.refresh();
          const blocks = (text + part).split("\n\n");
          text = blocks.pop();
          for (const block of blocks) {
            const event = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
            last = event.id ?? last;
            if (event.event) yield { name: event.event, data: JSON.parse(event.data) };
          }
        }
      } catch (error) {
        this.report(`${error.message} ${error.cause?.message ?? ""}`);
      }
      clearTimeout(timer);
      this.nodes.push(this.nodes.shift());
      await sleep(200);
    }
  }
}

class Configuration {
  now = {};

  constructor(path) {
    this.path = path;
    if (existsSync(path)) this.replace("copy", JSON.parse(readFileSync(path, "utf8")));
  }

  async follow(nodes, namespace) {
    let known = {};
    let isCurrent = false;
    const path = `/api/namespaces/${encodeURIComponent(namespace)}/watch`;
    for await (const { name, data } of new Cluster(nodes).events(path)) {
      if (name === "gap") {
        // The state follows. What was known until now serves until it is complete.
        known = {};
        isCurrent = false;
      }
      if (name === "change") known[data.key] = data.data;
      if (name === "deleted" && data.key) delete known[data.key];
      if (name === "deleted" && !data.key) known = {};
      if (name === "current") isCurrent = true;
      if (isCurrent) this.replace("current", { ...known });
    }
  }

  replace(source, documents) {
    const text = JSON.stringify(Object.fromEntries(Object.entries(documents).sort()));
    if (source === "current") {
      writeFileSync(`${this.path}.new`, text, { flush: true });
      renameSync(`${this.path}.new`, this.path);
    }
    this.now = documents;
    console.log(source, text);
  }
}

const [nodes, namespace, path] = process.argv.slice(2);
await new Configuration(path).follow(nodes, namespace);
