// Numbers and values as text.
import { format } from "d3-format";

const MINUS = "\u2212";
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const whole = format(",d");

export function count(value) {
  return whole(value);
}

// Three significant digits: 0.0123, 12.3, 1,234; powers of ten beyond.
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) {
    const exponent = Math.floor(Math.log10(size));
    const lead = String(Number((value / 10 ** exponent).toPrecision(3))).replace("-", MINUS);
    return `${lead} × 10${power(exponent)}`;
  }
  if (size >= 1000) return whole(Math.round(value)).replace("-", MINUS);
  return String(Number(value.toPrecision(3))).replace("-", MINUS);
}

// The same with trailing zeros, for columns of a table.
export function aligned(value) {
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1000 ? value.toPrecision(3).replace("-", MINUS) : short(value);
}

export function power(exponent) {
  const digits = [...String(Math.abs(exponent))].map((d) => SUPERSCRIPTS[d]).join("");
  return (exponent < 0 ? "⁻" : "") + digits;
}

export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  if (value !== 0 && Math.abs(value) < 0.01) return "< 0.01 %";
  return `${value >= 99.95 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} %`;
}

// A share that may be very small: as a percentage, or as a power of ten.
export function probability(share) {
  return share > 0 && share < 1e-4 ? short(share) : percent(share);
}

export function fixed(value, digits = 2) {
  if (value === null || value === undefined) return "−∞";
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", MINUS);
}

// A number of a column as people write it: dates are stored as days since an origin.
export function valueText(column, value) {
  if (column.type === "states") return column.labels[value] ?? String(value);
  if (column.origin) return dateOf(column, value).toISOString().slice(0, column.origin.length > 10 ? 16 : 10).replace("T", " ");
  return short(value);
}

export function dateOf(column, days) {
  const origin = column.origin.length > 10 ? `${column.origin}Z` : `${column.origin}T00:00:00Z`;
  return new Date(Date.parse(origin) + days * 86400000);
}

export function shorten(text, most = 28) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
