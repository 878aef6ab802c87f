// The C++ core, as WebAssembly in workers: questions and answers as JSON, rows of
// numbers as float64 (web/wasm/ask.cc).
import { Trained, type TrainedFile } from './trained';
import type { FromWorker, ToWorker } from './worker';

export type Row = Float64Array;

export interface Slider {
  lowest: number;
  highest: number;
  step: number;
  logarithmic: boolean;
}
export interface Field {
  name: string;
  type: 'int' | 'real' | 'flag' | 'choice' | 'ints' | 'reals' | 'table' | 'object';
  default: string | null;
  choices: string[];
  sentence: string;
  slider: Slider | null;
}
export interface Info {
  name: string;
  title: string;
  formula: string;
  terms: string[];
  reference: 'none' | 'absolute' | 'relative';
  trainable: boolean;
  extrapolates: 'no' | 'partly' | 'yes';
  extrapolation_note: string;
  paper: string;
  models: string;
  summary: string;
  example_options: Field[];
  variants: string[];
}
export interface HeatPanel {
  kind: 'heatmap';
  title: string;
  x_label: string;
  y_label: string;
  value_label: string;
  first_x: number;
  first_y: number;
  values: Row[];
}
export interface CurvesPanel {
  kind: 'curves';
  title: string;
  x_label: string;
  y_label: string;
  x: Row;
  curves: { label: string; y: Row }[];
  band: { label: string; low: Row; high: Row } | null;
}
export interface Show {
  encoding: string;
  title: string;
  formula: string;
  terms: string[];
  description: string;
  panels: (HeatPanel | CurvesPanel)[];
}
export interface Property {
  name: string;
  question: string;
  verdict: 'yes' | 'no' | 'does not apply';
  value: number | null;
  measure: string;
  threshold: number | null;
  sentence: string;
}
export interface Scores {
  first: number;
  logits: Row[];
  weights: Row[];
}
export interface Distance {
  x: Row;
  mean: Row;
  low: Row;
  high: Row;
}
export interface Pairs {
  layout: string;
  gain: number;
  pairs: { first: number; second: number; theta: number; wavelength: number | null }[];
  at: { position: number; cos: Row; sin: Row }[];
}
export interface Rotary {
  layout: string;
  rotary_dim: number;
  base: number;
  scaling: string;
  factor: number;
  original_length: number | null;
  changes_with_length: boolean;
  frequencies: Row;
}
export interface Scheme {
  encoding: string;
  words: string;
  tensors: { name: string; shape: number[]; use: string }[];
}
export interface Group {
  layers: number[];
  part: string;
  layer_type: string | null;
  attends: boolean;
  input: Scheme;
  attention: Scheme;
  terms: string[];
  rotary: Rotary | null;
  query_heads: number;
  key_heads: number;
  head_dim: number;
  causal: boolean;
  window: { left: number; right: number } | null;
  chunk: number | null;
  softcap: number | null;
  trained_length: number | null;
  warnings: string[];
}
export interface RotationFacts {
  wavelengths: Row;
  angles: { positions: Row; error: Row };
  layout: { offsets: Row; right: Row; wrong: Row; change: number };
}
export interface Explained {
  models: {
    explained: { file: string; family: string; model_type: string; groups: Group[] };
    facts: { layers: string; mask: string; rotation: RotationFacts | null }[];
  }[];
  differences?: string[];
}

/** What the sentence of the core says, as it is. */
export class CoreError extends Error {}

/** The question is no longer of interest. */
export class Stopped extends Error {}

/** Rows of numbers back in their places. */
function revive(value: unknown, numbers: Float64Array): unknown {
  if (Array.isArray(value)) return value.map((one) => revive(one, numbers));
  if (value === null || typeof value !== 'object') return value;
  const row = (value as { $?: [number, number] }).$;
  if (row) return numbers.subarray(row[0], row[0] + row[1]);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, revive(one, numbers)]));
}

interface Waiting {
  answered: (message: FromWorker) => void;
  stopped: (reason: Stopped) => void;
}

export class Lane {
  private worker: Worker;
  private readonly waiting = new Map<number, Waiting>();
  private readonly held = new Set<string>(); // trained tables that the worker has
  private last = 0;

  constructor(
    private readonly source: string,
    private readonly module: WebAssembly.Module,
    private readonly trained: Trained,
  ) {
    this.worker = this.start();
  }

  private start(): Worker {
    const worker = new Worker(this.source);
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      this.waiting.get(data.id)?.answered(data);
      this.waiting.delete(data.id);
    };
    worker.postMessage({ module: this.module } satisfies ToWorker);
    return worker;
  }

  /** Ends whatever is being computed: those who asked get Stopped. */
  stop(): void {
    if (this.waiting.size === 0) return;
    this.worker.terminate();
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    this.held.clear();
    this.worker = this.start();
    for (const { stopped } of waiting) stopped(new Stopped());
  }

  async ask<T>(question: object): Promise<T> {
    const { encoding, trained } = question as { encoding?: string; trained?: boolean };
    if (trained && encoding && !this.held.has(encoding)) {
      this.held.add(encoding);
      await this.ask({ ask: 'hold', encoding, params: this.trained.of(encoding)!.params });
    }
    const id = ++this.last;
    const reply = await new Promise<FromWorker>((answered, stopped) => {
      this.waiting.set(id, { answered, stopped });
      this.worker.postMessage({ id, text: JSON.stringify(question) } satisfies ToWorker);
    });
    const answer = revive(JSON.parse(reply.text), reply.numbers) as T & { error?: string };
    if (answer && typeof answer === 'object' && answer.error !== undefined)
      throw new CoreError(answer.error);
    return answer;
  }
}

/** Pictures, scores and checks each have a worker: a slow check holds up no picture. */
export interface Core {
  show: Lane;
  scores: Lane;
  check: Lane;
  trained: Trained;
}

async function unpacked(base64: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

export async function startCore(): Promise<Core> {
  const part = (id: string) => document.getElementById(id)!.textContent!;
  const module = await WebAssembly.compile(await unpacked(part('core-wasm').trim()));
  const source = URL.createObjectURL(new Blob([part('core-script')], { type: 'text/javascript' }));
  const trained = new Trained(JSON.parse(part('trained')) as TrainedFile);
  const lane = () => new Lane(source, module, trained);
  return { show: lane(), scores: lane(), check: lane(), trained };
}

const rest = (milliseconds: number) =>
  new Promise<void>((ready) => setTimeout(ready, milliseconds));

/** Runs `work` for the newest state alone: calls while it runs become one more run. With a
 * `pause`, it waits until there was no call for as many milliseconds. `busy` counts in data-busy
 * what runs for it. */
export function latest(busy: HTMLElement, work: () => Promise<void>, pause = 0): () => void {
  let running = false;
  let again = false;
  const count = (more: number) => {
    busy.dataset['busy'] = String(Number(busy.dataset['busy'] ?? 0) + more);
  };
  const run = async () => {
    running = true;
    count(1);
    try {
      do {
        again = false;
        if (pause > 0) await rest(pause);
        if (!again) await work();
      } while (again);
    } finally {
      running = false;
      count(-1);
    }
  };
  return () => {
    again = true;
    if (!running) void run();
  };
}
