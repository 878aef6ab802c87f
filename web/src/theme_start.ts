// Runs before the page is drawn, so that a chosen theme does not flash,
// nor what is meant for readers without scripts.
import { applyTheme, storedTheme } from './theme';

applyTheme(storedTheme());
document.documentElement.classList.add('scripted');
