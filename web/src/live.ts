// A page of a study at work loads itself again, until the study is done or has
// stopped writing. Where the reader was and what is open stays.
const EVERY_SECONDS = 10;
const SILENT_SECONDS = 180; // the study writes at least every 20 s, but for measurements
const PAUSED = 'locus-paused';
const OPEN = 'locus-open';
const AT = 'locus-at';

/** Session storage may be closed to a page from a file. */
function remember(key: string, value: string): void {
  try {
    sessionStorage.setItem(key, value);
  } catch {
    // The page then begins at its top.
  }
}

function recall(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

function allDetails(): HTMLDetailsElement[] {
  return [...document.querySelectorAll('details')];
}

function restore(): void {
  const open = recall(OPEN);
  if (open) for (const [n, details] of allDetails().entries()) details.open = open[n] === '1';
  const at = Number(recall(AT));
  if (at > 0) scrollTo({ top: at, behavior: 'instant' });
}

function reload(): void {
  remember(
    OPEN,
    allDetails()
      .map((details) => (details.open ? '1' : '0'))
      .join(''),
  );
  remember(AT, String(scrollY));
  location.reload();
}

/** Starts it if this is such a page; after everything is drawn. */
export function startLive(): void {
  const line = document.querySelector<HTMLElement>('#live');
  if (!line) return;
  const note = line.querySelector<HTMLElement>('.renews')!;
  const silent = Date.now() / 1000 - Number(line.dataset.written) > SILENT_SECONDS;
  if (silent) {
    note.textContent =
      'Nothing has been written for some minutes: the study has stopped, or measures. ' +
      'This page no longer renews itself.';
    return;
  }
  restore();
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'quiet';
  let paused = recall(PAUSED) === 'yes';
  const tell = (): void => {
    note.textContent = paused ? 'This page is paused. ' : `Renewed every ${EVERY_SECONDS} s. `;
    button.textContent = paused ? 'Renew' : 'Pause';
    note.append(button);
  };
  button.addEventListener('click', () => {
    paused = !paused;
    remember(PAUSED, paused ? 'yes' : 'no');
    tell();
    button.focus();
    if (!paused) reload();
  });
  tell();
  setInterval(() => {
    if (!paused && !document.hidden) reload();
  }, EVERY_SECONDS * 1000);
}
