// Learn: the guided path. A step is a text, a figure that the reader moves, and a
// question to answer before the explanation shows.
import { element } from '../../dom';
import type { Core, Info } from '../core';
import type { Live, Step } from './stage';
import { STEPS } from './steps';

function paragraphs(lines: string[]): HTMLElement[] {
  return lines.map((line) => {
    const made = element('p', {});
    // *words* are stressed, `words` are code; everything else is text.
    for (const part of line.split(/(\*[^*]+\*|`[^`]+`)/)) {
      if (/^\*.+\*$/.test(part)) made.append(element('em', {}, part.slice(1, -1)));
      else if (/^`.+`$/.test(part)) made.append(element('code', {}, part.slice(1, -1)));
      else made.append(part);
    }
    return made;
  });
}

/** The question: radio buttons, a verdict, and the explanation. */
function questionBox(step: Step, number: number): HTMLElement {
  const verdict = element('p', { class: 'verdict-line', role: 'status' });
  const answer = element('div', { class: 'explanation', hidden: '' }, ...paragraphs(step.answer));
  const options = step.options.map((option, index) => {
    const input = element('input', {
      type: 'radio',
      name: `question-${number}`,
      value: String(index),
    });
    input.addEventListener('change', () => {
      const right = index === step.right;
      verdict.textContent = right
        ? 'Yes.'
        : `Not so: ${step.options[step.right]!.replace(/\.$/, '')}.`;
      verdict.className = `verdict-line ${right ? 'is' : 'is-not'}`;
      answer.hidden = false;
    });
    return element('label', { class: 'option' }, input, element('span', {}, option));
  });
  return element(
    'fieldset',
    { class: 'question' },
    element('legend', {}, step.question),
    ...options,
    verdict,
    answer,
  );
}

export class Learn {
  private at = -1;
  private live: Live | undefined;

  constructor(
    private readonly root: HTMLElement,
    private readonly core: Core,
    private readonly known: Info[],
  ) {}

  /** "#learn/3" is the third step. */
  open(hash: string): void {
    const wanted = Number(/^#learn\/(\d+)/.exec(hash)?.[1] ?? Math.max(1, this.at + 1));
    const index = Math.min(STEPS.length, Math.max(1, wanted)) - 1;
    if (index === this.at) return;
    this.at = index;
    this.build(STEPS[index]!);
  }

  redraw(): void {
    this.live?.redraw();
  }

  private build(step: Step): void {
    const number = this.at + 1;
    const heading = element('h2', { id: 'step-title', tabindex: '-1' }, `${number}. ${step.title}`);
    const stage = element('div', { class: 'stage' });
    const link = (to: number, title: string, kind: string) =>
      element('a', { href: `#learn/${to}`, class: kind }, title);
    const next = STEPS[this.at + 1];
    const turning = element(
      'nav',
      { class: 'turning', 'aria-label': 'Steps before and after' },
      number > 1 ? link(number - 1, '← Back', 'quiet') : element('span', {}),
      next
        ? link(number + 1, `Next: ${next.title} →`, 'primary')
        : element('a', { href: '#play', class: 'primary' }, 'Now play →'),
    );
    const path = element(
      'nav',
      { class: 'path', 'aria-label': 'All steps' },
      element(
        'ol',
        {},
        ...STEPS.map(({ title }, index) =>
          element(
            'li',
            {},
            element(
              'a',
              {
                href: `#learn/${index + 1}`,
                ...(index === this.at ? { 'aria-current': 'step' } : {}),
              },
              title,
            ),
          ),
        ),
      ),
    );
    const first = this.root.querySelector('.step') === null;
    this.root.replaceChildren(
      path,
      element(
        'article',
        { class: 'step', 'aria-labelledby': 'step-title', 'data-step': String(number) },
        element(
          'div',
          { class: 'text' },
          heading,
          ...paragraphs(step.text),
          questionBox(step, number),
        ),
        stage,
        turning,
      ),
    );
    this.live = step.build(stage, this.core, this.known);
    if (!first) {
      heading.focus({ preventScroll: true });
      scrollTo({ top: 0 });
    }
  }
}
