// A made-up results.json with the shapes of a real one: plausible, and nothing
// that was measured. For tests of the page alone.
//
//   node made_up.mjs FILE KIND     KIND: full, partial, empty, live, hostile or hostile_all
import { writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { hostile } from './hostile.mjs';

const LENGTHS = [64, 128, 256, 512, 1024];
const TASK_LENGTHS = [32, 64, 128, 256];
const TASKS = ['copy', 'reverse', 'k-back', 'associative-recall', 'count', 'sort'];

// Loss at 1x, and its growth a doubling of the length.
const ENCODINGS = [
  { name: 'none', short: 'No position', loss: 2.12, growth: 0.05, step: 0.1 },
  { name: 'sinusoidal', short: 'Sinusoidal', loss: 2.01, growth: 0.16, step: 0.101 },
  { name: 'learned', short: 'Learned', loss: 2.03, limit: 64, growth: 0, step: 0.101 },
  { name: 'shaw', short: 'Shaw', loss: 1.9, growth: 0.04, step: 0.135 },
  { name: 't5', short: 'T5', loss: 1.95, growth: 0.025, step: 0.104 },
  { name: 'alibi', short: 'ALiBi', loss: 1.83, growth: -0.004, step: 0.102 },
  { name: 'kerple', short: 'KERPLE', loss: 1.86, growth: 0.002, step: 0.106 },
  { name: 'rope', short: 'RoPE', loss: 1.76, growth: 0.11, step: 0.108 },
];

/** Numbers in [0, 1) that are the same in every run (Park and Miller). */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

function evaluations(encoding, lengths, value, random) {
  return lengths.map((length) => {
    if (encoding.limit && length > encoding.limit) {
      return {
        length,
        refused: `learned has ${encoding.limit} rows, position ${length - 1} asked`,
      };
    }
    return { length, tokens: 65536, ...value(Math.log2(length / lengths[0]), random) };
  });
}

function textValue(encoding) {
  return (doublings, random) => {
    const loss = encoding.loss * (1 + encoding.growth * doublings) + 0.04 * (random() - 0.5);
    return { loss, accuracy: Math.max(0, 0.78 - 0.18 * loss) };
  };
}

function taskValue(encoding) {
  return (doublings, random) => {
    const fall = 0.06 + 1.2 * Math.abs(encoding.growth);
    const accuracy = Math.min(1, Math.max(0.03, 0.99 - fall * doublings - 0.1 * random()));
    return { loss: 3 * (1 - accuracy), accuracy };
  };
}

function makeRun(task, encoding, seed) {
  const random = generator(1000 * seed + encoding.name.length + task.length);
  const steps = task === 'text' ? 300 : 200;
  const final = task === 'text' ? encoding.loss : 0.2;
  const curve = [];
  for (let step = 10; step <= steps; step += 10) {
    const loss = final + (5.5 - final) * Math.exp(-step / 45) + 0.08 * (random() - 0.5);
    curve.push({ step, loss });
  }
  const lengths = lengthsOf(task);
  const value = task === 'text' ? textValue(encoding) : taskValue(encoding);
  const seconds = encoding.step * (1 + 0.05 * random());
  return {
    id: `${task}/${encoding.name}/${seed}`,
    task,
    encoding: encoding.name,
    seed,
    steps,
    parameters: 430000,
    loss_curve: curve,
    seconds_per_step: seconds,
    tokens_per_second: 2048 / seconds,
    train_seconds: steps * seconds,
    peak_memory_bytes: Math.round(2.1e8 + 1e7 * random()),
    evaluations: evaluations(encoding, lengths, value, random),
  };
}

function makeExtensions(seeds) {
  const growth = { none: 0.11, linear: 0.045, ntk: 0.04, dynamic: 0.03, yarn: 0.018 };
  return seeds.flatMap((seed) =>
    Object.entries(growth).flatMap(([method, rate]) =>
      [0, 50].map((steps) => {
        const random = generator(77 * seed + method.length + steps);
        const encoding = { loss: 1.77, growth: steps > 0 ? rate / 2 : rate };
        return {
          id: `extend/rope/${seed}/${method}/${steps}`,
          seed,
          method,
          fine_tune_steps: steps,
          factor: 4,
          evaluations: evaluations(encoding, LENGTHS, textValue(encoding), random),
        };
      }),
    ),
  );
}

function makeCosts() {
  const random = generator(5);
  return [256, 512].flatMap((length) =>
    ENCODINGS.flatMap(({ name, step }) =>
      ['fused', 'materialised'].map((path) => {
        const scale = length / 512;
        const seconds = step * scale * (path === 'fused' ? 1 : 1.6 + scale) * (1 + 0.02 * random());
        return {
          length,
          encoding: name,
          path,
          seconds_per_step: seconds,
          spread: [0.97 * seconds, 1.04 * seconds],
          peak_memory_bytes: Math.round(2e8 + (path === 'fused' ? 4e7 : 3.5e8 * scale) * scale),
        };
      }),
    ),
  );
}

const range = (count, first = 0) => Array.from({ length: count }, (_, k) => first + k);

function matrix(shape, value) {
  return range(shape[0]).map((i) => range(shape[1]).map((j) => value(i, j)));
}

function makePictures() {
  const random = generator(9);
  const picture = (encoding, kind, title, [y, x], [ys, xs], value) => ({
    encoding,
    seed: 1,
    kind,
    title,
    x,
    y,
    x_values: range(xs),
    y_values: range(ys),
    values: matrix([ys, xs], value),
  });
  const bias = ['head', 'offset'];
  const pictures = [
    picture(
      'sinusoidal',
      'embedding',
      'What is added to each token',
      ['position', 'dimension'],
      [64, 128],
      (i, j) => (j % 2 ? Math.cos(i / 10000 ** ((j - 1) / 128)) : Math.sin(i / 10000 ** (j / 128))),
    ),
    picture(
      'learned',
      'embedding',
      'The table after training',
      ['position', 'dimension'],
      [64, 64],
      () => random() - 0.5,
    ),
    picture('alibi', 'bias', 'Bias by offset', bias, [4, 64], (i, j) => -j * 2 ** (-2 * (i + 1))),
    picture(
      't5',
      'table',
      'The learned bias',
      bias,
      [4, 64],
      (i, j) => 2 * random() - 0.1 * (i + 1) * Math.log(1 + j),
    ),
    picture('rope', 'rotation', 'cos of the angle', ['pair', 'position'], [16, 64], (i, j) =>
      Math.cos(j / 10000 ** (i / 16)),
    ),
  ];
  for (const { name } of ENCODINGS) {
    pictures.push(
      ...range(8).map((head) =>
        picture(
          name,
          'attention',
          `layer ${1 + Math.floor(head / 4)}, head ${1 + (head % 4)}`,
          ['query', 'key'],
          [32, 32],
          (i, j) => (j > i ? 0 : (1 + (i - j === head ? 6 : 0) + random()) / (8 + i)),
        ),
      ),
    );
  }
  return pictures;
}

function summarise(runs) {
  const groups = new Map();
  for (const { task, encoding, evaluations: all } of runs) {
    for (const evaluation of all) {
      if (evaluation.refused || evaluation.loss === null) continue;
      for (const metric of ['loss', 'accuracy']) {
        const { length } = evaluation;
        const key = `${task}/${encoding}/${length}/${metric}`;
        if (!groups.has(key)) groups.set(key, { task, encoding, length, metric, values: [] });
        groups.get(key).values.push(evaluation[metric]);
      }
    }
  }
  return [...groups.values()].map(({ values, ...rest }) => ({
    ...rest,
    mean: values.reduce((a, b) => a + b) / values.length,
    low: Math.min(...values),
    high: Math.max(...values),
    seeds: values.length,
    learned: rest.task !== 'sort',
    best: rest.encoding === 'alibi' && rest.task !== 'sort',
  }));
}

function rank(summary) {
  const places = summary
    .filter(({ task, length, metric }) => task === 'text' && length === 256 && metric === 'loss')
    .sort((a, b) => a.mean - b.mean)
    .map(({ encoding, mean }, n) => ({
      encoding,
      mean,
      to_next: { difference: -0.1, low: -0.2, high: n % 2 ? 0.1 : -0.05, significant: n % 2 === 0 },
    }));
  if (places.length === 0) return [];
  delete places.at(-1).to_next;
  return [{ task: 'text', length: 256, metric: 'loss', places }];
}

const CLAIMS = ['yes', 'no', 'inconclusive'].map((agrees) => ({
  paper: 'Nobody 2000',
  claim: 'what is made up holds <always>',
  here: 'loss differs by -0.100 (-0.200 to +0.100)',
  agrees,
}));

const PROGRESS = {
  done: 5,
  jobs: 62,
  first_answer: true,
  running: ['rope on text, seed 2', 'alibi on <text>, seed 2'],
  seconds_left: 700,
  written: Math.floor(Date.now() / 1000),
};

const lengthsOf = (task) => (task === 'text' ? LENGTHS : TASK_LENGTHS);

/**
 * full: everything. partial: interrupted, one seed, two tasks, nothing else.
 * empty: stopped before its first run was done. live: partial, at work. hostile: full, with strings that mean harm.
 */
export function makeResults(kind) {
  if (kind.startsWith('hostile')) return hostile(makeResults('full'), kind === 'hostile_all');
  const full = kind === 'full';
  const seeds = full ? [1, 2, 3] : [1];
  const tasks = full ? ['text', ...TASKS] : ['text', 'copy'];
  const encodings = full ? ENCODINGS : ENCODINGS.filter(({ name }) => /rope|learned/.test(name));
  const names = encodings.map(({ name }) => name);
  const done = kind === 'empty' ? [] : tasks;
  const runs = done.flatMap((task) =>
    encodings.flatMap((encoding) => seeds.map((seed) => makeRun(task, encoding, seed))),
  );
  // A loss that is not a number is written so.
  if (kind === 'partial')
    Object.assign(runs.at(-1).evaluations.at(-1), { loss: null, accuracy: null });
  const summary = summarise(runs);
  return {
    schema: 2,
    locus: '0.0 (made up)',
    libtorch: '0.0 (made up)',
    created: '2000-01-01T00:00:00Z',
    command: 'none: made up for tests',
    machine: {
      cpu: 'made up',
      cores: 2,
      jobs: 2,
      threads_per_job: 1,
      simd: 'none',
      memory_bytes: 8e9,
    },
    settings: {
      model: { kind: 'decoder', layers: 2, model_dim: 128, heads: 4, head_dim: 32 },
      train_length: 64,
      lengths: LENGTHS,
      seeds,
      tasks: tasks.map((name) => ({
        name,
        encodings: names,
        seeds,
        train_length: lengthsOf(name)[0],
        lengths: lengthsOf(name),
        steps: 300,
        batch: 32,
        learning_rate: 0.001,
        score_tokens: 65536,
      })),
      encodings: names,
      extension: { methods: full ? ['none', 'yarn'] : [], factor: 4, fine_tune_steps: 50 },
    },
    seconds: 600,
    interrupted: !full,
    failed: full ? [] : [{ id: 'text/rope/2', reason: 'a made-up <reason>' }],
    encodings: encodings.map(({ name, short }) => ({
      name,
      short,
      title: `${short}, made up`,
      formula: 's = scale q.k + b',
      paper: 'Nobody, Nothing, 2000',
      enters_at: ['bias'],
      reference: 'relative',
      trainable: name === 't5' || name === 'learned',
      extrapolates: 'partly',
      note: 'a made-up note with <b>markup</b> & signs',
    })),
    runs,
    tuning: [],
    extensions: full ? makeExtensions(seeds) : [],
    attention_cost: full ? makeCosts() : [],
    attention_cost_refused: [],
    pictures: full ? makePictures() : [],
    summary,
    ranking: rank(summary),
    claims: full ? CLAIMS : [],
    ...(kind === 'live' ? { progress: PROGRESS } : {}),
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [, , file, kind = 'full'] = process.argv;
  writeFileSync(file, JSON.stringify(makeResults(kind)));
}
