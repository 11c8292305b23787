// Formats numbers, sizes and times for people.
const number = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function time(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || milliseconds < 0) return "–";
  const at = new Date(milliseconds);
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  return (
    `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` +
    `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`
  );
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

// A waiting time in a suitable unit.
export function waited(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 60e3) return `${(milliseconds / 1e3).toFixed(milliseconds && milliseconds < 10e3 ? 1 : 0)} s`;
  if (milliseconds < 3600e3) return `${Math.round(milliseconds / 60e3)} min`;
  return `${(milliseconds / 3600e3).toFixed(1)} h`;
}

// Records per second.
export const rate = (value) => `${value < 10 && value > 0 ? value.toFixed(1) : count(Math.round(value))} records/s`;
