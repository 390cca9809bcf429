// Numbers for people. What is not known stays null here, and the page says so: it never becomes 0.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? value.toLocaleString("en") : null;
}

export function short(value) {
  if (!isNumber(value)) return null;
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) {
      const scaled = value / (letter === "k" ? 1e3 : size);
      return `${scaled.toFixed(scaled < 100 ? 1 : 0)}${letter}`;
    }
  }
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(value < 10 ? 2 : 1);
}

export function percent(share) {
  if (!isNumber(share)) return null;
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(share * 100).toFixed(share > 0 && share < 0.01 ? 1 : 0)} %`;
}

export function duration(seconds) {
  if (!isNumber(seconds)) return null;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => whole >= size);
  const [size, unit] = parts[first];
  const [nextSize, nextUnit] = parts[first + 1];
  const rest = Math.floor((whole % size) / nextSize);
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${nextUnit}` : ""}`;
}

export function bytes(value) {
  if (!isNumber(value)) return null;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${units[unit]}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

export const day = (ms) => new Date(ms).toLocaleString([], { hour12: false, dateStyle: "short", timeStyle: "medium" });

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
