// What is added to the words: from the bare index to pairs of sines and cosines.
import type { Pairs, Show } from '../core';
import { drawDials } from '../dials';
import { Stage, type Step, drawHeat, heatOf, numbers } from './stage';

export const theIndex: Step = {
  title: 'Just add the index',
  text: [
    'The first idea: add the position number m to the token. It is ordered, and no two positions look alike. But word features are of size one, and at position 500 position is all there is.',
    'The second idea: divide by the length, so that the number stays between 0 and 1. Move the length and watch the two lines.',
  ],
  question: 'Dividing by the length keeps the number bounded. What does it break?',
  options: [
    'The order of tokens.',
    'Position 5 of a short text and position 5 of a long one are no longer the same.',
    'Nothing; it should be used everywhere.',
  ],
  right: 1,
  answer: [
    'The step from one word to the next now depends on the length of the text. What a model learned about “the next word” at length 10 is wrong at length 100. `locus check normalised-index` measures this as *length-invariant: no*, and `locus check index` says *bounded: no*.',
  ],
  build(root, core) {
    let length = 64;
    const stage = new Stage(root, async () => {
      const ask = (encoding: string) =>
        core.show.ask<Show>({ ask: 'show', encoding, length, heads: 1, dim: 8 });
      const [index, share] = await Promise.all([ask('index'), ask('normalised-index')]);
      const line = (show: Show) => heatOf(show).values[0]!;
      plain.lines({
        label: 'The index by position',
        x: 'position',
        y: 'added to x',
        lines: [{ label: 'index', x: numbers(length), y: line(index) }],
        zero: true,
        height: 200,
      });
      divided.lines({
        label: 'The index over the length by position',
        x: 'position',
        y: 'added to x',
        lines: [{ label: 'index / (length − 1)', x: numbers(length), y: line(share) }],
        marks: [{ at: 5, label: `position 5: ${line(share)[5]!.toFixed(3)}` }],
        height: 200,
      });
    });
    stage.slider('length of the text', length, 8, 512, (value) => {
      length = value;
    });
    const plain = stage.figure('index', 'The index grows without bound');
    const divided = stage.figure('normalised', 'Divided by the length, it is bounded');
    return stage.start();
  },
};

export const binary: Step = {
  title: 'Binary digits',
  text: [
    'One number was not enough, so use several. Write the position in binary, one digit per channel. Every digit is 0 or 1, every row differs, and the length does not matter.',
    'Each row of the picture is a channel. The first alternates at every position, the next half as often, and so on: a square wave of every period.',
  ],
  question: 'From position 63 to 64, how many digits change at once?',
  options: ['One', 'Two', 'Seven'],
  right: 2,
  answer: [
    '63 is 0111111 and 64 is 1000000: seven digits flip, and two neighbours end up as far apart as any two positions can be. The code jumps where position moves smoothly (`locus check binary`: continuous no). The repair is in the picture: keep the waves and make them smooth.',
  ],
  build(root, core) {
    let m = 63;
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'binary',
        length: 128,
        heads: 1,
        dim: 8,
      });
      const panel = heatOf(show);
      drawHeat(box, panel);
      const digits = (at: number) => panel.values.map((row) => row[at]!);
      const [here, next] = [digits(m), digits(m + 1)];
      const flips = here.filter((value, n) => value !== next[n]).length;
      const text = (row: number[]) =>
        [...row]
          .reverse()
          .join('')
          .replace(/^0(?=\d{7})/, '');
      note.textContent = `${m} is ${text(here)}, ${m + 1} is ${text(next)}: ${flips} ${flips === 1 ? 'digit changes' : 'digits change'}.`;
    });
    stage.slider('position m', m, 0, 126, (value) => {
      m = value;
    });
    const box = stage.figure('binary', 'Binary digits by position');
    const note = stage.note();
    return stage.start();
  },
};

export const sines: Step = {
  title: 'Sines instead of digits',
  text: [
    'Replace each square wave by a sine: fast in the first channels, slow in the last. Now it is bounded, smooth and independent of the length.',
    'Every channel is a dial that goes round at its own speed. Choose a channel.',
  ],
  question: 'Which channel tells you whether a word is at position 3 or 4?',
  options: ['A slow one', 'A fast one', 'All tell it equally well'],
  right: 1,
  answer: [
    'A fast wave moves a lot from one position to the next; a slow one hardly moves, but it does not repeat within the text, so it tells the beginning from the end. Together they are read like the hands of a clock.',
    'One thing is still missing. From sin(a) alone you cannot compute sin(a + b): you would need cos(a) as well.',
  ],
  build(root, core) {
    let channel = 0;
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'sine',
        length: 96,
        heads: 1,
        dim: 32,
      });
      const panel = heatOf(show);
      drawHeat(box, panel);
      wave.title(`Channel ${channel}`);
      wave.lines({
        label: `Channel ${channel} by position`,
        x: 'position',
        y: 'added to x',
        lines: [{ label: `channel ${channel}`, x: numbers(96), y: panel.values[channel]! }],
        marks: [
          { at: 3, label: '' },
          { at: 4, label: '' },
        ],
        height: 200,
      });
    });
    stage.slider('channel', channel, 0, 31, (value) => {
      channel = value;
    });
    const box = stage.figure('sine', 'A sine per channel');
    const wave = stage.figure('wave', 'One channel');
    return stage.start();
  },
};

export const shift: Step = {
  title: 'A shift is a rotation',
  text: [
    'Keep the cosine beside each sine. A pair of channels is then a point on a circle, and moving the position moves the point round.',
    'The orange hand stands at position m, the blue one k further on. Drag m, then drag k.',
  ],
  question: 'k stays at 5 and m moves. What happens to the angle between the two hands?',
  options: ['It grows with m.', 'It stays the same.', 'It becomes random.'],
  right: 1,
  answer: [
    'In every pair, going from m to m + k is a rotation by an angle that depends on k alone. So one fixed matrix takes the row of any position to the row k further on, and a layer that wants “three words back” can learn that matrix (`locus check sinusoidal`: linear-shift yes).',
    'But it *can* learn it; it does not come for free. The rows are added to the words, and the score of two sums is not a function of the distance alone.',
  ],
  build(root, core) {
    let [m, k] = [10, 5];
    const stage = new Stage(root, async () => {
      const show = await core.show.ask<Show>({
        ask: 'show',
        encoding: 'sinusoidal',
        length: 128,
        heads: 1,
        dim: 16,
      });
      const { values } = heatOf(show);
      const pick = (at: number, from: number) =>
        Float64Array.from({ length: values.length / 2 }, (_, p) => values[2 * p + from]![at]!);
      const at = (position: number) => ({
        position,
        sin: pick(position, 0),
        cos: pick(position, 1),
      });
      const waves = await core.show.ask<Pairs>({
        ask: 'pairs',
        encoding: 'rope',
        dim: 16,
        positions: [0],
      });
      drawDials(box, { layout: '', gain: 1, pairs: waves.pairs, at: [at(m + k), at(m)] }, 8, {
        first: `position m + k = ${m + k}`,
        second: `position m = ${m}`,
        angle: `k = ${k}`,
      });
    });
    stage.slider('position m', m, 0, 90, (value) => {
      m = value;
    });
    stage.slider('shift k', k, 0, 30, (value) => {
      k = value;
    });
    const box = stage.figure('shift', 'Sine and cosine of each pair as a hand');
    return stage.start();
  },
};
