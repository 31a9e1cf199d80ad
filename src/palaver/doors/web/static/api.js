// Requests to the bus. The cookie proves the browser, the key in our own header proves this page.

const KEY = "palaver-key";
const IDLE_MS = 600_000;
let touched = Date.now();
for (const kind of ["keydown", "pointerdown", "wheel", "touchstart"]) {
  addEventListener(kind, () => { touched = Date.now(); }, { passive: true, capture: true });
}

export class Refusal extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class Away extends Error {}

export function headers(more = {}) {
  const idle = Date.now() - touched > IDLE_MS ? { "X-Palaver-Idle": "1" } : {};
  return { "X-Palaver": localStorage.getItem(KEY) ?? "1", ...idle, ...more };
}

async function call(path, body, signal) {
  let response;
  try {
    response = await fetch(path, body === undefined
      ? { headers: headers(), cache: "no-store" }
      : { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body), signal });
  } catch {
    throw new Away("the bus is not reachable");
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, value.error ?? "", value.message ?? `the bus answered ${response.status}`);
  return value;
}

export const session = () => call("/api/session");
export const view = () => call("/api/view");
export const ask = (question) => call("/api/ask", question);
export const screen = (agent, known, signal) => call("/api/screen", { name: agent, known }, signal);

export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A repeat with the same key is done once, so an act that lost its reply is sent again.
export async function act(what) {
  const keyed = { key: newKey(), ...what };
  try {
    return await call("/api/act", keyed);
  } catch (error) {
    if (!(error instanceof Away)) throw error;
    return call("/api/act", keyed);
  }
}

export async function signIn(code) {
  const made = await call("/api/sign-in", { code });
  localStorage.setItem(KEY, made.key);
}

export async function signOut() {
  await call("/api/sign-out", {});
  localStorage.removeItem(KEY);
}
