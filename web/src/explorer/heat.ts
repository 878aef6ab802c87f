// A matrix as a picture: one pixel per number, axes, and the number under the pointer.
import { element } from '../dom';
import { short } from '../format';

export interface Heat {
  label: string; // for screen readers
  x: string;
  y: string;
  firstX: number;
  firstY: number;
  values: ArrayLike<number>[];
  colours: 'centred' | 'weights';
  most?: number; // the end of the scale; the largest size unless given
  names?: string[]; // of rows and columns, instead of numbers
  rows?: string[]; // names of the rows alone
  mark?: [number, number]; // row and column of a cell that is framed
  picked?: (row: number, column: number) => void; // a press on a cell
}

const SPACE = 'http://www.w3.org/2000/svg';

function svgElement(tag: string, attributes: Record<string, string | number>, text?: string) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

function channels(variable: string): [number, number, number] {
  const color = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) as [number, number, number];
}

const STOPS = {
  centred: ['--below', '--zero', '--above'],
  weights: ['--zero', '--weight', '--most'],
};

/** 256 colours from low to high. */
function ramp(colours: Heat['colours']): Uint8ClampedArray {
  const stops = STOPS[colours].map(channels);
  const table = new Uint8ClampedArray(256 * 4);
  for (let n = 0; n < 256; ++n) {
    const at = (n / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; ++c)
      table[4 * n + c] = stops[k]![c]! + (at - k) * (stops[k + 1]![c]! - stops[k]![c]!);
    table[4 * n + 3] = 255;
  }
  return table;
}

export function largest(rows: ArrayLike<number>[]): number {
  let most = 0;
  for (const row of rows)
    for (let n = 0; n < row.length; ++n) {
      const size = Math.abs(row[n]!);
      if (size > most && size < Infinity) most = size;
    }
  return most || 1;
}

function pixels(heat: Heat, most: number): string {
  const rows = heat.values.length;
  const columns = heat.values[0]?.length ?? 0;
  const canvas = element('canvas', { width: String(columns), height: String(rows) });
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(columns, rows);
  const table = ramp(heat.colours);
  const centred = heat.colours === 'centred';
  let at = 0;
  for (const row of heat.values) {
    for (let n = 0; n < columns; ++n, at += 4) {
      const value = row[n]!;
      if (!Number.isFinite(value)) continue; // masked: left clear
      const share = centred ? 0.5 + (0.5 * value) / most : Math.sqrt(Math.max(0, value / most));
      const from = 4 * Math.round(255 * Math.min(1, Math.max(0, share)));
      for (let c = 0; c < 4; ++c) image.data[at + c] = table[from + c]!;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** About `most` of `count` places that stand for round numbers; `first` is the number of place 0. */
function ticks(count: number, most: number, first: number): number[] {
  const raw = count / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1)));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= raw) ?? 1;
  const from = Math.ceil(first / step) * step - first;
  return Array.from(
    { length: Math.max(0, Math.ceil((count - from) / step)) },
    (_, k) => from + k * step,
  );
}

const LEFT = 44;
const TOP = 20;
const BOTTOM = 26;

