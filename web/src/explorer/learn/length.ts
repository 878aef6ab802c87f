// Past the trained length, and how RoPE is stretched there.
import type { Pairs } from '../core';
import { Stage, type Step, numbers } from './stage';

// Press et al., "Train Short, Test Long" (arXiv 2108.12409): perplexity on
// WikiText-103 of models trained on 512 tokens.
const PAPER = {
  lengths: [512, 1012, 3512, 15512],
  rows: [
    { label: 'sinusoidal', values: [20.05, 43.54, 178.97, 406.01] },
    { label: 'RoPE', values: [20.07, 21.37, 35.54, 79.25] },
    { label: 'T5 bias', values: [19.65, 18.79, 22.91] },
    { label: 'ALiBi', values: [19.73, 18.73, 18.4, 18.31] },
  ],
};

export const pastLength: Step = {
  title: 'Past the trained length',
  text: [
    'A formula that goes on forever does not make a model that does. The first figure is from the ALiBi paper: perplexity of models trained on 512 tokens and read on more. Lower is better.',
    'The second shows why: how many turns each pair of RoPE makes within the trained length. Move the length.',
  ],
  question: 'Which pairs show the model something new once the text is longer than in training?',
  options: [
    'The fast ones, which have turned many times',
    'The slow ones, which have not completed a turn',
    'All of them',
  ],
  right: 1,
  answer: [
    'A fast pair has been everywhere on its circle many times. A slow pair reaches angles that the model has never seen. It is a clock whose hand comes to an hour for the first time.',
    'Perplexity is not everything: it rewards forgetting far words. On tasks that need a far word, Kazemnejad et al. (arXiv 2305.19466) found no position at all ahead of ALiBi and RoPE. “Extrapolates” is a statement about a task.',
  ],
  build(root, core) {
    let length = 512;
    const stage = new Stage(root, async () => {
      paper.lines({
        label: 'Perplexity by length',
        x: 'tokens read',
        y: 'perplexity',
        lines: PAPER.rows.map(({ label, values }) => ({ label, x: PAPER.lengths, y: values })),
        logX: true,
        logY: true,
        marks: [{ at: 512, label: 'trained' }],
      });
      const pairs = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 64,
        positions: [0],
      });
      const turns = pairs.pairs.map(({ wavelength }) => length / (wavelength ?? Infinity));
      seen.lines({
        label: 'Turns within the trained length',
        x: 'pair',
        y: 'turns',
        lines: [
          { label: `turns in ${length} tokens`, x: numbers(turns.length), y: turns },
          { label: 'one full turn', x: [0, turns.length - 1], y: [1, 1], dash: true },
        ],
        logY: true,
      });
      const slow = turns.filter((one) => one < 1).length;
      note.textContent = `${slow} of ${turns.length} pairs never complete a turn in ${length} tokens.`;
    });
    stage.slider(
      'trained length',
      length,
      64,
      65536,
      (value) => {
        length = value;
      },
      2,
      true,
    );
    const paper = stage.figure('paper', 'Trained on 512 tokens, read on more (ALiBi paper)');
    const seen = stage.figure('turns', 'How often each pair turns in training');
    const note = stage.note();
    return stage.start();
  },
};

const SCALINGS = [
  { value: 'none', title: 'as trained' },
  { value: 'linear', title: 'interpolation (PI)' },
  { value: 'ntk', title: 'NTK-aware' },
  { value: 'yarn', title: 'YaRN' },
  { value: 'llama3', title: 'llama3' },
];

export const stretching: Step = {
  title: 'Stretching RoPE',
  text: [
    'To read longer texts, make the hands slower, so that they stay within the angles of training. The methods differ in which hands they slow down. The figure shows the tokens per turn of every pair, trained on 4096 tokens.',
    'Move the factor by which the context grows.',
  ],
  question: 'Which method slows down even the fast hands, and so blurs neighbours?',
  options: ['Position interpolation', 'YaRN', 'llama3'],
  right: 0,
  answer: [
    'Interpolation divides every position by the factor, so neighbours come closer together on every dial. NTK-aware changes the base: the fastest pair keeps its speed, the slowest takes the whole factor. YaRN treats each pair by what it has seen: many turns, leave it alone; less than one, stretch it fully; a ramp between. It also makes the scores a little sharper.',
    'Everything stays a rotation, so everything stays relative.',
  ],
  build(root, core) {
    let factor = 8;
    const trained = 4096;
    const stage = new Stage(root, async () => {
      const waves = await Promise.all(
        SCALINGS.map(({ value }) =>
          core.show.ask<Pairs>({
            ask: 'pairs',
            encoding: 'rope',
            dim: 128,
            length: trained,
            options:
              value === 'none'
                ? {}
                : { scaling: value, factor: String(factor), original_length: String(trained) },
            positions: [0],
          }),
        ),
      );
      const y = (pairs: Pairs): number[] => pairs.pairs.map(({ wavelength }) => wavelength ?? NaN);
      box.lines({
        label: 'Tokens per turn by pair, for each method',
        x: 'pair',
        y: 'tokens per turn',
        lines: [
          ...waves.map((pairs, n) => ({
            label: SCALINGS[n]!.title,
            x: numbers(pairs.pairs.length),
            y: y(pairs),
          })),
          { label: `${trained} tokens, trained`, x: [0, 63], y: [trained, trained], dash: true },
          {
            label: `${trained * factor} tokens, wanted`,
            x: [0, 63],
            y: [trained * factor, trained * factor],
            dash: true,
          },
        ],
        logY: true,
        height: 340,
      });
      const plain = y(waves[0]!);
      stretch.lines({
        label: 'Stretch of each pair',
        x: 'pair',
        y: 'times slower than trained',
        lines: waves.slice(1).map((pairs, n) => ({
          label: SCALINGS[n + 1]!.title,
          series: n + 1,
          x: numbers(plain.length),
          y: y(pairs).map((wave, p) => wave / plain[p]!),
        })),
        height: 240,
      });
    });
    stage.slider('factor', factor, 2, 32, (value) => {
      factor = value;
    });
    const box = stage.figure('wavelengths', 'Tokens per turn');
    const stretch = stage.figure('stretch', 'How much slower each pair became');
    return stage.start();
  },
};
