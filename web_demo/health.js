// Asks the server how it is: whether it answers at all, whether it can take a call, and with which models.

/** @returns {Promise<{state: "ready" | "loading" | "unreachable", models: Object<string, string>}>} */
export async function health() {
  try {
    const answer = await fetch(new URL("../readyz", import.meta.url), { cache: "no-store" });
    if (answer.ok) return { state: "ready", models: (await answer.json()).models };
    return { state: answer.status === 503 ? "loading" : "unreachable", models: {} };
  } catch {
    return { state: "unreachable", models: {} };
  }
}
