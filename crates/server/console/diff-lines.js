// Line differences of two texts, by Myers' algorithm (An O(ND) Difference Algorithm, 1986). It owns no
// rendering.

// Beyond this many differing lines the search costs seconds; the middle is then shown as replaced.
const DISTANCE_MAX = 1_500;

function trim(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  return { start, end };
}

/** The furthest `x` of each diagonal, for each number of differences. Null if there are too many. */
function search(a, b) {
  const trace = [];
  let furthest = new Map([[1, 0]]);
  for (let distance = 0; distance <= Math.min(a.length + b.length, DISTANCE_MAX); distance += 1) {
    const next = new Map();
    trace.push(furthest);
    for (let k = -distance; k <= distance; k += 2) {
      const down = k === -distance || (k !== distance &&
        (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? furthest.get(k + 1) ?? 0 : (furthest.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      next.set(k, x);
      if (x >= a.length && x - k >= b.length) return trace;
    }
    furthest = next;
  }
  return null;
}

function backtrack(trace, a, b) {
  const lines = [];
  let [x, y] = [a.length, b.length];
  for (let distance = trace.length - 1; distance >= 0; distance -= 1) {
    const furthest = trace[distance];
    const k = x - y;
    const down = k === -distance || (k !== distance &&
      (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const fromX = furthest.get(down ? k + 1 : k - 1) ?? 0;
    const fromY = fromX - (down ? k + 1 : k - 1);
    while (x > Math.max(fromX, 0) && y > Math.max(fromY, 0) && a[x - 1] === b[y - 1]) {
      lines.push({ kind: "same", text: a[x - 1] });
      x -= 1;
      y -= 1;
    }
    if (distance === 0) break;
    if (down) lines.push({ kind: "added", text: b[--y] });
    else lines.push({ kind: "removed", text: a[--x] });
  }
  return lines.reverse();
}

function replaced(a, b) {
  return [...a.map((text) => ({ kind: "removed", text })), ...b.map((text) => ({ kind: "added", text }))];
}

const split = (text) => (text === "" ? [] : text.split("\n"));

/**
 * All lines of both texts: `{ kind: "same" | "removed" | "added", text, before, after }` with their line
 * numbers.
 */
export function diffLines(before, after) {
  const [a, b] = [split(before), split(after)];
  const { start, end } = trim(a, b);
  const [middleA, middleB] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const trace = search(middleA, middleB);
  const same = (text) => ({ kind: "same", text });
  const lines = [...a.slice(0, start).map(same),
    ...(trace ? backtrack(trace, middleA, middleB) : replaced(middleA, middleB)),
    ...a.slice(a.length - end).map(same)];
  let [numberA, numberB] = [0, 0];
  return lines.map((line) => ({ ...line,
    before: line.kind === "added" ? undefined : (numberA += 1),
    after: line.kind === "removed" ? undefined : (numberB += 1) }));
}

/** Leaves out what is far from a difference: entries are lines, or `{ kind: "gap", lines }`. */
export function withContext(lines, context = 3) {
  const near = new Array(lines.length).fill(false);
  lines.forEach((line, i) => {
    if (line.kind !== "same") near.fill(true, Math.max(0, i - context), i + context + 1);
  });
  const entries = [];
  lines.forEach((line, i) => {
    if (near[i]) entries.push(line);
    else if (entries.at(-1)?.kind === "gap") entries.at(-1).lines += 1;
    else entries.push({ kind: "gap", lines: 1 });
  });
  return entries;
}
