// The explorer: Learn, Play and Your model, over one core.
import { startThemeButton } from '../theme';
import { startCore, type Info } from './core';
import { Learn } from './learn/learn';
import { ModelView, type Published } from './model';
import { Play } from './play/play';

const PARTS = ['learn', 'play', 'model'] as const;
type Part = (typeof PARTS)[number];

function partOf(hash: string): Part {
  return PARTS.find((part) => hash.startsWith(`#${part}`)) ?? 'learn';
}

function reveal(part: Part): void {
  for (const one of PARTS) {
    document.getElementById(one)!.hidden = one !== part;
    const link = document.querySelector(`.parts a[href="#${one}"]`)!;
    if (one === part) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

async function start(): Promise<void> {
  reveal(partOf(location.hash)); // before the core is ready: the page is there at once
  const core = await startCore();
  const { encodings } = await core.show.ask<{ encodings: Info[] }>({ ask: 'list' });
  const published = JSON.parse(document.getElementById('published')!.textContent!) as Published[];
  const box = (part: Part) => document.querySelector<HTMLElement>(`#${part} .live`)!;
  const play = new Play(box('play'), core, encodings);
  const views = {
    learn: new Learn(box('learn'), core, encodings),
    play,
    model: new ModelView(box('model'), core, published),
  };
  const open = () => {
    const part = partOf(location.hash);
    reveal(part);
    views[part].open(location.hash);
  };
  addEventListener('hashchange', open);
  startThemeButton(document.querySelector<HTMLButtonElement>('#theme')!, () => {
    for (const view of Object.values(views)) view.redraw();
  });
  open();
  document.body.dataset['ready'] = 'true';
}

start().catch((error: unknown) => {
  const box = document.querySelector<HTMLElement>('#failure')!;
  box.hidden = false;
  box.textContent = `The core could not be started: ${error instanceof Error ? error.message : String(error)}`;
});
