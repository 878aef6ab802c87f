// A figure of the explorer: a title, a chart that fits its box, the value under the
// pointer, and buttons that save it.
import * as Plot from '@observablehq/plot';
import { TIP } from '../charts/tip';
import { drawToFit, element } from '../dom';
import { compact } from '../format';
import { csv, download, joined, type Table } from '../save';
import { cellAt, heatChart, heatKey, readingAt, type Heat } from './heat';

export interface Line {
  label: string;
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  dash?: boolean;
  series?: number; // its colour, where that is not its place in the list
}
export interface Chart {
  label: string; // for screen readers
  x: string;
  y: string;
  lines: Line[];
  band?: { label: string; x: ArrayLike<number>; low: ArrayLike<number>; high: ArrayLike<number> };
  marks?: { at: number; label: string }[]; // upright dashed lines
  logX?: boolean;
  logY?: boolean;
  zero?: boolean; // zero belongs to the picture
  height?: number;
}

export const seriesColor = (index: number) => `var(--series-${(index % 8) + 1})`;

/** Labels above a chart: each in the colour of its line. */
function legend(lines: Line[]): HTMLElement {
  return element(
    'ul',
    { class: 'names' },
    ...lines.map(({ label, dash, series }, index) =>
      element(
        'li',
        {},
        element('i', {
          style: `border-top-style:${dash ? 'dashed' : 'solid'};color:${seriesColor(series ?? index)}`,
        }),
        label,
      ),
    ),
  );
}

/** Powers of ten, or of two where there are few, that values lie between. */
function powers(values: number[]): number[] {
  const sizes = values.filter((one) => one > 0 && Number.isFinite(one));
  const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
  const base = high / low < 100 ? 2 : 10;
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, n) => base ** (first + n));
}

/** With `tip`, the value nearest to the pointer shows; it takes longer to build than the rest. */
export function lineChart(chart: Chart, width: number, tip: boolean): SVGSVGElement {
  const points = chart.lines.map(({ label, x, y }, index) =>
    Array.from(y, (value, n) => ({ x: x[n]!, y: value, label, index })),
  );
  const { band } = chart;
  const area = band
    ? Array.from(band.x, (x, n) => ({ x, low: band.low[n]!, high: band.high[n]! }))
    : [];
  const svg = Plot.plot({
    width,
    height: chart.height ?? 260,
    marginTop: 30,
    marginLeft: 52,
    marginBottom: 42,
    marginRight: 24, // half of the last label
    ariaLabel: chart.label,
    x: {
      type: chart.logX ? 'log' : 'linear',
      base: chart.logX ? 2 : 10,
      label: null,
      ticks: Math.max(3, Math.floor(width / 90)),
      tickFormat: (at: number) => compact(at),
      tickSize: 0,
      tickPadding: 8,
    },
    y: {
      type: chart.logY ? 'log' : 'linear',
      grid: true,
      ticks: chart.logY ? powers(points.flat().map(({ y }) => y)) : 5,
      label: null,
      tickSize: 0,
      tickFormat: (at: number) => compact(at),
      ...(chart.zero ? { zero: true } : {}),
    },
    marks: [
      Plot.text([chart.y], { frameAnchor: 'top-left', dx: -52, dy: -22, fill: 'var(--soft)' }),
      Plot.text([chart.x], { frameAnchor: 'bottom-right', dy: 36, fill: 'var(--soft)' }),
      Plot.areaY(area, { x: 'x', y1: 'low', y2: 'high', fill: seriesColor(0), fillOpacity: 0.16 }),
      Plot.ruleX(chart.marks ?? [], { x: 'at', stroke: 'var(--soft)', strokeDasharray: '5 4' }),
      ...points.map((line, index) =>
        Plot.lineY(line, {
          x: 'x',
          y: 'y',
          stroke: seriesColor(chart.lines[index]!.series ?? index),
          strokeWidth: 2,
          strokeDasharray: chart.lines[index]!.dash ? '6 4' : undefined,
        }),
      ),
      Plot.text(chart.marks ?? [], {
        x: 'at',
        text: 'label',
        frameAnchor: 'top',
        textAnchor: 'start',
        dx: 5,
        dy: 2,
        fill: 'var(--soft)',
        stroke: 'var(--paper)', // readable where it crosses a line
        strokeWidth: 4,
      }),
      ...(tip
        ? [
            Plot.tip(
              points.flat(),
              Plot.pointer({
                x: 'x',
                y: 'y',
                title: ({ x, y, label }) => `${label}\n${chart.x} ${compact(x)}: ${compact(y)}`,
                ...TIP,
              }),
            ),
          ]
        : []),
    ],
  }) as SVGSVGElement;
  // A label needs a role that may have one.
  for (const group of svg.querySelectorAll('g[aria-label]')) group.setAttribute('role', 'group');
  return svg;
}

/** A name that a file may have. */
const fileName = (title: string) =>
  title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '')
    .slice(0, 60);

