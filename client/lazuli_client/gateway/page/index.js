// Asks the gateway for vectors of the texts and the query, and shows cosines, the order, and the time of each stage.
"use strict";

const byId = (id) => document.getElementById(id);

function headers() {
  const key = byId("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function call(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const start = performance.now();
  const response = await fetch(path, { ...options, headers: headers() });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.error?.message ?? answer.error ?? answer.message ?? `status ${response.status}`);
  }
  return { answer, total: performance.now() - start, stages: stagesOf(response.headers.get("Server-Timing")) };
}

function stagesOf(header) {
  return (header ?? "").split(",").filter(Boolean).map((part) => {
    const [name, duration] = part.trim().split(";dur=");
    return [name, Number(duration)];
  });
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}

const cosine = (a, b) => a.reduce((sum, value, place) => sum + value * b[place], 0);

function element(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text; // never as HTML: it is somebody's text
  if (className) made.className = className;
  return made;
}

function showMatrix(texts, vectors) {
  const table = byId("matrix");
  table.replaceChildren();
  const head = table.insertRow();
  head.append(element("th", ""), ...texts.map((_, place) => element("th", place + 1)));
  texts.forEach((text, row) => {
    const line = table.insertRow();
    line.append(element("th", `${row + 1}  ${text}`, "text"));
    vectors.forEach((other) => {
      const value = cosine(vectors[row], other);
      const cell = element("td", value.toFixed(3), `shade${Math.max(0, Math.min(9, Math.floor(value * 10)))}`);
      line.append(cell);
    });
  });
}

function showRanking(texts, scores) {
  const order = texts.map((_, place) => place).sort((a, b) => scores[b] - scores[a]);
  byId("ranking").replaceChildren(...order.map((place) => element("li", `${scores[place].toFixed(3)}  ${texts[place]}`)));
}

function showTimes(name, { total, stages }) {
  const table = byId("times");
  const known = stages.reduce((sum, [, duration]) => sum + duration, 0);
  for (const [stage, duration] of [...stages, ["network and browser", total - known], ["all", total]]) {
    const line = table.insertRow();
    line.append(element("th", `${name}: ${stage}`, "text"), element("td", `${duration.toFixed(2)} ms`));
  }
}

async function scoresOf(query, texts, vectors, queryVector, models) {
  const reranker = models.find((model) => model.task === "rerank");
  if (!reranker) return vectors.map((vector) => cosine(vector, queryVector));
  const result = await call("/v1/rerank", { model: reranker.id, query, documents: texts });
  showTimes(reranker.id, result);
  const scores = [];
  for (const one of result.answer.results) scores[one.index] = one.relevance_score;
  return scores;
}

async function compare(event) {
  event.preventDefault();
  byId("message").textContent = "";
  byId("results").hidden = true;
  byId("times").replaceChildren();
  try {
    const models = await loadModels();
    const texts = byId("texts").value.split("\n").map((text) => text.trim()).filter(Boolean);
    if (!texts.length) throw new Error("There is no text.");
    const query = byId("query").value.trim();
    const model = byId("model").value;
    const result = await call("/v1/embeddings", { model, input: query ? [...texts, query] : texts });
    showTimes(model, result);
    const vectors = result.answer.data.map((one) => unit(one.embedding));
    showMatrix(texts, vectors.slice(0, texts.length));
    const scores = query ? await scoresOf(query, texts, vectors.slice(0, texts.length), vectors.at(-1), models) : [];
    if (query) showRanking(texts, scores);
    else byId("ranking").replaceChildren();
    byId("results").hidden = false;
  } catch (error) {
    byId("message").textContent = error.message;
  }
}

async function loadModels() {
  const { answer } = await call("/v1/models");
  const chosen = byId("model").value;
  const embedders = answer.data.filter((model) => model.task === "embed");
  byId("model").replaceChildren(...embedders.map((model) => element("option", model.id)));
  if (embedders.some((model) => model.id === chosen)) byId("model").value = chosen;
  return answer.data;
}

byId("form").addEventListener("submit", compare);
loadModels().catch((error) => { byId("message").textContent = error.message; });
