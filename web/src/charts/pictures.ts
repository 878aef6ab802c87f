// The gallery of what encodings add, rotate or learn, and that of attention maps.
import { element } from '../dom';
import type { EncodingInfo, Picture, Results } from '../results';
import type { Series, Shown } from '../series';
import { centredScale, pictureFigure, Reading, weightScale, type Scale } from './picture';

const ATTENTION = 'attention';

/** One seed is enough to look at: the first that an encoding has. */
function firstSeed(pictures: Picture[]): Picture[] {
  const seed = pictures[0]?.seed;
  return pictures.filter((picture) => picture.seed === seed);
}

function about(info: EncodingInfo | undefined, title: string): Node[] {
  const nodes: Node[] = [element('h3', {}, title)];
  if (!info) return nodes;
  if (info.formula) nodes.push(element('p', { class: 'formula' }, info.formula));
  const rest = [info.note, info.paper].filter(Boolean).join(' · ');
  if (rest) nodes.push(element('p', { class: 'about' }, rest));
  return nodes;
}

/** Each gallery returns the function that draws it in the theme of now. */
export type Redraw = () => void;

interface Show {
  heading: (series: Series) => Node[];
  scale: (picture: Picture) => Scale;
  compact: boolean;
}

function fill(box: HTMLElement, pictures: Picture[], shown: Shown, show: Show): Redraw | undefined {
  const redraws: Redraw[] = [];
  for (const series of shown.all) {
    const mine = firstSeed(pictures.filter(({ encoding }) => encoding === series.key));
    const first = mine[0];
    if (!first) continue;
    const grid = element('div', { class: show.compact ? 'grid' : 'stack' });
    const card = element('div', { class: 'card' }, ...show.heading(series), grid);
    box.append(card); // before its pictures, which measure their width
    // Compact pictures share one scale and one place for the value.
    const shared = new Reading(show.scale(first));
    if (show.compact) card.append(shared.box);
    for (const picture of mine) {
      const scale = show.scale(picture);
      const reading = show.compact ? shared : new Reading(scale);
      const { figure, redraw } = pictureFigure({ picture, scale, compact: show.compact, reading });
      grid.append(figure);
      redraws.push(redraw);
    }
  }
  return redraws.length > 0 ? () => redraws.forEach((redraw) => redraw()) : undefined;
}

export function picturesGallery(
  box: HTMLElement,
  results: Results,
  shown: Shown,
): Redraw | undefined {
  const pictures = results.pictures.filter(({ kind }) => kind !== ATTENTION);
  return fill(box, pictures, shown, {
    heading: ({ key, title }) =>
      about(
        results.encodings.find(({ name }) => name === key),
        title,
      ),
    scale: (picture) => centredScale([picture]),
    compact: false,
  });
}

export function attentionGallery(
  box: HTMLElement,
  results: Results,
  shown: Shown,
): Redraw | undefined {
  const pictures = results.pictures.filter(({ kind }) => kind === ATTENTION);
  const scale = weightScale(pictures); // one for all, so that models compare
  return fill(box, pictures, shown, {
    heading: ({ title }) => [element('h3', {}, title)],
    scale: () => scale,
    compact: true,
  });
}
