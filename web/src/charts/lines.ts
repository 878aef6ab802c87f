// Lines with symbols, the range over seeds, and names at their ends: the one
// chart behind loss, accuracy, extension and training.
import * as Plot from '@observablehq/plot';
import { multiple } from '../format';
import type { Point } from '../results';
import { classOf, type Series } from '../series';
import { spread } from './labels';
import { TIP } from './tip';

export interface Line {
  series: Series;
  points: Point[];
  faint?: { x: number; y: number }[][]; // single seeds, behind the mean
  stops?: boolean; // the encoding refuses what comes after the last point
}

export interface XAxis {
  label: string;
  log: boolean;
  domain: [number, number];
  ticks?: number[];
  format: (x: number) => string;
}

export interface LinesOptions {
  width: number;
  height: number;
  label: string; // what the chart shows, for screen readers
  lines: Line[];
  x: XAxis;
  y: { label: string; domain: [number, number]; format: (y: number) => string };
  named: boolean; // names at the ends, else the legend alone
  range: 'band' | 'bar' | 'none';
  symbols: boolean;
  rule?: number | undefined; // a dashed line at this height
  tip: (line: Line, point: Point) => string;
}

const LINE = 16; // a line of text at 14 px
const NAME_AT = 12; // right of the last point
const LETTER = 7.4; // a bold letter of it, on average

/** Lengths of `lines` on a logarithmic axis, each with its multiple of the training length. It
 * stays the same whichever of the lines are shown. */
export function lengthAxis(lines: Line[], trained: number): XAxis {
  const ticks = [...new Set(lines.flatMap(({ points }) => points.map(({ x }) => x)))];
  const [low, high] = [Math.min(...ticks), Math.max(...ticks)];
  return {
    label: trained > 0 ? 'Length in tokens, and as a multiple of training' : 'Length in tokens',
    log: true,
    domain: low < high ? [low, high] : [low / 2, 2 * high],
    ticks,
    format: (x) => `${x}\n${multiple(x, trained)}`,
  };
}

/** Low to high over all lines and `more`, with a little air. */
export function domainOf(lines: Line[], more: number[] = []): [number, number] {
  const values = lines.flatMap(({ points, faint }) => [
    ...points.flatMap(({ low, high }) => [low, high]),
    ...(faint ?? []).flatMap((seed) => seed.map(({ y }) => y)),
  ]);
  values.push(...more);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(low <= high)) return [0, 1];
  const air = 0.05 * (high - low || Math.abs(high) || 1);
  return [low - air, high + air];
}

function seriesMarks(line: Line, options: LinesOptions): Plot.Markish[] {
  const { series, points } = line;
  const className = classOf(series.key);
  const stroke = { stroke: series.color, strokeDasharray: series.dash, className };
  const marks: Plot.Markish[] = [];
  if (options.range === 'band') {
    marks.push(
      Plot.areaY(points, {
        x: 'x',
        y1: 'low',
        y2: 'high',
        fill: series.color,
        fillOpacity: 1.2 / Math.max(8, options.lines.length), // many bands cover one another
        className,
      }),
    );
  } else if (options.range === 'bar') {
    const ranged = points.filter(({ low, high }) => low < high);
    marks.push(
      Plot.ruleX(ranged, { x: 'x', y1: 'low', y2: 'high', ...stroke, strokeDasharray: undefined }),
    );
  }
  for (const seed of line.faint ?? []) {
    marks.push(
      Plot.lineY(seed, { x: 'x', y: 'y', strokeWidth: 0.75, strokeOpacity: 0.4, ...stroke }),
    );
  }
  marks.push(Plot.lineY(points, { x: 'x', y: 'mean', strokeWidth: 2, ...stroke }));
  if (options.symbols) {
    marks.push(
      Plot.dot(points, {
        x: 'x',
        y: 'mean',
        r: 3.5,
        symbol: series.symbol,
        fill: series.color,
        className: `${className} point`,
        ariaLabel: ({ x, mean }: Point) => `${series.key} ${x} ${mean}`,
      }),
    );
  }
  if (line.stops) {
    marks.push(
      Plot.dot(points.slice(-1), {
        x: 'x',
        y: 'mean',
        r: 7,
        symbol: 'times',
        stroke: series.color,
        strokeWidth: 2.5,
        className,
      }),
    );
  }
  return marks;
}

