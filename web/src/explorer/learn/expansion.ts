// The score of two sums, multiplied out, and what relative encodings keep of it.
import { element } from '../../dom';
import type { Scores } from '../core';
import { Stage, type Step } from './stage';

const SCHEMES = [
  {
    value: 'sinusoidal',
    title: 'Added',
    cells: ['words with words', 'word with place', 'place with word', 'place with place'],
  },
  {
    value: 'shaw',
    title: 'Shaw',
    cells: ['kept', 'a vector per offset, clipped', 'dropped', 'dropped'],
  },
  {
    value: 'transformer-xl',
    title: 'Transformer-XL',
    cells: ['kept', 'a vector per offset', 'one vector for all places', 'a number per offset'],
  },
  {
    value: 't5',
    title: 'T5',
    cells: ['kept', 'dropped', 'dropped', 'a number per bucket of offsets'],
  },
  {
    value: 'tupe',
    title: 'TUPE',
    cells: ['kept', 'dropped', 'dropped', 'places with projections of their own'],
  },
  {
    value: 'deberta',
    title: 'DeBERTa',
    cells: ['kept', 'a vector per offset', 'a vector per offset', 'dropped'],
  },
];

export const expansion: Step = {
  title: 'One product, four terms',
  text: [
    'Add a position p to each word x and multiply out the score of two of them. Four terms appear: content with content, content with position, position with content, position with position.',
    'Most relative encodings come from this line. Each keeps some terms, drops some, and replaces the two positions by something that depends on their difference. Switch between them.',
  ],
  question:
    'Which scheme keeps the content and one trained number per bucket of distances, and nothing else?',
  options: ['Shaw', 'T5', 'DeBERTa'],
  right: 1,
  answer: [
    'T5 keeps only the idea that near and far differ. TUPE calls the two mixed terms noise and drops them; DeBERTa says they are the point and drops the last. Both work, which is worth remembering when a derivation looks inevitable.',
  ],
  build(root, core) {
    let scheme = SCHEMES[0]!;
    let content: 'matching' | 'none' = 'matching';
    const stage = new Stage(root, async () => {
      const heads = [
        'content – content',
        'content – position',
        'position – content',
        'position – position',
      ];
      cells.replaceChildren(
        ...heads.map((title, n) =>
          element(
            'div',
            { class: scheme.cells[n] === 'dropped' ? 'dropped' : '' },
            element('b', {}, title),
            element('span', {}, scheme.cells[n]!),
          ),
        ),
      );
      const scores = await core.scores.ask<Scores>({
        ask: 'scores',
        ...core.trained.question(scheme.value),
        count: 48,
        content,
      });
      const table = core.trained.of(scheme.value);
      origin.textContent = table ? core.trained.story(table) : '';
      box.title(`${scheme.title}: score of each query on each key`);
      box.heat({
        label: 'Scores',
        x: 'key n',
        y: 'query m',
        firstX: 0,
        firstY: 0,
        values: scores.logits,
        colours: 'centred',
      });
    });
    stage.choose(
      'Scheme',
      SCHEMES.map((one) => ({ value: one, title: one.title })),
      (value) => {
        scheme = value;
      },
    );
    stage.choose(
      'Content',
      [
        { value: 'matching' as const, title: 'with words (all the same)' },
        { value: 'none' as const, title: 'position alone' },
      ],
      (value) => {
        content = value;
      },
    );
    const cells = element('div', { class: 'four' });
    root.append(cells);
    const box = stage.figure('expansion', 'Scores', true);
    const origin = element('p', { class: 'facts' });
    root.append(origin);
    return stage.start();
  },
};