async function savePng(figure: HTMLElement, name: string): Promise<void> {
  const svg = joined(figure);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = 2; // sharp on paper
  const canvas = element('canvas', {
    width: String(scale * image.width),
    height: String(scale * image.height),
  });
  const context = canvas.getContext('2d')!;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--paper');
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && download(`${name}.png`, 'image/png', blob));
}

/** A figure that is filled again and again, with the same buttons. */
export class FigureBox {
  readonly root: HTMLElement;
  private readonly heading = element('h3', {});
  private readonly names = element('div', {});
  private readonly plot = element('div', { class: 'plot' });
  private readonly keyBox = element('span', {});
  private readonly output = element('output', {});
  private readonly reading: HTMLElement;
  private readonly caption = element('figcaption', {});
  private draw: (width: number) => SVGSVGElement | undefined = () => undefined;
  private table: () => Table = () => ({ head: [], rows: [] });
  private readonly redrawPlot: () => void;
  private pointed = false; // whether the pointer is over the plot

  constructor(
    kind: string,
    title: string,
    private readonly square = false,
  ) {
    this.reading = element('div', { class: 'reading' }, this.keyBox, this.output);
    const button = (label: string, save: () => void) => {
      const made = element('button', { type: 'button' }, label);
      made.addEventListener('click', save);
      return made;
    };
    const name = () => fileName(this.heading.textContent ?? kind) || kind;
    this.root = element(
      'figure',
      { class: 'card', 'data-figure': kind },
      this.heading,
      this.names,
      this.plot,
      this.reading,
      this.caption,
      element(
        'div',
        { class: 'save', role: 'group', 'aria-label': `Save: ${title}` },
        button('SVG', () => download(`${name()}.svg`, 'image/svg+xml', joined(this.root))),
        button('PNG', () => void savePng(this.root, name())),
        button('CSV', () => download(`${name()}.csv`, 'text/csv', csv(this.table()))),
      ),
    );
    this.title(title);
    this.plot.addEventListener('pointerenter', () => {
      this.pointed = true;
      if (this.reading.hidden) this.redraw();
    });
    this.plot.addEventListener('pointerleave', () => {
      this.pointed = false;
    });
    this.redrawPlot = drawToFit(
      this.plot,
      (width) => this.draw(width) ?? document.createElementNS('http://www.w3.org/2000/svg', 'svg'),
    );
  }

  title(text: string, caption = ''): this {
    this.heading.textContent = text;
    this.caption.textContent = caption;
    this.caption.hidden = caption === '';
    return this;
  }

  heat(heat: Heat): void {
    this.names.replaceChildren();
    this.table = () => ({
      head: [heat.y, heat.x, 'value'],
      rows: heat.values.flatMap((row, y) =>
        Array.from(row, (value, x) => [
          (heat.names ?? heat.rows)?.[y] ?? heat.firstY + y,
          heat.names?.[x] ?? heat.firstX + x,
          Number.isFinite(value) ? value : null,
        ]),
      ),
    });
    this.draw = (width) => {
      const svg = heatChart(heat, width, this.square);
      const image = svg.querySelector('image')!;
      svg.addEventListener('pointermove', (event) => {
        this.output.textContent = readingAt(heat, image, event);
      });
      svg.addEventListener('pointerleave', () => {
        this.output.textContent = '';
      });
      svg.addEventListener('click', (event) => {
        const [row, column] = cellAt(heat, image, event);
        if (heat.values[row]?.[column] !== undefined) heat.picked?.(row, column);
      });
      this.keyBox.replaceChildren(heatKey(heat));
      return svg;
    };
    this.reading.hidden = false;
    this.redraw();
  }

  lines(chart: Chart): void {
    this.reading.hidden = true;
    const names = chart.lines.length > 1 ? [legend(chart.lines)] : [];
    if (chart.band)
      names.push(
        element(
          'ul',
          { class: 'names' },
          element('li', {}, element('i', { class: 'area' }), chart.band.label),
        ),
      );
    this.names.replaceChildren(...names);
    this.table = () => ({
      head: ['series', 'x', 'y'],
      rows: [
        ...chart.lines.flatMap(({ label, x, y }) =>
          Array.from(y, (value, n) => [label, x[n], value]),
        ),
        ...(['low', 'high'] as const).flatMap((end) =>
          chart.band
            ? Array.from(chart.band[end], (value, n) => [
                `${chart.band!.label} (${end})`,
                chart.band!.x[n],
                value,
              ])
            : [],
        ),
      ],
    });
    this.draw = (width) => lineChart(chart, width, this.pointed);
    this.redraw();
  }

  /** A drawing of the caller's own, with its key. */
  own(draw: (width: number) => SVGSVGElement, table: () => Table, key: HTMLElement): void {
    this.reading.hidden = true;
    this.names.replaceChildren(key);
    this.draw = draw;
    this.table = table;
    this.redraw();
  }

  redraw(): void {
    this.redrawPlot();
  }
}
