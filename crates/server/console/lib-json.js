// Formats and checks JSON texts without changing what they say: numbers keep all of their digits, repeated
// members and the order of members stay, which JSON.parse followed by JSON.stringify loses.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;

/** Returns null if the text is JSON, otherwise why not, as a sentence. */
export function jsonProblem(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}

/** Indents a valid JSON text by two spaces; null if it is not JSON. */
export function formatJson(text) {
  if (jsonProblem(text) !== null) return null;
  const tokens = text.match(TOKEN) ?? [];
  let depth = 0;
  let out = "";
  const newLine = () => {
    out += `\n${"  ".repeat(depth)}`;
  };
  tokens.forEach((token, at) => {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (!"{[".includes(tokens[at - 1])) newLine();
      out += token;
    } else if (token === "{" || token === "[") {
      out += token;
      depth += 1;
      if (!"}]".includes(tokens[at + 1])) newLine();
    } else if (token === ",") {
      out += token;
      newLine();
    } else {
      out += token === ":" ? ": " : token;
    }
  });
  return out;
}
