// Changes a config as the Node runtime does: under pix.json.lock, and reading inside of it.
//
// Usage: node node_writer.mjs FILE KEY COUNT. Sets COUNT keys of collapse.tools, KEY.0 and so on,
// one in each transaction, and says "ready" first and then waits for a line.

import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [file, key, count] = process.argv.slice(2);
const lock = `${file}.lock`;

async function acquire() {
  for (;;) {
    try {
      fs.writeFileSync(lock, JSON.stringify({ pid: process.pid, at: Date.now() }), { flag: "wx", mode: 0o600 });
      return;
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    try {
      if (Date.now() - fs.statSync(lock).mtimeMs > 30_000) fs.rmSync(lock, { force: true });
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    await sleep(25);
  }
}

function change(document, number) {
  document.collapse ??= {};
  document.collapse.tools ??= {};
  document.collapse.tools[`${key}.${number}`] = false;
}

console.log("ready");
fs.readSync(0, Buffer.alloc(1));
for (let number = 0; number < Number(count); number++) {
  await acquire();
  try {
    const document = JSON.parse(fs.readFileSync(file, "utf8"));
    change(document, number);
    const temporary = `${file}.tmp-${process.pid}-${number}`;
    fs.writeFileSync(temporary, `${JSON.stringify(document, null, 2)}\n`, { mode: 0o600 });
    fs.renameSync(temporary, file);
  } finally {
    fs.rmSync(lock, { force: true });
  }
}
