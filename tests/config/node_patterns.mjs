// Judges regular expressions: whether `new RegExp(pattern, flags)` throws.
//
// Says the versions of Node and Unicode first, then answers each line, a JSON list of
// [pattern, flags], by one line: a JSON list of null where it compiles, else the reason.

import readline from "node:readline";

function judge([pattern, flags]) {
  try {
    new RegExp(pattern, flags);
    return null;
  } catch (error) {
    return error.message.slice(error.message.lastIndexOf(": ") + 2);
  }
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

say({ node: process.versions.node, unicode: process.versions.unicode });
for await (const line of readline.createInterface({ input: process.stdin })) {
  say(JSON.parse(line).map(judge));
}
