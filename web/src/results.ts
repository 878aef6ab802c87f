// results.json as the page reads it (docs/lab.md has every field), and the
// groupings that more than one figure needs. A number that is not finite is null.
export interface Evaluation {
  length: number;
  loss?: number | null;
  accuracy?: number | null;
  refused?: string;
}

export interface Run {
  task: string;
  encoding: string;
  seed: number;
  loss_curve?: { step: number; loss: number | null }[];
  tokens_per_second?: number | null;
  evaluations?: Evaluation[];
}

export interface Extension {
  seed: number;
  method: string;
  fine_tune_steps: number;
  evaluations?: Evaluation[];
}

export interface Cost {
  length: number;
  encoding: string;
  path: string;
  seconds_per_step?: number | null;
  spread?: [number, number];
  peak_memory_bytes?: number | null;
}

export interface Picture {
  encoding: string;
  seed?: number;
  kind: string;
  title: string;
  x: string;
  y: string;
  x_values: number[];
  y_values: number[];
  values: (number | null)[][];
}

export interface EncodingInfo {
  name: string;
  title: string;
  short?: string;
  formula?: string;
  paper?: string;
  note?: string;
}

export interface TaskSettings {
  name: string;
  train_length?: number;
}

/** A mean over seeds with its 95 % interval, as the study computed it. */
export interface Summary {
  task: string;
  encoding: string;
  length: number;
  metric: string;
  low: number;
  high: number;
}

export interface Results {
  settings: { train_length?: number; tasks?: (string | TaskSettings)[]; encodings?: string[] };
  encodings: EncodingInfo[];
  runs: Run[];
  extensions: Extension[];
  attention_cost: Cost[];
  pictures: Picture[];
  summary: Summary[];
}

/** A partial study may lack whole lists: they are empty then. */
export function parseResults(text: string): Results {
  const read = JSON.parse(text) as Partial<Results>;
  return {
    settings: read.settings ?? {},
    encodings: read.encodings ?? [],
    runs: read.runs ?? [],
    extensions: read.extensions ?? [],
    attention_cost: read.attention_cost ?? [],
    pictures: read.pictures ?? [],
    summary: read.summary ?? [],
  };
}

/** The language modelling task, whose figure is loss; all others have exact answers. */
export const TEXT = 'text';

/** Encodings with any data, in the order of the study's settings. */
export function encodingsOf(results: Results): string[] {
  const found = new Set<string>();
  for (const list of [results.runs, results.attention_cost, results.pictures]) {
    for (const { encoding } of list) found.add(encoding);
  }
  const asked = (results.settings.encodings ?? []).filter((name) => found.has(name));
  return [...new Set([...asked, ...found])];
}

/** Tasks that have runs, in the order of the study's settings. */
export function tasksOf(results: Results): string[] {
  const found = new Set(results.runs.map((run) => run.task));
  const asked = (results.settings.tasks ?? [])
    .map((task) => (typeof task === 'string' ? task : task.name))
    .filter((name) => found.has(name));
  return [...new Set([...asked, ...found])];
}

/** The length that a task was trained at, 0 if the study does not say. */
export function trainLength({ settings }: Results, task: string): number {
  for (const one of settings.tasks ?? []) {
    if (typeof one !== 'string' && one.name === task && one.train_length) return one.train_length;
  }
  return settings.train_length ?? 0;
}

export interface Point {
  x: number;
  mean: number;
  low: number;
  high: number;
  seeds: number;
}

/** Mean and range of the values at each x, by rising x. */
export function pool(values: Iterable<{ x: number; value?: number | null }>): Point[] {
  const groups = new Map<number, number[]>();
  for (const { x, value } of values) {
    if (typeof value !== 'number' || !Number.isFinite(value)) continue;
    const group = groups.get(x);
    if (group) group.push(value);
    else groups.set(x, [value]);
  }
  const points = [...groups].map(([x, group]) => ({
    x,
    mean: group.reduce((sum, value) => sum + value, 0) / group.length,
    low: Math.min(...group),
    high: Math.max(...group),
    seeds: group.length,
  }));
  return points.sort((a, b) => a.x - b.x);
}

export type Metric = 'loss' | 'accuracy';

/** Points by length of everything that was evaluated in `runs`. */
export function byLength(runs: { evaluations?: Evaluation[] }[], metric: Metric): Point[] {
  const values = runs.flatMap((run) => run.evaluations ?? []);
  return pool(values.map((one) => ({ x: one.length, value: one[metric] })));
}

/** The same of one task and encoding, with the study's intervals in place of ranges. */
export function scoresOf(
  results: Results,
  task: string,
  encoding: string,
  metric: Metric,
): { points: Point[]; refused: number | undefined } {
  const mine = <T extends { task: string; encoding: string }>(list: T[]): T[] =>
    list.filter((one) => one.task === task && one.encoding === encoding);
  const runs = mine(results.runs);
  const summary = mine(results.summary).filter((one) => one.metric === metric);
  const points = byLength(runs, metric).map((point) => {
    const { low, high } = summary.find(({ length }) => length === point.x) ?? point;
    return { ...point, low, high };
  });
  return { points, refused: firstRefused(runs) };
}

/** The first length that any of `runs` refused. */
export function firstRefused(runs: { evaluations?: Evaluation[] }[]): number | undefined {
  const refused = runs
    .flatMap((run) => run.evaluations ?? [])
    .filter((one) => one.refused !== undefined)
    .map((one) => one.length);
  return refused.length > 0 ? Math.min(...refused) : undefined;
}
