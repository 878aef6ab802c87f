// Why attention needs position at all.
import type { Scores } from '../core';
import { Stage, type Step } from './stage';

export const whyPosition: Step = {
  title: 'Why attention needs position',
  text: [
    'Attention compares every token with every other. A score is the dot product of a query and a key, made from the words alone. Nothing in it knows which word came first.',
    'The figure shows how much each word of a sentence attends to each other. Shuffle the sentence and watch the rows and columns. Then add positions and shuffle again.',
  ],
  question: 'Without positions, “dog” and “man” trade places. What happens to the map?',
  options: [
    'Every number in it changes.',
    'Rows and columns trade places, and no number changes.',
    'All weights become equal.',
  ],
  right: 1,
  answer: [
    'A sum over all keys does not care about their order. So the outputs are shuffled exactly as the inputs were: attention is *equivariant to permutations*. “the dog bit the man” and “the man bit the dog” are one bag of words.',
    'A causal mask breaks this: a token then sees only what came before, and can count it. That is why decoders learn something even without an encoding.',
  ],
  build(root, core) {
    const words = ['the', 'dog', 'bit', 'the', 'man'];
    const id = (word: string) => ['the', 'dog', 'bit', 'man'].indexOf(word);
    let order = [0, 1, 2, 3, 4];
    let placed = false;
    const stage = new Stage(root, async () => {
      const now = order.map((n) => words[n]!);
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        encoding: placed ? 'sinusoidal' : 'none',
        heads: 1,
        dim: 32,
        length: 8,
        count: now.length,
        content: 'random',
        words: now.map(id),
      });
      box.title(`Attention of “${now.join(' ')}”`);
      box.heat({
        label: 'Attention weights',
        x: 'key',
        y: 'query',
        firstX: 0,
        firstY: 0,
        values: scores.weights,
        colours: 'weights',
        most: 1,
        names: now,
      });
      const at = (row: string, column: string) =>
        scores.weights[now.indexOf(row)]![now.indexOf(column)]!;
      note.textContent = `“dog” attends to “man” with weight ${at('dog', 'man').toFixed(4)}, and “man” to “dog” with ${at('man', 'dog').toFixed(4)}.`;
    });
    stage.button('Swap dog and man', () => {
      order = order.map((n) => (n === 1 ? 4 : n === 4 ? 1 : n));
    });
    stage.button('Shuffle', () => {
      // A rotation of the sentence and a swap: always another order.
      order = [...order.slice(2), ...order.slice(0, 2)];
      [order[0], order[1]] = [order[1]!, order[0]!];
    });
    stage.flag('add positions (sinusoidal)', false, (value) => {
      placed = value;
    });
    const box = stage.figure('attention', 'Attention', true);
    const note = stage.note();
    return stage.start();
  },
};