/** Where lines are drawn, in pixels: top and bottom edge, room at the right. */
interface Area {
  top: number;
  bottom: number;
  right: number;
}

/** Names of lines beside their last points: of those that reach the right end, or of those
 * that stop before it, which stand above their crosses. */
function nameMarks(options: LinesOptions, area: Area, stopping: boolean): Plot.Markish[] {
  const { top, bottom } = area;
  const ends = options.lines.flatMap(({ series, points, stops = false }) => {
    const end = points[points.length - 1];
    return end && stops === stopping ? [{ series, end }] : [];
  });
  const raise = stopping ? LINE : 0;
  const [low, high] = options.y.domain;
  const scale = (bottom - top) / (high - low);
  const places = spread(
    ends.map(({ end }) => bottom - raise - (end.mean - low) * scale),
    LINE,
    top,
    bottom,
  );
  return ends.map(({ series, end }, index) =>
    Plot.text([end], {
      x: 'x',
      y: () => low + (bottom - places[index]!) / scale,
      text: () => series.title,
      dx: NAME_AT,
      textAnchor: 'start',
      lineWidth: stopping ? Infinity : (area.right - NAME_AT) / 14, // in ems
      textOverflow: 'ellipsis',
      fill: series.color,
      stroke: 'var(--paper)',
      strokeWidth: 5,
      className: `${classOf(series.key)} name`,
    }),
  );
}

export function linesChart(options: LinesOptions): SVGSVGElement {
  const longest = Math.max(0, ...options.lines.map(({ series }) => series.title.length));
  const margin = {
    marginTop: 34,
    // Ticks of one line or two, then the label.
    marginBottom: 30 + LINE * options.x.format(1).split('\n').length,
    marginLeft: 46,
    marginRight: options.named ? Math.min(0.36 * options.width, NAME_AT + LETTER * longest) : 12,
  };
  const area = {
    top: margin.marginTop,
    bottom: options.height - margin.marginBottom,
    right: margin.marginRight,
  };
  const tips = options.lines.flatMap((line) => line.points.map((point) => ({ line, point })));
  const chart = Plot.plot({
    width: options.width,
    height: options.height,
    ...margin,
    ariaLabel: options.label,
    x: {
      type: options.x.log ? 'log' : 'linear',
      base: 2,
      domain: options.x.domain,
      label: null,
      ticks: options.x.ticks ?? 5,
      tickFormat: options.x.format,
      tickSize: 0,
      tickPadding: 8,
    },
    y: {
      domain: options.y.domain,
      grid: true,
      ticks: 5,
      label: null,
      tickSize: 0,
      tickFormat: options.y.format,
    },
    marks: [
      Plot.text([options.y.label], {
        frameAnchor: 'top-left',
        dx: -margin.marginLeft,
        dy: -26,
        fill: 'var(--soft)',
      }),
      Plot.text([options.x.label], {
        frameAnchor: 'bottom-left',
        dy: margin.marginBottom - 6,
        fill: 'var(--soft)',
      }),
      options.rule === undefined
        ? null
        : Plot.ruleY([options.rule], { stroke: 'var(--soft)', strokeDasharray: '5 4' }),
      ...options.lines.flatMap((line) => seriesMarks(line, options)),
      ...(options.named ? [true, false].flatMap((stop) => nameMarks(options, area, stop)) : []),
      Plot.tip(
        tips,
        Plot.pointer({
          x: ({ point }) => point.x,
          y: ({ point }) => point.mean,
          title: ({ line, point }) => options.tip(line, point),
          ...TIP,
        }),
      ),
    ],
  });
  return chart as SVGSVGElement;
}
