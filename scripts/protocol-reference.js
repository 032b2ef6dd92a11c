/** The reference of the protocol in Markdown, from the comments in the .proto files. */

/** Comments by the place that a descriptor says they belong to. */
function commentsOf(file) {
  const comments = new Map();
  for (const { path, leadingComments } of file.sourceCodeInfo?.location ?? []) {
    if (leadingComments !== "")
      comments.set(path.join("."), leadingComments.trim().replace(/\s*\n\s*/g, " "));
  }
  return comments;
}

// The numbers of the fields of descriptor.proto that lead from a file to what is in it.
const MESSAGES = 4;
const ENUMS = 5;
const SERVICES = 6;
const METHODS = 2;
const FIELDS = 2;
const NESTED_ENUMS = 4;
const VALUES = 2;

export function referenceOf(registry, set) {
  const parts = ["## Reference", ""];
  for (const file of set.file.filter(({ name }) => name.startsWith("holdfast/"))) {
    const described = registry.getFile(file.name);
    const comments = commentsOf(file);
    const say = (...path) => comments.get(path.join(".")) ?? "";
    described.services.forEach((service, index) => {
      parts.push(`### ${service.typeName}`, "", say(SERVICES, index), "");
      service.methods.forEach((method, nth) => {
        parts.push(`#### \`${signatureOf(method)}\``, "", say(SERVICES, index, METHODS, nth), "");
      });
    });
    described.messages.forEach((message, index) => {
      parts.push(`### ${message.name}`, "", say(MESSAGES, index), "");
      parts.push(...fieldTable(message, (nth) => say(MESSAGES, index, FIELDS, nth)));
      message.nestedEnums.forEach((type, nth) => {
        const path = [MESSAGES, index, NESTED_ENUMS, nth];
        parts.push(`### ${message.name}.${type.name}`, "", say(...path), "");
        parts.push(...valueTable(type, (value) => say(...path, VALUES, value)));
      });
    });
    described.enums.forEach((type, index) => {
      parts.push(`### ${type.name}`, "", say(ENUMS, index), "");
      parts.push(...valueTable(type, (nth) => say(ENUMS, index, VALUES, nth)));
    });
  }
  return parts.join("\n");
}

function signatureOf({ name, methodKind, input, output }) {
  const asks = methodKind === "bidi_streaming" ? "stream " : "";
  const tells = methodKind === "unary" ? "" : "stream ";
  return `${name}(${asks}${input.name}) → ${tells}${output.name}`;
}

function fieldTable(message, say) {
  if (message.fields.length === 0) return [];
  const rows = message.fields.map((field, index) => {
    return `| \`${field.jsonName}\` | ${field.number} | ${typeOf(field)} | ${cell(say(index))} |`;
  });
  return ["| Field | No. | Type | Meaning |", "|---|---|---|---|", ...rows, ""];
}

function valueTable(type, say) {
  const rows = type.values.map(
    (value, index) => `| \`${value.name}\` | ${value.number} | ${cell(say(index))} |`,
  );
  return ["| Value | No. | Meaning |", "|---|---|---|", ...rows, ""];
}

const scalars = { 4: "uint64", 8: "bool", 9: "string", 12: "bytes", 13: "uint32" };

function typeOf(field) {
  const name = field.message?.name ?? field.enum?.name ?? scalars[field.scalar] ?? String(field.scalar);
  const one = field.oneof !== undefined ? `, one of \`${field.oneof.name}\`` : "";
  const optional = field.proto?.proto3Optional ? ", optional" : "";
  return `${field.fieldKind === "list" ? "list of " : ""}${name}${one}${optional}`;
}

/** A bar would end the cell. */
function cell(text) {
  return text.replaceAll("|", "\\|");
}
