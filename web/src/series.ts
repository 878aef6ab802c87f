// One look for an encoding in every figure, and which of them are shown.
//
// Colours are variables of report.css, chosen to differ also for the colour
// blind and to be readable as text in both themes; the symbol, and for long
// lists the dash, tell series apart without any colour.
import type * as Plot from '@observablehq/plot';
import { encodingsOf, type Results } from './results';

/** The class of a series' marks. Names may hold anything; classes hold no blanks. */
export function classOf(key: string): string {
  return `series-${key.replace(/[^\w-]/gu, (letter) => `_${letter.codePointAt(0)!.toString(16)}_`)}`;
}

export interface Series {
  key: string;
  title: string;
  color: string;
  symbol: Plot.SymbolType;
  dash: string | undefined;
}

const COLORS = 8; // --series-1 to --series-8
const SYMBOLS: Plot.SymbolType[] = [
  'circle',
  'square',
  'triangle',
  'diamond',
  'star',
  'wye',
  'cross',
];

/** The look of the number-th series. */
export function look(number: number): Omit<Series, 'key' | 'title'> {
  return {
    color: `var(--series-${(number % COLORS) + 1})`,
    symbol: SYMBOLS[number % SYMBOLS.length]!,
    dash: number < COLORS ? undefined : '6 3',
  };
}

/** The look of the baseline: no position, or no extension. */
export const BASELINE = { color: 'var(--baseline)', symbol: 'circle', dash: '2 3' } as const;

/** The encodings of a study and the user's choice among them. */
export class Shown extends EventTarget {
  readonly all: Series[];
  private hidden = new Set<string>();

  constructor(results: Results) {
    super();
    const titles = new Map(results.encodings.map((info) => [info.name, info.short ?? info.title]));
    let number = 0;
    this.all = encodingsOf(results).map((key) => ({
      key,
      title: titles.get(key) ?? key,
      ...(key === 'none' ? BASELINE : look(number++)),
    }));
  }

  has(key: string): boolean {
    return !this.hidden.has(key);
  }

  toggle(key: string): void {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.dispatchEvent(new Event('change'));
  }

  showAll(): void {
    this.hidden.clear();
    this.dispatchEvent(new Event('change'));
  }

  get complete(): boolean {
    return this.hidden.size === 0;
  }
}
