// Shows the OpenAPI document: each path with its fields, an example for the shell, and the errors.
"use strict";

function element(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return [...new Set(several.map(typeOf))].join(" | ");
  if (schema.type === "array") return `[${schema.items ? typeOf(schema.items) : ""}]`;
  return schema.type ?? "any";
}

function fields(schema) {
  const table = document.createElement("table");
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const row = table.insertRow();
    const must = (schema.required ?? []).includes(name);
    const usual = must ? "required" : `default ${JSON.stringify(field.default ?? null)}`;
    row.append(element("th", name), element("td", typeOf(field)), element("td", usual));
  }
  return table;
}

function example(path, operation) {
  const body = operation.requestBody?.content["application/json"].example;
  const data = body ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'` : "";
  return element("pre", `curl -s ${location.origin}${path}${data}`);
}

async function show() {
  const api = await (await fetch("/openapi.json")).json();
  const place = document.getElementById("operations");
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      place.append(element("h2", `${method.toUpperCase()} ${path}`), element("p", operation.summary), example(path, operation));
      const body = operation.requestBody?.content["application/json"].schema;
      if (body) {
        const schema = api.components.schemas[body.$ref.split("/").at(-1)];
        place.append(element("p", schema.description ?? ""), fields(schema));
      }
    }
  }
  place.append(element("h2", "Errors"));
  const table = document.createElement("table");
  for (const [status, response] of Object.entries(api.paths["/v1/embeddings"].post.responses)) {
    if (status === "200") continue;
    const row = table.insertRow();
    const text = element("th", response.description);
    text.className = "text";
    row.append(element("td", status), text);
  }
  place.append(table);
}

show();
