// What a training step costs: fused against materialised attention, every
// encoding against none, and tokens a second over the whole training.
import { choice, drawToFit, element } from '../dom';
import * as format from '../format';
import { pool, tasksOf, type Cost, type Results } from '../results';
import type { Shown } from '../series';
import { rowsChart, type Row } from './rows';

const FUSED = 'fused';
const MATERIALISED = 'materialised';

function find(costs: Cost[], encoding: string, path: string): Cost | undefined {
  return costs.find((cost) => cost.encoding === encoding && cost.path === path);
}

/** Lengths with a measurement, the longest first. */
function lengthsOf(costs: Cost[]): number[] {
  return [...new Set(costs.map(({ length }) => length))].sort((a, b) => b - a);
}

/** Buttons to choose a length, if there is more than one. */
function lengthPicker(lengths: number[], chosen: (length: number) => void): HTMLElement[] {
  const options = lengths.map((value) => ({ value, title: `${value} tokens` }));
  const picker = choice('Length of the sequence', options, chosen);
  return picker ? [picker] : [];
}

interface Measure {
  title: string;
  of: (cost: Cost) => number | undefined;
  spread: (cost: Cost) => [number, number] | undefined;
  write: (value: number) => string;
  key: string;
}

const MEASURES: Measure[] = [
  {
    key: 'time',
    title: 'Time of a training step',
    of: (cost) => cost.seconds_per_step ?? undefined,
    spread: (cost) => cost.spread,
    write: format.milliseconds,
  },
  {
    key: 'memory',
    title: 'Peak memory',
    of: (cost) => cost.peak_memory_bytes ?? undefined,
    spread: () => undefined,
    write: format.megabytes,
  },
];

function pairedRows(costs: Cost[], shown: Shown, measure: Measure): Row[] {
  return shown.all.flatMap((series): Row[] => {
    const fused = find(costs, series.key, FUSED);
    const value = fused && measure.of(fused);
    if (!fused || value === undefined) return [];
    const whole = find(costs, series.key, MATERIALISED);
    const other = whole && measure.of(whole);
    return [
      {
        series,
        value,
        other,
        range: measure.spread(fused),
        otherRange: whole && measure.spread(whole),
        note: other === undefined ? '' : format.ratio(other / value),
        tip:
          `${series.title}\nfused ${measure.write(value)}` +
          (other === undefined ? '' : `\nmaterialised ${measure.write(other)}`),
      },
    ];
  });
}

export function costFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const costs = results.attention_cost;
  const lengths = lengthsOf(costs.filter(({ path }) => path === FUSED));
  let length = lengths[0];
  if (length === undefined) return false;
  const redraws: (() => void)[] = [];
  const panels = MEASURES.filter((measure) =>
    costs.some((cost) => measure.of(cost) !== undefined),
  ).map((measure) => {
    const box = element('div', { class: 'plot', 'data-measure': measure.key });
    redraws.push(
      drawToFit(box, (width) =>
        rowsChart({
          width,
          label: `${measure.title} at ${length} tokens, fused and materialised, by encoding`,
          title: measure.title,
          noteTitle: 'materialised ÷ fused',
          rows: pairedRows(
            costs.filter((cost) => cost.length === length),
            shown,
            measure,
          ),
          format: measure.write,
        }),
      ),
    );
    return element('div', { class: 'panel' }, box);
  });
  const picker = lengthPicker(lengths, (value) => {
    length = value;
    for (const redraw of redraws) redraw();
  });
  figure
    .querySelector('figcaption')!
    .before(...picker, element('div', { class: 'panels large' }, ...panels));
  return true;
}

export function positionFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const costs = results.attention_cost.filter(({ path }) => path === FUSED);
  const lengths = lengthsOf(
    costs.filter((cost) => cost.encoding === 'none' && cost.seconds_per_step),
  );
  let length = lengths[0];
  if (length === undefined) return false;
  const box = element('div', { class: 'plot' });
  const redraw = drawToFit(box, (width) => {
    const here = costs.filter((cost) => cost.length === length);
    const none = find(here, 'none', FUSED)!.seconds_per_step!;
    const rows = shown.all.flatMap((series): Row[] => {
      const cost = find(here, series.key, FUSED);
      if (!cost?.seconds_per_step) return [];
      const value = cost.seconds_per_step / none;
      return [
        {
          series,
          value,
          range: cost.spread && [cost.spread[0] / none, cost.spread[1] / none],
          note: format.ratio(value),
          tip:
            `${series.title}\n${format.milliseconds(cost.seconds_per_step)}, ` +
            `${format.ratio(value)} of none`,
        },
      ];
    });
    const values = rows.flatMap(({ value, range }) => [value, ...(range ?? [])]);
    return rowsChart({
      width,
      label: `Time of a step at ${length} tokens as a multiple of no position, by encoding`,
      title: 'Time of a training step, none = 1',
      rows: rows.sort((a, b) => a.value - b.value),
      domain: [Math.min(1, ...values), Math.max(1, ...values)],
      rule: 1,
      format: format.ratio,
    });
  });
  const picker = lengthPicker(lengths, (value) => {
    length = value;
    redraw();
  });
  figure.querySelector('figcaption')!.before(...picker, box);
  return true;
}

export function speedFigure(figure: HTMLElement, results: Results, shown: Shown): boolean {
  const task = tasksOf(results)[0];
  const rows = shown.all.flatMap((series): Row[] => {
    const speeds = results.runs
      .filter((run) => run.task === task && run.encoding === series.key)
      .map((run) => run.tokens_per_second);
    const [point] = pool(speeds.map((value) => ({ x: 0, value })));
    if (!point) return [];
    return [
      {
        series,
        value: point.mean,
        more: speeds.filter((speed): speed is number => Number.isFinite(speed)),
        note: format.count(point.mean),
        tip:
          `${series.title}\n${format.count(point.mean)} tokens a second\n` +
          `${format.count(point.low)} to ${format.count(point.high)}`,
      },
    ];
  });
  if (rows.length === 0) return false;
  rows.sort((a, b) => b.value - a.value);
  const box = element('div', { class: 'plot' });
  drawToFit(box, (width) =>
    rowsChart({
      width,
      label: 'Tokens trained a second, by encoding',
      title: 'Tokens trained a second',
      rows,
      format: format.count,
    }),
  );
  figure.querySelector('figcaption')!.before(box);
  return true;
}
