// Light, dark, or as the system says. The dark colours are a style element of
// their own, so that a theme is a matter of when that element holds. The choice
// outlives the page where the browser allows storage.
const KEY = 'locus-theme';
const ORDER = ['auto', 'light', 'dark'] as const;
export type Theme = (typeof ORDER)[number];

const LOOKS: Record<Theme, { title: string; dark: string }> = {
  auto: { title: 'Theme: as the system', dark: 'screen and (prefers-color-scheme: dark)' },
  light: { title: 'Theme: light', dark: 'not all' },
  dark: { title: 'Theme: dark', dark: 'screen' },
};

export function storedTheme(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return ORDER.find((theme) => theme === found) ?? 'auto';
  } catch {
    return 'auto'; // storage is off
  }
}

export function applyTheme(theme: Theme): void {
  document.querySelector<HTMLStyleElement>('#dark')!.media = LOOKS[theme].dark;
}

/** Makes `button` go round the themes; `changed` runs after each change, and
 * before and after printing, which is always light. */
export function startThemeButton(button: HTMLButtonElement, changed: () => void): void {
  let theme = storedTheme();
  const apply = (applied: Theme) => {
    applyTheme(applied);
    changed();
  };
  const show = () => {
    button.textContent = LOOKS[theme].title;
  };
  button.addEventListener('click', () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length]!;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Storage is off: the choice holds until the page is left.
    }
    show();
    apply(theme);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
  addEventListener('beforeprint', () => apply('light'));
  addEventListener('afterprint', () => apply(theme));
  button.hidden = false;
  show();
}
