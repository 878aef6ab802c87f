// A small matrix as a picture, with a scale of colours and the value under the
// pointer.
import * as Plot from '@observablehq/plot';
import { drawToFit, element } from '../dom';
import * as format from '../format';
import type { Picture } from '../results';

export interface Scale {
  low: number;
  high: number;
  stops: string[]; // CSS variables with #rrggbb colours, from low to high
  root: boolean; // colour grows with the square root: small weights stay visible
}

/** Zero in the middle, equally far both ways. */
export function centredScale(pictures: Picture[]): Scale {
  const high = extent(pictures, Math.abs) || 1;
  return { low: -high, high, stops: ['--below', '--zero', '--above'], root: false };
}

/** From nothing to the largest weight. */
export function weightScale(pictures: Picture[]): Scale {
  return {
    low: 0,
    high: extent(pictures, (value) => value) || 1,
    stops: ['--zero', '--weight', '--most'],
    root: true,
  };
}

function extent(pictures: Picture[], measure: (value: number) => number): number {
  let most = 0;
  for (const { values } of pictures) {
    for (const row of values) {
      for (const value of row) if (value !== null) most = Math.max(most, measure(value));
    }
  }
  return most;
}

function channels(variable: string): number[] {
  const color = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

/** A share of the way from low to high -> colour, for the theme of now. */
function ramp(scale: Scale): (share: number) => string {
  const stops = scale.stops.map(channels);
  return (share) => {
    const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[k]!.map((from, c) => from + (at - k) * (stops[k + 1]![c]! - from));
    return `rgb(${mixed.map(Math.round).join(',')})`;
  };
}

function shareOf(scale: Scale, value: number): number {
  const share = (value - scale.low) / (scale.high - scale.low);
  return scale.root ? Math.sqrt(Math.max(0, share)) : share;
}

/** At most about `most` indices of `count`, a power of two apart. */
function someOf(count: number, most: number): number[] {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(count / most)));
  return Array.from({ length: Math.ceil(count / step) }, (_, k) => k * step);
}

const PLAIN = { marginTop: 22, marginLeft: 34, marginRight: 4, marginBottom: 28 };
const COMPACT = { marginTop: 1, marginLeft: 1, marginRight: 1, marginBottom: 1 };

/** Compact pictures have no axes: many of a kind side by side. */
function draw(picture: Picture, scale: Scale, compact: boolean, width: number): SVGSVGElement {
  const rows = picture.values.length;
  const columns = picture.values[0]?.length ?? 0;
  const margin = compact ? COMPACT : PLAIN;
  const inner = width - margin.marginLeft - margin.marginRight;
  // Cells are square where that gives a handy shape.
  const height = Math.max(64, Math.min(inner, (inner * rows) / columns));
  const axis = (values: number[], count: number, most: number) => ({
    axis: compact ? null : undefined,
    ticks: someOf(count, most).map((k) => k + 0.5),
    tickFormat: (at: number) => format.short(values[Math.floor(at)] ?? Math.floor(at)),
    tickSize: 0,
    label: null,
  });
  const color = ramp(scale);
  return Plot.plot({
    width,
    height: height + margin.marginTop + margin.marginBottom,
    ...margin,
    ariaLabel: `${picture.title}: ${rows} by ${columns} values`,
    x: { domain: [0, columns], ...axis(picture.x_values, columns, 5) },
    y: { domain: [rows, 0], ...axis(picture.y_values, rows, Math.min(8, height / 16)) },
    color: { type: 'identity' },
    marks: [
      Plot.raster(
        picture.values
          .flat()
          .map((value) => (value === null ? null : color(shareOf(scale, value)))),
        { width: columns, height: rows, imageRendering: 'pixelated' },
      ),
      Plot.frame({ stroke: 'var(--line)' }),
      Plot.text(compact ? [] : [`${picture.y} ↓   ${picture.x} →`], {
        frameAnchor: 'top-left',
        dx: -margin.marginLeft,
        dy: -18,
        fill: 'var(--soft)',
      }),
    ],
  }) as SVGSVGElement;
}

/** The colours and what they stand for. */
function key(scale: Scale): HTMLElement {
  const color = ramp(scale);
  const stops = Array.from({ length: 9 }, (_, k) =>
    color(shareOf(scale, scale.low + (k / 8) * (scale.high - scale.low))),
  );
  return element(
    'span',
    { class: 'key' },
    format.short(scale.low),
    element('span', {
      class: 'ramp',
      style: `background:linear-gradient(90deg,${stops.join(',')})`,
    }),
    format.short(scale.high),
  );
}

/** "offset 3, head 1: -0.41" for the cell under the pointer, or nothing. */
function readingAt(picture: Picture, area: DOMRect, event: PointerEvent): string {
  const { values, x, y, x_values: xs, y_values: ys } = picture;
  const index = (from: number, size: number, count: number) => Math.floor((from / size) * count);
  const i = index(event.clientY - area.top, area.height, values.length);
  const j = index(event.clientX - area.left, area.width, values[0]?.length ?? 0);
  const value = values[i]?.[j];
  if (value === undefined || value === null) return '';
  const place = `${y} ${format.short(ys[i] ?? i)}, ${x} ${format.short(xs[j] ?? j)}`;
  return `${place}: ${format.short(value)}`;
}

/** The scale of colours and a place for the value under the pointer. */
export class Reading {
  readonly output = element('output', {});
  readonly box: HTMLElement;
  private readonly keyBox = element('span', {});

  constructor(private readonly scale: Scale) {
    this.box = element('div', { class: 'reading' }, this.keyBox, this.output);
  }

  redraw(): void {
    this.keyBox.replaceChildren(key(this.scale));
  }
}

export interface PictureOptions {
  picture: Picture;
  scale: Scale;
  compact: boolean;
  reading: Reading;
}

/** The picture as a figure, and the function that draws it again (another theme). */
export function pictureFigure({ picture, scale, compact, reading }: PictureOptions) {
  const box = element('div', { class: 'plot' });
  const redraw = drawToFit(box, (width) => {
    const svg = draw(picture, scale, compact, width);
    const image = svg.querySelector('image');
    svg.addEventListener('pointermove', (event) => {
      if (image)
        reading.output.textContent = readingAt(picture, image.getBoundingClientRect(), event);
    });
    svg.addEventListener('pointerleave', () => {
      reading.output.textContent = '';
    });
    reading.redraw();
    return svg;
  });
  const caption = element('figcaption', {}, picture.title);
  const figure = element('figure', { class: 'picture' }, box, caption);
  if (!compact) caption.before(reading.box);
  return { figure, redraw };
}
