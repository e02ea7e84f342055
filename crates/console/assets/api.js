// The admin API: one way to ask, and two ways to fail that pages need not handle themselves.

const TOKEN = "polyshard-token";
// What a server on this machine accepts unless it is configured otherwise.
const DEVELOPMENT_TOKEN = "polyshard";

// The server cannot be reached.
export class Away extends Error {}
// The token is missing or wrong.
export class Unauthorized extends Error {}
// The server says no, with a reason and mostly a remedy.
export class Problem extends Error {
  constructor(problem) {
    super(problem.message);
    this.code = problem.code;
    this.remedy = problem.remedy;
  }
}

const onLoopback = () => ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

export function token() {
  return sessionStorage.getItem(TOKEN) ?? (onLoopback() ? DEVELOPMENT_TOKEN : null);
}
export function setToken(value) {
  if (value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, value);
}

export async function open(path, options = {}) {
  const given = token();
  if (given === null) throw new Unauthorized();
  const headers = { authorization: `Bearer ${given}`, ...options.headers };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away(error.message);
  }
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) {
    const text = await response.text();
    let body;
    try {
      body = JSON.parse(text);
    } catch {
      throw new Away(`HTTP status ${response.status}`);
    }
    throw new Problem(body.error);
  }
  return response;
}

export async function get(path, options) {
  const response = await open(path, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away(error.message);
  }
}

export async function post(path, body, headers = {}) {
  const response = await open(path, { method: "POST", headers, body: JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
}

export const path = (...parts) => "/v1/" + parts.map(encodeURIComponent).join("/");