export function heatChart(heat: Heat, width: number, square: boolean): SVGSVGElement {
  const rows = heat.values.length;
  const columns = heat.values[0]?.length ?? 1;
  const left = heat.names ? 8 + 8 * Math.max(...heat.names.map(({ length }) => length)) : LEFT;
  const inner = width - left - 4;
  const height = square
    ? Math.min(inner, 420) * (rows / columns)
    : Math.max(90, Math.min(260, (inner * rows) / columns));
  const across = square ? Math.min(inner, 420) : inner;
  const most = heat.most ?? largest(heat.values);
  const svg = svgElement('svg', {
    width,
    height: height + TOP + BOTTOM,
    viewBox: `0 0 ${width} ${height + TOP + BOTTOM}`,
    'aria-label': `${heat.label}: ${rows} by ${columns} values`,
  }) as SVGSVGElement;
  svg.append(
    svgElement('image', {
      x: left,
      y: TOP,
      width: across,
      height,
      preserveAspectRatio: 'none',
      href: pixels(heat, most),
      style: 'image-rendering:pixelated',
    }),
    svgElement('rect', {
      x: left,
      y: TOP,
      width: across,
      height,
      fill: 'none',
      stroke: 'var(--line)',
    }),
    svgElement('text', { x: 0, y: 12, fill: 'var(--soft)' }, `${heat.y} ↓`),
    svgElement(
      'text',
      { x: left + across, y: 12, fill: 'var(--soft)', 'text-anchor': 'end' },
      `${heat.x} →`,
    ),
  );
  if (heat.mark) {
    const [row, column] = heat.mark;
    const [w, h] = [Math.max(6, across / columns), Math.max(6, height / rows)];
    svg.append(
      svgElement('rect', {
        x: left + ((column + 0.5) / columns) * across - w / 2,
        y: TOP + ((row + 0.5) / rows) * height - h / 2,
        width: w,
        height: h,
        fill: 'none',
        stroke: 'var(--ink)',
        'stroke-width': 2,
      }),
    );
  }
  const name = (at: number, first: number) => heat.names?.[at] ?? short(first + at);
  for (const at of heat.names
    ? heat.names.map((_, k) => k)
    : ticks(columns, across / 60, heat.firstX))
    svg.append(
      svgElement(
        'text',
        {
          x: left + ((at + 0.5) / columns) * across,
          y: TOP + height + 17,
          'text-anchor': 'middle',
          fill: 'var(--soft)',
        },
        name(at, heat.firstX),
      ),
    );
  for (const at of heat.names || heat.rows
    ? heat.values.map((_, k) => k)
    : ticks(rows, height / 26, heat.firstY))
    svg.append(
      svgElement(
        'text',
        {
          x: left - 6,
          y: TOP + ((at + 0.5) / rows) * height + 5,
          'text-anchor': 'end',
          fill: 'var(--soft)',
        },
        rowName(heat, at),
      ),
    );
  return svg;
}

const rowName = (heat: Heat, at: number) =>
  (heat.names ?? heat.rows)?.[at] ?? short(heat.firstY + at);

/** The row and column under the pointer. */
export function cellAt(heat: Heat, image: Element, event: MouseEvent): [number, number] {
  const area = image.getBoundingClientRect();
  const rows = heat.values.length;
  const columns = heat.values[0]?.length ?? 0;
  return [
    Math.floor(((event.clientY - area.top) / area.height) * rows),
    Math.floor(((event.clientX - area.left) / area.width) * columns),
  ];
}

/** "head 1, offset 3: −0.41" for the place of the pointer, or nothing. */
export function readingAt(heat: Heat, image: Element, event: PointerEvent): string {
  const [i, j] = cellAt(heat, image, event);
  const value = heat.values[i]?.[j];
  if (value === undefined) return '';
  const name = (at: number, first: number) => heat.names?.[at] ?? short(first + at);
  const said = Number.isFinite(value) ? short(value) : 'masked';
  return `${heat.y} ${rowName(heat, i)}, ${heat.x} ${name(j, heat.firstX)}: ${said}`;
}

/** The colours and what they stand for. */
export function heatKey(heat: Heat): HTMLElement {
  const most = heat.most ?? largest(heat.values);
  const table = ramp(heat.colours);
  const stops = Array.from({ length: 9 }, (_, k) => {
    const from = 4 * Math.round((255 * k) / 8);
    return `rgb(${table[from]},${table[from + 1]},${table[from + 2]})`;
  });
  return element(
    'span',
    { class: 'key' },
    heat.colours === 'centred' ? short(-most) : '0',
    element('span', {
      class: 'ramp',
      style: `background:linear-gradient(90deg,${stops.join(',')})`,
    }),
    short(most),
  );
}
