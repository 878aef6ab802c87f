// Numbers and names as the page writes them.
export const loss = (value: number) => value.toFixed(3);
export const percent = (share: number) => `${(100 * share).toFixed(1)} %`;

/** "+1.2 %", "−0.3 %", "0.0 %". */
export function change(share: number): string {
  const size = percent(Math.abs(share));
  if (size === percent(0)) return size;
  return `${share > 0 ? '+' : '−'}${size}`;
}

export const ratio = (value: number) => `${value.toFixed(2)}x`;
export const count = (value: number) => Math.round(value).toLocaleString('en');

/** At most three significant digits, without an exponent where that is short. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (value !== 0 && (size < 0.001 || size >= 1e5)) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
/** "131K", "0.41", "2e-7": a number of any size in little room. */
export function compact(value: number): string {
  if (Math.abs(value) >= 1e4) return COMPACT.format(value);
  return Number.isInteger(value) ? String(value) : short(value).replace('.0e', 'e');
}

export const milliseconds = (seconds: number) => `${short(1000 * seconds)} ms`;
export const megabytes = (bytes: number) => `${count(bytes / 1e6)} MB`;
export const plural = (number: number, word: string) =>
  `${number} ${word}${number === 1 ? '' : 's'}`;

/** "4x": a length as a multiple of the training length. */
export function multiple(length: number, trained: number): string {
  return trained > 0 ? `${short(length / trained)}x` : '';
}

/** "assoc_recall" -> "Assoc recall". */
export function words(name: string): string {
  const text = name.replace(/[_-]+/g, ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
