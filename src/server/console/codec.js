// Reads and writes messages of the contract by their description in schema.json. What is not described there is skipped, so
// that nothing of a prompt or an answer can reach the page: of such fields only the length is read.

let schema = { methods: {}, messages: {}, enums: {} };

export function useSchema(loaded) {
  schema = loaded;
}

export function method(name) {
  const found = schema.methods[name];
  if (!found) throw new Error(`${name} is not in the contract`);
  return found;
}

const words = new TextEncoder();
const text = new TextDecoder();

/** The bytes of a message; fields by name, enums by number. */
export function encode(type, value) {
  const bytes = [];
  for (const [number, field] of Object.entries(schema.messages[type])) {
    const given = value[field.name];
    if (given === undefined) continue;
    for (const item of field.repeated ? given : [given]) writeField(bytes, Number(number), field, item);
  }
  return new Uint8Array(bytes);
}

function writeField(bytes, number, field, value) {
  switch (field.kind) {
    case 'string':
    case 'message': {
      const inner = field.kind === 'string' ? words.encode(value) : encode(field.of, value);
      writeVarint(bytes, number * 8 + 2);
      writeVarint(bytes, inner.length);
      for (const byte of inner) bytes.push(byte);
      break;
    }
    case 'integer':
    case 'enum':
    case 'bool':
      writeVarint(bytes, number * 8);
      writeVarint(bytes, Number(value));
      break;
    default:
      throw new Error(`${field.name} cannot be written`);
  }
}

function writeVarint(bytes, value) {
  while (value > 127) {
    bytes.push((value % 128) + 128);
    value = Math.floor(value / 128);
  }
  bytes.push(value);
}

/** A message of these bytes: fields by name, enums as words. */
export function decode(type, bytes) {
  const fields = schema.messages[type];
  const value = empty(fields);
  const input = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), at: 0 };
  while (input.at < bytes.length) {
    const key = varint(input);
    const field = fields[Math.floor(key / 8)];
    readField(value, field, key % 8, input);
  }
  return value;
}

function empty(fields) {
  const value = {};
  for (const field of Object.values(fields)) {
    if (field.repeated) value[field.name] = [];
    else if (field.kind === 'map') value[field.name] = {};
    else if (!field.optional) value[field.name] = { string: '', bool: false, enum: 'unspecified' }[field.kind] ?? 0;
  }
  return value;
}

function readField(value, field, wire, input) {
  if (wire === 2) {
    const length = varint(input);
    const inner = input.bytes.subarray(input.at, input.at + length);
    if (inner.length < length) throw new Error('a message is cut off');
    input.at += length;
    if (!field) return;
    switch (field.kind) {
      case 'string': return put(value, field, text.decode(inner));
      case 'message': return put(value, field, decode(field.of, inner));
      case 'length': return put(value, field, length);
      case 'map': return putEntry(value[field.name], inner);
      default: {
        // Numbers, packed.
        const packed = { bytes: inner, view: new DataView(inner.buffer, inner.byteOffset, length), at: 0 };
        while (packed.at < length) put(value, field, scalar(field, wireOf(field), packed));
      }
    }
    return;
  }
  const read = scalar(field, wire, input);
  if (field) put(value, field, read);
}

function wireOf(field) {
  return { double: 1, fixed64: 1, float: 5, fixed32: 5 }[field.kind] ?? 0;
}

function scalar(field, wire, input) {
  const at = input.at;
  if (wire === 0) {
    const number = varint(input);
    if (field?.kind === 'bool') return number !== 0;
    if (field?.kind === 'enum') return schema.enums[field.of][number] ?? 'unknown';
    return number;
  }
  if (wire === 1) {
    input.at += 8;
    return field?.kind === 'double' ? input.view.getFloat64(at, true) : Number(input.view.getBigUint64(at, true));
  }
  if (wire === 5) {
    input.at += 4;
    return field?.kind === 'float' ? input.view.getFloat32(at, true) : input.view.getUint32(at, true);
  }
  throw new Error('a message cannot be read');
}

function varint(input) {
  let value = 0;
  let factor = 1;
  for (let read = 0; read < 10; read += 1) {
    const byte = input.bytes[input.at];
    if (byte === undefined) throw new Error('a message is cut off');
    input.at += 1;
    value += (byte & 127) * factor;
    if (byte < 128) return value;
    factor *= 128;
  }
  throw new Error('a message cannot be read');
}

function put(value, field, read) {
  if (field.repeated) value[field.name].push(read);
  else value[field.name] = read;
}

/** Maps of the contract hold texts by text. */
function putEntry(map, bytes) {
  const entry = { 1: '', 2: '' };
  const input = { bytes, at: 0 };
  while (input.at < bytes.length) {
    const number = Math.floor(varint(input) / 8);
    const length = varint(input);
    entry[number] = text.decode(bytes.subarray(input.at, input.at + length));
    input.at += length;
  }
  map[entry[1]] = entry[2];
}
