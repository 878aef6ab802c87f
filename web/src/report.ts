// The report: reads the data that the page carries, draws the figures, and makes
// the tables sortable. Without data for a figure, the figure stays hidden.
import { costFigure, positionFigure, speedFigure } from './charts/cost';
import { extensionFigure } from './charts/extension';
import { lossFigure } from './charts/loss';
import { attentionGallery, picturesGallery, type Redraw } from './charts/pictures';
import { tasksFigure } from './charts/tasks';
import { trainingFigure } from './charts/training';
import { startLive } from './live';
import { parseResults, type Results } from './results';
import { addSaving } from './save';
import { Shown } from './series';
import { makeScrollable, makeSortable } from './table';
import { startThemeButton } from './theme';

type Figure = (figure: HTMLElement, results: Results, shown: Shown) => boolean | Redraw | undefined;

const FIGURES: Record<string, Figure> = {
  loss: lossFigure,
  tasks: tasksFigure,
  extension: extensionFigure,
  cost: costFigure,
  position: positionFigure,
  speed: speedFigure,
  training: trainingFigure,
  pictures: picturesGallery,
  attention: attentionGallery,
};

/** Shows what only scripts fill, and its entry in the contents; hides it if empty. */
function reveal(section: HTMLElement, shown: boolean): void {
  section.hidden = !shown;
  const entry = document.querySelector(`nav a[href="#${section.id}"]`)?.closest('li');
  if (entry) entry.hidden = !shown;
}

function drawFigures(results: Results): Redraw[] {
  const shown = new Shown(results);
  const redraws: Redraw[] = [];
  for (const [name, draw] of Object.entries(FIGURES)) {
    const figure = document.querySelector<HTMLElement>(`[data-figure="${name}"]`)!;
    const section = figure.closest<HTMLElement>('section')!;
    const scripted = section.dataset.script !== undefined;
    // A figure measures its width, so it is in sight before it is drawn.
    figure.hidden = false;
    if (scripted) section.hidden = false;
    const drawn = draw(figure, results, shown);
    figure.hidden = !drawn;
    if (scripted) reveal(section, Boolean(drawn));
    if (typeof drawn === 'function') redraws.push(drawn);
    if (drawn) addSaving(figure, name, results);
    // Under a figure the numbers are there to be asked for.
    const numbers = figure.nextElementSibling;
    if (drawn && numbers instanceof HTMLDetailsElement) numbers.open = false;
  }
  return redraws;
}

/** On paper everything is open. */
function openForPrint(): void {
  let closed: HTMLDetailsElement[] = [];
  addEventListener('beforeprint', () => {
    closed = [...document.querySelectorAll<HTMLDetailsElement>('details:not([open])')];
    for (const details of closed) details.open = true;
  });
  addEventListener('afterprint', () => {
    for (const details of closed) details.open = false;
  });
}

const results = parseResults(document.querySelector('#results')!.textContent || '{}');
const redraws = drawFigures(results);
for (const long of document.querySelectorAll<HTMLDetailsElement>('[data-fold]')) long.open = false;
for (const hint of document.querySelectorAll<HTMLElement>('.hint[data-script]'))
  hint.hidden = false;
for (const table of document.querySelectorAll<HTMLTableElement>('table.sortable'))
  makeSortable(table);
for (const box of document.querySelectorAll<HTMLElement>('.scroll')) makeScrollable(box);
startThemeButton(document.querySelector<HTMLButtonElement>('#theme')!, () => {
  for (const redraw of redraws) redraw();
});
openForPrint();
startLive();
