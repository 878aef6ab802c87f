// Pairs of channels as clock hands: where a query at m and a key at n point, and the
// angle between them.
import { element } from '../dom';
import { compact } from '../format';
import type { Pairs } from './core';
import type { FigureBox } from './figure';

const SPACE = 'http://www.w3.org/2000/svg';

function add(
  parent: Element,
  tag: string,
  attributes: Record<string, string | number>,
  text?: string,
) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

/** At most `most` of `count`, the first and the last among them. */
function some(count: number, most: number): number[] {
  if (count <= most) return Array.from({ length: count }, (_, k) => k);
  return Array.from({ length: most }, (_, k) => Math.round((k * (count - 1)) / (most - 1)));
}

/** One dial per pair, fast ones first. `at[0]` is the query, `at[1]` the key. */
function dialsChart(pairs: Pairs, width: number, most = 8): SVGSVGElement {
  const shown = some(pairs.pairs.length, most);
  const columns = Math.max(2, Math.min(shown.length, Math.floor(width / 112)));
  const cell = width / columns;
  const rows = Math.ceil(shown.length / columns);
  const tall = Math.min(cell, 170) + 40;
  const svg = document.createElementNS(SPACE, 'svg');
  svg.setAttribute('width', String(width));
  svg.setAttribute('height', String(rows * tall));
  svg.setAttribute('viewBox', `0 0 ${width} ${rows * tall}`);
  const [query, key] = pairs.at;
  svg.setAttribute(
    'aria-label',
    `Hands of ${shown.length} pairs for a query at ${query?.position} and a key at ${key?.position}`,
  );
  shown.forEach((pair, index) => {
    const x = ((index % columns) + 0.5) * cell;
    const y = Math.floor(index / columns) * tall + tall / 2 - 14;
    const radius = Math.min(cell, 170) / 2 - 14;
    add(svg, 'circle', { cx: x, cy: y, r: radius, fill: 'var(--raised)', stroke: 'var(--line)' });
    const point = (cos: number, sin: number, length = 1) =>
      [x + length * radius * cos, y - length * radius * sin] as const;
    const hand = (which: typeof query, color: string, wide: number) => {
      if (!which) return;
      const [cos, sin] = [which.cos[pair]! / pairs.gain, which.sin[pair]! / pairs.gain];
      const [px, py] = point(cos, sin, 0.92);
      add(svg, 'line', {
        x1: x,
        y1: y,
        x2: px,
        y2: py,
        stroke: color,
        'stroke-width': wide,
        'stroke-linecap': 'round',
      });
      add(svg, 'circle', { cx: px, cy: py, r: wide, fill: color });
    };
    if (query && key) {
      // The angle from key to query, along the shorter way.
      const a = [key.cos[pair]! / pairs.gain, key.sin[pair]! / pairs.gain] as const;
      const b = [query.cos[pair]! / pairs.gain, query.sin[pair]! / pairs.gain] as const;
      const cross = a[0] * b[1] - a[1] * b[0];
      const [x1, y1] = point(...a, 0.45);
      const [x2, y2] = point(...b, 0.45);
      add(svg, 'path', {
        d: `M ${x} ${y} L ${x1} ${y1} A ${0.45 * radius} ${0.45 * radius} 0 0 ${cross > 0 ? 0 : 1} ${x2} ${y2} Z`,
        fill: 'var(--series-3)',
        'fill-opacity': 0.35,
      });
    }
    hand(key, 'var(--series-2)', 3);
    hand(query, 'var(--series-1)', 3);
    const wave = pairs.pairs[pair]!.wavelength;
    add(
      svg,
      'text',
      { x, y: y + radius + 18, 'text-anchor': 'middle', fill: 'var(--ink)' },
      `pair ${pair}`,
    );
    add(
      svg,
      'text',
      { x, y: y + radius + 34, 'text-anchor': 'middle', fill: 'var(--soft)' },
      wave === null ? 'never turns' : `turns in ${compact(wave)}`,
    );
  });
  return svg;
}

/** What the two hands and the angle between them are. */
export interface Hands {
  first: string;
  second: string;
  angle: string;
}

const queryAndKey = ({ at: [query, key] }: Pairs): Hands => {
  const [m, n] = [query!.position, key!.position];
  return { first: `query at m = ${m}`, second: `key at n = ${n}`, angle: `m − n = ${m - n}` };
};

function dialsKey({ first, second, angle }: Hands): HTMLElement {
  return element(
    'ul',
    { class: 'names' },
    element('li', {}, element('i', { style: 'color:var(--series-1)' }), first),
    element('li', {}, element('i', { style: 'color:var(--series-2)' }), second),
    element('li', {}, element('i', { class: 'area third' }), `the angle between them, ${angle}`),
  );
}

/** The dials of a figure, with their key above and their numbers behind CSV. */
export function drawDials(
  box: FigureBox,
  pairs: Pairs,
  most: number,
  hands = queryAndKey(pairs),
): void {
  box.own(
    (width) => dialsChart(pairs, width, most),
    () => ({
      head: ['pair', 'wavelength', 'cos_m', 'sin_m', 'cos_n', 'sin_n'],
      rows: pairs.pairs.map(({ wavelength }, p) => [
        p,
        wavelength,
        ...pairs.at.flatMap(({ cos, sin }) => [cos[p], sin[p]]),
      ]),
    }),
    dialsKey(hands),
  );
}
