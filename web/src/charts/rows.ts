// A dot plot with one row an encoding: names on the left, a value or two on the
// line, a word at the right.
import * as Plot from '@observablehq/plot';
import type { Series } from '../series';
import { TIP } from './tip';

export interface Row {
  series: Series;
  value: number;
  range?: [number, number] | undefined;
  other?: number | undefined; // a second, hollow mark, joined to the first
  otherRange?: [number, number] | undefined;
  more?: number[]; // single measurements, small
  note: string; // at the right end
  tip: string;
}

export interface RowsOptions {
  width: number;
  label: string;
  title: string; // above the axis
  noteTitle?: string; // above the notes
  rows: Row[];
  domain?: [number, number]; // from zero if absent
  rule?: number;
  format: (value: number) => string;
}

const MARGIN_RIGHT = 62; // for the notes
const ROW = 28; // a row's height: two lines of text
const LETTER = 7; // its width, on average
const TICK = 80; // room for a number on the axis

export function rowsChart(options: RowsOptions): SVGSVGElement {
  const { rows } = options;
  const titles = new Map(rows.map(({ series }) => [series.key, series.title]));
  const longest = Math.max(0, ...[...titles.values()].map((title) => title.length));
  const all = rows.flatMap(({ value, other, range, otherRange, more }) => [
    value,
    other ?? value,
    ...(range ?? []),
    ...(otherRange ?? []),
    ...(more ?? []),
  ]);
  const y = ({ series }: Row) => series.key;
  const color = ({ series }: Row) => series.color;
  const ranged = (pick: 'range' | 'otherRange') =>
    Plot.ruleY(
      rows.filter((row) => row[pick]),
      {
        y,
        x1: (row: Row) => row[pick]![0],
        x2: (row: Row) => row[pick]![1],
        stroke: color,
        strokeWidth: 5,
        strokeOpacity: 0.25,
      },
    );
  const paired = rows.filter(({ other }) => other !== undefined);
  const marginLeft = Math.min(0.4 * options.width, 16 + LETTER * longest);
  return Plot.plot({
    width: options.width,
    height: ROW * rows.length + 72,
    marginTop: 60,
    marginBottom: 12,
    marginLeft,
    marginRight: MARGIN_RIGHT,
    ariaLabel: options.label,
    color: { type: 'identity' },
    x: {
      axis: 'top',
      domain: options.domain ?? [0, 1.04 * Math.max(0, ...all)],
      nice: true,
      ticks: Math.max(2, (options.width - marginLeft - MARGIN_RIGHT) / TICK),
      grid: true,
      label: null,
      tickSize: 0,
      tickFormat: options.format,
    },
    y: {
      domain: rows.map(y),
      label: null,
      tickSize: 0,
      tickFormat: (key: string) => titles.get(key) ?? key,
    },
    marks: [
      Plot.text([options.title], {
        frameAnchor: 'top-left',
        dx: -marginLeft,
        dy: -50,
        fill: 'var(--soft)',
      }),
      Plot.text([options.noteTitle ?? ''], {
        frameAnchor: 'top-right',
        dx: MARGIN_RIGHT,
        dy: -50,
        fill: 'var(--soft)',
      }),
      options.rule === undefined ? null : Plot.ruleX([options.rule], { stroke: 'var(--soft)' }),
      ranged('range'),
      ranged('otherRange'),
      Plot.ruleY(paired, { y, x1: 'value', x2: 'other', stroke: color, strokeWidth: 1.5 }),
      Plot.dot(
        rows.flatMap((row) => (row.more ?? []).map((value) => ({ ...row, value }))),
        { y, x: 'value', r: 2.5, fill: color, fillOpacity: 0.6 },
      ),
      Plot.dot(paired, {
        y,
        x: 'other',
        r: 4.5,
        stroke: color,
        strokeWidth: 2,
        fill: 'var(--paper)',
        className: 'point other',
        ariaLabel: ({ series, other }: Row) => `${series.key} ${other}`,
      }),
      Plot.dot(rows, {
        y,
        x: 'value',
        r: 5,
        fill: color,
        className: 'point',
        ariaLabel: ({ series, value }: Row) => `${series.key} ${value}`,
      }),
      Plot.text(rows, { y, text: 'note', frameAnchor: 'right', textAnchor: 'start', dx: 8 }),
      Plot.tip(rows, Plot.pointerY({ y, x: 'value', title: 'tip', ...TIP })),
    ],
  }) as SVGSVGElement;
}
