// The data block of the page, with vectors as typed arrays.

const TYPES = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

export function unpack(value) {
  if (Array.isArray(value)) return value.map(unpack);
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value);
  if (keys.length === 2 && "type" in value && "data" in value && value.type in TYPES && typeof value.data === "string") {
    const text = atob(value.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new TYPES[value.type](bytes.buffer);
  }
  for (const key of keys) value[key] = unpack(value[key]);
  return value;
}

export function readPage() {
  return unpack(JSON.parse(document.getElementById("data").textContent));
}
