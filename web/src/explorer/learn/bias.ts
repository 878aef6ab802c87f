// ALiBi: a penalty for distance.
import type { Scores, Show } from '../core';
import { Stage, type Step, curvesOf } from './stage';

export const alibi: Step = {
  title: 'ALiBi: a penalty for distance',
  text: [
    'ALiBi adds nothing to the words and rotates nothing. It subtracts a line from the score: a slope times the distance, with a fixed slope for each head.',
    'Choose a head and look at where its attention goes when all words are alike.',
  ],
  question: 'Which head can look furthest back?',
  options: [
    'The one with the steepest slope',
    'The one with the shallowest slope',
    'All look equally far',
  ],
  right: 1,
  answer: [
    'With 8 heads the slopes are 1/2, 1/4, … 1/256. A steep head sees its neighbourhood, a shallow one sees far. The penalty grows without bound, and that is the point: a longer text adds keys that hardly count, so a longer text looks like the ones of training.',
    'Later biases ask for better curves than a line: KERPLE trains its shape, Sandwich takes the product of sinusoids, FIRE trains a whole function.',
  ],
  build(root, core) {
    let head = 0;
    const stage = new Stage(root, async () => {
      const size = { encoding: 'alibi', heads: 8, dim: 32, length: 64 };
      const show = await core.show.ask<Show>({ ask: 'show', ...size });
      const panel = curvesOf(show);
      bias.lines({
        label: 'Bias against offset, by head',
        x: panel.x_label,
        y: panel.y_label,
        lines: panel.curves.map(({ label, y }) => ({ label, x: panel.x, y })),
      });
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        ...size,
        count: 64,
        head,
        content: 'none',
        causal: true,
      });
      map.title(`Attention of head ${head + 1}, all words alike`);
      map.heat({
        label: 'Attention weights',
        x: 'key n',
        y: 'query m',
        firstX: 0,
        firstY: 0,
        values: scores.weights,
        colours: 'weights',
      });
    });
    stage.slider('head', 1, 1, 8, (value) => {
      head = value - 1;
    });
    const map = stage.figure('alibi', 'Attention', true);
    const bias = stage.figure('slopes', 'Bias against offset');
    return stage.start();
  },
};
