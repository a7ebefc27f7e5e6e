// Numbers as people read them.

const COUNT = new Intl.NumberFormat("en");

/** 11,545. */
export const count = (value: number): string => COUNT.format(value);

/** "1 row", "2 rows". */
export const counted = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

/** A probability with three decimals, and never 0 or 1 for what is not quite so. */
export function probability(value: number | null): string {
  if (value === null) return "–";
  if (value === 0 || value === 1) return value.toFixed(3);
  if (value < 0.0005) return "<0.001";
  if (value > 0.9995) return ">0.999";
  return value.toFixed(3);
}

/** Seconds, with as many digits as tell something. */
export const seconds = (value: number): string => (value < 0.1 ? `${Math.max(1, Math.round(value * 1000))} ms` : `${value.toFixed(value < 10 ? 2 : 0)} s`);

/** A share of 1 as a whole percentage. */
export const percent = (value: number): string => `${Math.round(value * 100)} %`;

/** "first", "second", "third", "4th". */
export function ordinal(value: number): string {
  if (value <= 3) return ["first", "second", "third"][value - 1] ?? String(value);
  const teen = value % 100 >= 11 && value % 100 <= 13;
  return `${count(value)}${teen ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th")}`;
}
