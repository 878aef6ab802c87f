// How to choose, and the common sticking points.
import { element } from '../../dom';
import { Stage, type Step } from './stage';

const STICKING: [string, string][] = [
  [
    'Is RoPE absolute or relative?',
    'Each token is rotated by its absolute position; the score sees the difference. Both are right, and the second is the one that matters.',
  ],
  [
    'Are the frequencies trained?',
    'No. They are a formula of the base and the pair. (Some variants do train them; RoPE itself does not.)',
  ],
  [
    'Sine and cosine repeat. Can angles become too large?',
    'Not for the mathematics. For float32 they can: the product of a large position and a frequency loses digits. See “Where float32 angles break” under Your model.',
  ],
  [
    'Does a formula for every position mean that the model extrapolates?',
    'No: see step 10. Sinusoids are defined everywhere and degrade at once.',
  ],
  [
    'Why does RoPE act in every layer, and sinusoids once?',
    'Sinusoids ride along in the residual stream. A rotation is used up by the dot product, so each layer needs its own.',
  ],
  [
    'Which channels form a pair?',
    'Neighbours (2p, 2p + 1) or halves (p, p + d/2): the mathematics does not care, trained weights do. Mixing them up is a common silent bug.',
  ],
];

export const choosing: Step = {
  title: 'How to choose, and where people get stuck',
  text: [
    'No encoding has every property, and not every model needs them all. Say what you need, and the list keeps the encodings that their own descriptions claim it for. Then open one in Play and measure it.',
  ],
  question:
    'A decoder for text that must later read far longer inputs, with a KV cache. What do most models of today take?',
  options: [
    'A learned table',
    'RoPE, with a larger base or YaRN when it is stretched',
    'Binary digits',
  ],
  right: 1,
  answer: [
    'RoPE needs no parameters, keys can be cached once rotated, and scalings extend it after training. ALiBi is the simplest that keeps its perplexity on longer texts. T5’s bias and DeBERTa’s tables suit encoders. Images take 2-D RoPE or Swin’s table.',
  ],
  build(root, _core, known) {
    const wanted = { relative: false, past: false, fixed: false };
    const list = element('ul', { class: 'chosen', 'aria-live': 'polite' });
    const stage = new Stage(root, async () => {
      const kept = known.filter(
        (one) =>
          (!wanted.relative || one.reference === 'relative') &&
          (!wanted.past || one.extrapolates !== 'no') &&
          (!wanted.fixed || !one.trainable),
      );
      list.replaceChildren(
        ...kept.map((one) =>
          element(
            'li',
            {},
            element('a', { href: `#play?a=${one.name}` }, one.title),
            ` ${one.models ? `(${one.models})` : ''}`,
          ),
        ),
      );
    });
    stage.flag('the score depends on the distance only', false, (value) => {
      wanted.relative = value;
    });
    stage.flag('it is used past its trained length', false, (value) => {
      wanted.past = value;
    });
    stage.flag('there is nothing to train', false, (value) => {
      wanted.fixed = value;
    });
    root.append(
      list,
      element('h3', {}, 'Common sticking points'),
      ...STICKING.map(([question, answer]) =>
        element('details', {}, element('summary', {}, question), element('p', {}, answer)),
      ),
    );
    return stage.start();
  },
};
