// The contract of scripts/README.md as a program in another language would keep it: written from that page alone.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const LAYOUT = "v1";

export class Scripts {
  constructor(folder, redis) {
    this.redis = redis;
    this.texts = {};
    this.shas = {};
    const manifest = JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8"))[LAYOUT];
    for (const [name, { sha1 }] of Object.entries(manifest)) {
      const text = readFileSync(`${folder}/${LAYOUT}/${name}.lua`, "utf8");
      if (createHash("sha1").update(text).digest("hex") !== sha1) throw new Error(`${name} is not what is pinned`);
      this.texts[name] = text;
      this.shas[name] = sha1;
    }
  }

  /** EVALSHA, and EVAL where the server does not know the script. */
  async run(name, keys, args) {
    try {
      return await this.redis.call("EVALSHA", this.shas[name], keys.length, ...keys, ...args);
    } catch (error) {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return await this.redis.call("EVAL", this.texts[name], keys.length, ...keys, ...args);
    }
  }
}

const escaped = (name) => name.replaceAll("%", "%25").replaceAll("{", "%7B").replaceAll("}", "%7D");

export function key(limit, prefix = "pyslot") {
  const tag = limit.tag ?? limit.subject;
  const what = limit.meter === undefined ? "s" : `w:${escaped(limit.meter).replaceAll(":", "%3A")}:${limit.per}`;
  return `${prefix}:${LAYOUT}:{${escaped(tag)}}:${what}` + (limit.tag === undefined ? "" : `:${escaped(limit.subject)}`);
}

const isGauge = (limit) => limit.meter === undefined;
const most = (limit) => (limit.limit === null ? "-" : limit.enforce === false ? `~${limit.limit}` : limit.limit);

/** All limits or none: {status, retryAfter in ms, never: true where waiting is no use}. */
export async function admit(scripts, limits, id, costs = {}) {
  const rules = limits.flatMap((it) => [isGauge(it) ? "s" : "w", most(it), isGauge(it) ? it.lease : it.per]);
  const units = limits.filter((it) => !isGauge(it)).map((it) => costs[it.meter] ?? 1);
  const reply = await scripts.run("admit", limits.map((it) => key(it)), ["", "", ...rules, id, ...units]);
  const figures = limits.map((_, at) => reply.slice(1 + 4 * at, 5 + 4 * at));
  const refusing = figures.filter(([verdict]) => verdict === 1 || verdict === 2);
  return {
    status: reply[0],
    never: refusing.some(([verdict]) => verdict === 2),
    retryAfter: Math.max(0, ...refusing.map(([, , reset]) => reset)),
  };
}

export async function finish(scripts, limits, id, used = {}) {
  const spans = limits.map((it) => (isGauge(it) ? "s" : it.per));
  const units = limits.filter((it) => !isGauge(it)).map((it) => used[it.meter] ?? "-");
  return await scripts.run("finish", limits.map((it) => key(it)), ["", ...spans, id, ...units]);
}

/** The sessions of the page: what is behind `>` is sent, what comes back must be the line after it. */
async function examples(scripts, folder) {
  const page = readFileSync(`${folder}/README.md`, "utf8");
  let ran = 0;
  for (const [, session] of page.matchAll(/```redis\n(.*?)```/gs)) {
    for (const text of Object.values(scripts.texts)) await scripts.redis.call("SCRIPT", "LOAD", text);
    const lines = session.trimEnd().split("\n");
    for (let at = 0; at < lines.length; at += 2) {
      const words = lines[at].slice(2).match(/"[^"]*"|\S+/g).map((word) => {
        if (word.startsWith('"')) return word.slice(1, -1);
        if (!word.startsWith("$")) return word;
        const name = word.slice(1);
        return name.endsWith(".lua") ? scripts.texts[name.slice(0, -4)] : scripts.shas[name];
      });
      const wanted = lines[at + 1].replaceAll("| ", "");
      const [command, ...rest] = words;
      const reply = await scripts.redis.call(command, ...rest).then(
        (value) => [value].flat(Infinity).join(" "),
        (error) => `(error) ${error.message}`,
      );
      if (wanted.startsWith("(error)") ? !reply.startsWith(wanted) : reply !== wanted)
        throw new Error(`${lines[at]}\nwanted: ${wanted}\ngot:    ${reply}`);
      ran += 1;
    }
  }
  return ran;
}

/** Takes and gives back for a while, with others; says what it spent, and how many it saw inside at most. */
async function work(scripts, { limits, seconds, id }) {
  const end = Date.now() + 1000 * seconds;
  const seen = { granted: 0, refused: 0, spent: 0, most: 0 };
  const lane = async (lane) => {
    for (let n = 0; Date.now() < end; n += 1) {
      const permit = `${id}-${lane}-${n}`;
      if ((await admit(scripts, limits, permit, { tokens: 10 })).status === 0) {
        seen.refused += 1;
        await new Promise((done) => setTimeout(done, 2));
        continue;
      }
      seen.granted += 1;
      seen.most = Math.max(seen.most, await scripts.redis.incr("inside"));
      const used = (n % 10) + 1;
      await scripts.redis.decr("inside");
      const [status] = await finish(scripts, limits, permit, { tokens: used });
      if (status !== 2) throw new Error(`${permit} was not held to its end`);
      seen.spent += used;
    }
  };
  await Promise.all([0, 1, 2].map(lane));
  return seen;
}

const DOES = {
  examples: (scripts, { folder }) => examples(scripts, folder),
  key: (_, { limit }) => key(limit),
  admit: (scripts, { limits, id, costs }) => admit(scripts, limits, id, costs),
  finish: (scripts, { limits, id, used }) => finish(scripts, limits, id, used),
  work,
};

const [, , port, folder, what, options] = process.argv;
const redis = new Redis(Number(port), "127.0.0.1");
try {
  const scripts = new Scripts(folder, redis);
  process.stdout.write(JSON.stringify(await DOES[what](scripts, { folder, ...JSON.parse(options ?? "{}") })));
} finally {
  redis.disconnect();
}
