// RoPE: pairs of channels that rotate, and how fast.
import type { Distance, Pairs } from '../core';
import { drawDials } from '../dials';
import { Stage, type Step } from './stage';

export const rope: Step = {
  title: 'RoPE: rotate instead of adding',
  text: [
    'Start from the wish: the score of a query at m and a key at n should depend on m − n only. In two dimensions there is one answer. Read a pair of channels as an arrow and turn it by an angle proportional to its position.',
    'Lengths stay, so no position is louder than another. Turn both arrows and look at their angle.',
  ],
  question: 'Query and key both move 20 tokens to the right. What happens to their score?',
  options: ['It decays.', 'It changes sign.', 'Nothing.'],
  right: 2,
  answer: [
    'Both arrows turn by the same angle, and a dot product sees only the angle between them: (R_m q)·(R_n k) = q·R_(n−m) k. Each token is rotated by its absolute position, yet the score knows the difference only (`locus check rope`: relative yes, norm-preserving yes).',
    'Why pairs? A rotation needs a plane, and a plane needs two channels. Why not the values? They are summed, not compared, and nothing would take the difference.',
  ],
  build(root, core) {
    let [m, d] = [30, 8];
    const stage = new Stage(root, async () => {
      const n = Math.max(0, m - d);
      const size = { encoding: 'rope', heads: 1, dim: 8, length: 128 };
      const pairs = await core.show.ask<Pairs>({ ask: 'pairs', ...size, positions: [m, n] });
      drawDials(box, pairs, 4);
      const distance = await core.scores.ask<Distance>({
        ask: 'distance',
        ...size,
        content: 'matching',
      });
      curve.lines({
        label: 'Score against distance',
        x: 'distance m − n',
        y: 'score',
        lines: [{ label: 'mean over contents', x: distance.x, y: distance.mean }],
        marks: [{ at: m - n, label: `m − n = ${m - n}` }],
        height: 220,
      });
    });
    stage.slider('query position m', m, 0, 120, (value) => {
      m = value;
    });
    stage.slider('distance m − n', d, 0, 60, (value) => {
      d = value;
    });
    const box = stage.figure('rotation', 'Four pairs of channels, rotated');
    const curve = stage.figure('by-distance', 'Only the distance moves the score');
    return stage.start();
  },
};

export const clocks: Step = {
  title: 'Frequencies as clock hands',
  text: [
    'One dial repeats after one turn, and one slow dial could not tell neighbours apart. So every pair has its own speed: the first turns once in about six tokens, the last hardly at all.',
    'Move the position, then the base. The base sets how slow the slowest hand is.',
  ],
  question: 'The base goes from 10,000 to 500,000. Which hands become slower?',
  options: [
    'All but the first; the later the pair, the more',
    'Only the fast ones',
    'All by the same factor',
  ],
  right: 0,
  answer: [
    'The speed of pair p is base^(−2p/d). The first pair has speed 1 whatever the base; every later one is slowed by a power that grows with p. That is why long-context models raise the base: Llama 3 has 500,000.',
    'Nothing here is trained: the angle is the position times a number from a formula.',
  ],
  build(root, core) {
    let [m, base] = [20, 10000];
    const stage = new Stage(root, async () => {
      const pairs = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 64,
        options: { base: String(base) },
        positions: [m, 0],
      });
      drawDials(box, pairs, 8);
    });
    stage.slider('position m', m, 0, 2000, (value) => {
      m = value;
    });
    stage.slider(
      'base',
      base,
      100,
      1_000_000,
      (value) => {
        base = value;
      },
      2,
      true,
    );
    const box = stage.figure('clock', 'Eight of 32 pairs; tokens per turn below each');
    return stage.start();
  },
};
