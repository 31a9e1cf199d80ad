// Requests to the bus. The cookie identifies the browser; the key in the header X-Palaver identifies this page.

const KEY = "palaver-key"; // in localStorage, which belongs to this port alone, unlike a cookie
const IDLE_MS = 600_000; // after that, an open page no longer keeps its session alive
let touchedMs = Date.now();
for (const kind of ["keydown", "pointerdown", "wheel", "touchstart"]) {
  addEventListener(kind, () => { touchedMs = Date.now(); }, { passive: true, capture: true });
}

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class Unreachable extends Error {}

export function headers(more = {}) {
  const idle = Date.now() - touchedMs > IDLE_MS ? { "X-Palaver-Idle": "1" } : {};
  return { "X-Palaver": localStorage.getItem(KEY) ?? "1", ...idle, ...more };
}

async function call(path, body, signal) {
  let response;
  try {
    response = await fetch(path, body === undefined
      ? { headers: headers(), cache: "no-store" }
      : { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal });
  } catch {
    throw new Unreachable("the bus is not reachable");
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Refusal(response.status, value.error ?? "", value.message ?? `the bus replied with status ${response.status}`);
  }
  return value;
}

export const session = () => call("/api/session");
export const view = () => call("/api/view");
export const ask = (question) => call("/api/ask", question);
export const screen = (agent, known, signal) => call("/api/screen", { name: agent, known }, signal);

export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The bus does an action once per key, so an action without a reply is sent again.
export async function act(action) {
  const keyed = { key: newKey(), ...action };
  try {
    return await call("/api/act", keyed);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    return call("/api/act", keyed);
  }
}

export async function signIn(code) {
  const created = await call("/api/sign-in", { code });
  localStorage.setItem(KEY, created.key);
}

export async function signOut() {
  await call("/api/sign-out", {});
  localStorage.removeItem(KEY);
}
